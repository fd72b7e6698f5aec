// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See memory_file.h.
#include "mem/memory_file.h"

#include <cstdio>
#include <cstdlib>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

namespace tofu {

namespace {

constexpr unsigned long tmpfs = 0x01021994; // linux/magic.h

ChangeTime nanoseconds(const timespec& time) noexcept
{
    return static_cast<ChangeTime>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

} // namespace

/// Also finds out whether the number is the file's still: a program may close what it does not know.
bool MemoryFile::look(int fd, ChangeTime& changed) const noexcept
{
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_dev != device_ || status.st_ino != inode_)
        return false;
    changed = nanoseconds(status.st_ctim);
    return true;
}

/// Closes the descriptor unless it is of the file.
bool MemoryFile::take(int fd) noexcept
{
    ChangeTime changed = 0;
    struct statfs system;
    if (fd < 0)
        return false;
    if (!look(fd, changed) || fstatfs(fd, &system) != 0 || static_cast<unsigned long>(system.f_type) != tmpfs) {
        ::close(fd);
        return false;
    }
    fd_ = fd;
    return true;
}

/// A duplicate of a descriptor of the program's. Another thread may close that meanwhile: take() looks again.
int MemoryFile::find_descriptor() const noexcept
{
    DIR* const all = opendir("/proc/self/fd");
    int found = -1;
    if (all == nullptr)
        return -1;
    while (const dirent* const one = found < 0 ? readdir(all) : nullptr) {
        ChangeTime changed = 0;
        const int fd = std::atoi(one->d_name);
        if (one->d_name[0] != '.' && fd != dirfd(all) && look(fd, changed))
            found = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    }
    closedir(all);
    return found;
}

bool MemoryFile::open(const MappedFile& mapped) noexcept
{
    device_ = mapped.device;
    inode_ = mapped.inode;
    constexpr int how = O_PATH | O_CLOEXEC;
    char mapping[64];
    std::snprintf(mapping, sizeof mapping, "/proc/self/map_files/%llx-%llx",
                  static_cast<unsigned long long>(mapped.begin), static_cast<unsigned long long>(mapped.end));
    return (mapped.name[0] == '/' && take(::open(mapped.name, how))) || take(::open(mapping, how)) ||
           take(find_descriptor());
}

void MemoryFile::close() noexcept
{
    ChangeTime changed = 0;
    if (is_open() && look(fd_, changed))
        ::close(fd_);
    fd_ = -1;
}

/// The clock first: what changes the file from here on gives it this time or a later one.
bool MemoryFile::begin(ChangeTime& since) const noexcept
{
    timespec now{};
    return clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0 && look(fd_, since) && since < nanoseconds(now);
}

bool MemoryFile::unchanged(ChangeTime since) const noexcept
{
    ChangeTime changed = 0;
    return look(fd_, changed) && changed == since;
}

} // namespace tofu
