// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See system.h.
#include "core/system.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/containers.h"

namespace tofu {

/// The registered objects of the process.
struct ForkRegistry {
    constinit static inline std::mutex mutex;
    constinit static inline List<ForkAware, &ForkAware::next_> list;

    static void in_child() noexcept
    {
        Mutex::children.fetch_add(1, std::memory_order_relaxed);
        while (ForkAware* const one = list.first()) {
            list.remove(*one);
            one->in_child();
        }
        mutex.unlock();
    }
};

void ForkAware::register_fork() noexcept
{
    std::lock_guard guard(ForkRegistry::mutex);
    static const int registered = pthread_atfork([] { ForkRegistry::mutex.lock(); },
                                                 [] { ForkRegistry::mutex.unlock(); }, ForkRegistry::in_child);
    (void)registered; // without memory for that, a child shares what its parent has
    ForkRegistry::list.push_front(*this);
}

void ForkAware::unregister_fork() noexcept
{
    std::lock_guard guard(ForkRegistry::mutex);
    ForkRegistry::list.remove(*this);
}

void OwnDescriptor::hold(int descriptor) noexcept
{
    if (descriptor < 0)
        return;
    descriptor_ = descriptor;
    register_fork();
}

void OwnDescriptor::close() noexcept
{
    if (descriptor_ < 0)
        return;
    unregister_fork();
    ::close(std::exchange(descriptor_, -1));
}

void OwnDescriptor::in_child() noexcept
{
    ::close(std::exchange(descriptor_, -1));
}

bool may_have_size(std::uint64_t bytes) noexcept
{
    rlimit limit{};
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur;
}

bool NodeFile::open(const char* path) noexcept
{
    std::snprintf(path_, sizeof(path_), "%s", path);
    file_.hold(::open(path_, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    struct stat found {};
    if (is_open() && (fstat(descriptor(), &found) != 0 || found.st_uid != geteuid() || !S_ISREG(found.st_mode))) {
        close();
        errno = EACCES;
    }
    return is_open();
}

bool NodeFile::is_removed() const noexcept
{
    struct stat found {};
    return fstat(descriptor(), &found) != 0 || found.st_nlink == 0;
}

void NodeFile::remove() noexcept
{
    if (!is_removed())
        (void)unlink(path_);
}

bool NodeFile::lock(short type, off_t from, off_t bytes, int command) noexcept
{
    struct flock request {};
    request.l_type = type;
    request.l_whence = SEEK_SET;
    request.l_start = from;
    request.l_len = bytes;
    int ret = 0;
    do
        ret = fcntl(descriptor(), command, &request);
    while (ret != 0 && errno == EINTR);
    return ret == 0 && (command != F_OFD_GETLK || request.l_type == F_UNLCK);
}

/// Another job may have the lock. Exact mode of the simulator takes a sleep for a look at the network, and its clock
/// does not move meanwhile. So ppoll waits, and the pauses are counted. A signal would shorten one: it comes behind it.
bool NodeFile::lock_within(std::chrono::milliseconds patience, short type, off_t from, off_t bytes) noexcept
{
    using std::chrono::microseconds;
    sigset_t all;
    sigfillset(&all);
    microseconds pause{100};
    for (microseconds left = patience; !lock(type, from, bytes);) {
        const bool is_taken = errno == EAGAIN || errno == EACCES; // fcntl(2); else it is not available
        if (!is_taken || left.count() <= 0)
            return false;
        const timespec time{0, std::chrono::nanoseconds(pause).count()};
        (void)ppoll(nullptr, 0, &time, &all);
        left -= pause;
        pause = std::min(2 * pause, microseconds(1000));
    }
    return true;
}

} // namespace tofu
