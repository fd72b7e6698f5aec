// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The simulator's files in a process whose descriptors belong to the program: it may close all of them, or have none
// left.
#include "job/descriptors.h"

#include <atomic>
#include <cerrno>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

struct Spare {
    /// Exclusive while the descriptor is in use, shared while a file is opened without it: else one thread's open takes
    /// the number that another has made free.
    std::shared_mutex mutex;
    KeptFile file;
    std::atomic<uint64_t> device{0};
};
constinit Spare spare;

/// A file of this process alone, so that it can be recognised.
int open_spare() noexcept
{
    return ::memfd_create("tofu-sim-spare", MFD_CLOEXEC);
}

} // namespace

void KeptFile::keep(int fd) noexcept
{
    struct stat status {};
    if (fd >= 0 && ::fstat(fd, &status) == 0) {
        device_ = status.st_dev;
        inode_ = status.st_ino;
    }
    fd_ = fd;
}

bool KeptFile::is_file(int fd) const noexcept
{
    struct stat status {};
    return fd >= 0 && ::fstat(fd, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

void KeptFile::close() noexcept
{
    if (get() >= 0)
        ::close(fd_);
    fd_ = -1;
}

BriefFile::BriefFile(const char* path, int flags, int directory) noexcept
{
    int error = 0;
    {
        const std::shared_lock guard(spare.mutex);
        fd_ = ::openat(directory, path, flags | O_CLOEXEC);
        error = errno;
    }
    if (fd_ >= 0 || (error != EMFILE && error != ENFILE)) {
        errno = error;
        return;
    }
    spare.mutex.lock();
    spare_ = true;
    spare.file.close();
    // A thread of the program, which takes no lock of the simulator, may be faster: then there is none, as before.
    fd_ = ::openat(directory, path, flags | O_CLOEXEC);
}

BriefFile::~BriefFile()
{
    const int error = errno;
    if (fd_ >= 0)
        ::close(fd_);
    if (spare_) {
        spare.file.keep(open_spare()); // where it fails, the next one tries without
        spare.mutex.unlock();
    }
    errno = error;
}

bool keep_spare() noexcept
{
    const std::lock_guard guard(spare.mutex);
    if (spare.file.get() < 0)
        spare.file.keep(open_spare());
    spare.device.store(spare.file.device(), std::memory_order_relaxed); // it never changes
    return spare.file.get() >= 0;
}

uint64_t memfd_device() noexcept
{
    if (spare.device.load(std::memory_order_relaxed) == 0)
        (void)keep_spare();
    return spare.device.load(std::memory_order_relaxed);
}

void give_up_spare() noexcept
{
    const std::lock_guard guard(spare.mutex);
    spare.file.close();
}

void reset_spare_in_child() noexcept
{
    const KeptFile file = spare.file;
    new (&spare) Spare;
    spare.file = file;
    spare.device.store(file.device(), std::memory_order_relaxed);
    spare.file.close();
}

bool is_scarcity(int error) noexcept
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == EAGAIN ||
           error == ENOSPC || error == EDQUOT;
}

const char* advice_of(int error, const char* otherwise) noexcept
{
    switch (error) {
    case EMFILE:
    case ENFILE: return "raise the limit of open files (ulimit -n)";
    case ENOSPC:
    case EDQUOT:
        return "no block or no inode is left in /dev/shm (df /dev/shm; df -i /dev/shm): remove files or enlarge it";
    case EACCES:
    case EPERM:
    case EROFS: return "this user has to be able to create files in /dev/shm (mount it writable, with mode 1777)";
    case ENOMEM:
    case ENOBUFS: return "the machine or this process has too little memory (ulimit -v)";
    default: return otherwise;
    }
}

} // namespace tofu::sim
