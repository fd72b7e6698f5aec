// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See system.h.
#include "core/system.h"

#include <cerrno>
#include <cstdio>
#include <thread>

#include <sys/stat.h>
#include <unistd.h>

namespace tofu {

bool NodeFile::open(const char* path) noexcept
{
    std::snprintf(path_, sizeof(path_), "%s", path);
    file_ = ::open(path_, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat found{};
    if (file_ >= 0 && (fstat(file_, &found) != 0 || found.st_uid != geteuid() || !S_ISREG(found.st_mode)))
        close();
    return file_ >= 0;
}

bool NodeFile::is_removed() const noexcept
{
    struct stat found{};
    return fstat(file_, &found) != 0 || found.st_nlink == 0;
}

void NodeFile::remove() noexcept
{
    if (!is_removed())
        (void)unlink(path_);
}

void NodeFile::close() noexcept
{
    if (file_ >= 0)
        ::close(file_);
    file_ = -1;
}

bool NodeFile::lock(short type, off_t from, off_t bytes, int command) noexcept
{
    struct flock request{};
    request.l_type = type;
    request.l_whence = SEEK_SET;
    request.l_start = from;
    request.l_len = bytes;
    int ret = 0;
    do
        ret = fcntl(file_, command, &request);
    while (ret != 0 && errno == EINTR);
    return ret == 0 && (command != F_OFD_GETLK || request.l_type == F_UNLCK);
}

bool NodeFile::lock_within(std::chrono::milliseconds patience, short type, off_t from, off_t bytes) noexcept
{
    using Clock = std::chrono::steady_clock;
    for (const Clock::time_point end = Clock::now() + patience; !lock(type, from, bytes);) {
        if (errno != EAGAIN && errno != EACCES) // fcntl(2): no process has the lock, and it is not available
            return false;
        if (Clock::now() >= end)
            return false;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return true;
}

} // namespace tofu
