// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: fork: a child gets its own copy of moved pages and never writes into its parent.
// Called by: the C library, around fork. Calls: memory/registry, memory/mover.
//
// Moved pages are shared mappings, so fork alone would leave parent and child writing into the same memory, where
// the program expects a copy. Guide 6.1.4.1 permits that a child cannot touch registered pages at all; ours finds
// in them what they held at fork, as long as no other thread of the parent writes meanwhile: the parent waits in
// fork until the child has copied. VCQs and registrations are the parent's; a child that calls uTofu is a new process
// of the job. Children made by vfork, posix_spawn or clone without fork handlers are for exec, and see the parent's
// own pages.
#include "memory/registry.h"

#include <algorithm>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr int fork_wait_ms = 10000;

// Written by the thread that forks, under the registry lock.
struct ForkState {
    SharedWord<uint64_t> impl{0}; // ProcessMemory::Impl*, 0: none
    bool locked = false;
    std::vector<Vma> moved;
    int pipe[2] = {-1, -1};
} state;

ProcessMemory::Impl* current() noexcept
{
    return reinterpret_cast<ProcessMemory::Impl*>(state.impl.load_acquire());
}

void* remap(const Vma& vma, int flags, int fd) noexcept
{
    return reinterpret_cast<void*>(::syscall(SYS_mmap, vma.start, vma.end - vma.start, PROT_READ | PROT_WRITE,
                                             flags, fd, vma.file_offset));
}

// Parent and child run on the same stack until the child's handler has copied it, so this one cannot wait: a
// private mapping of the same file shows the same bytes at once, and is copied by the kernel when written.
void release_own_stack(ProcessMemory::Impl& impl)
{
    uint64_t start = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
    uint64_t end = start + 1;
    pthread_attr_t attributes;
    void* stack = nullptr;
    size_t bytes = 0;
    if (::getpid() != ::gettid() && ::pthread_getattr_np(::pthread_self(), &attributes) == 0) {
        if (::pthread_attr_getstack(&attributes, &stack, &bytes) == 0 &&
            start - reinterpret_cast<uint64_t>(stack) < bytes) {
            start = reinterpret_cast<uint64_t>(stack);
            end = start + bytes;
        }
        ::pthread_attr_destroy(&attributes);
    }
    Vma vma;
    bool any = false;
    for (uint64_t at = start; at < end && impl.vmas.find(at, &vma) && vma.start < end; at = vma.end)
        if (impl.arena.is_mapped_by(vma)) {
            (void)remap(vma, MAP_PRIVATE | MAP_FIXED, impl.arena.fd());
            any = true;
        }
    if (any)
        impl.republish(start, vma.end);
}

void before_fork() noexcept
{
    ProcessMemory::Impl* impl = current();
    if (impl == nullptr)
        return;
    impl->mutex.lock(); // no move is under way, and the child gets a lock that it can give back
    state.locked = true;
    state.moved.clear();
    if (impl->arena.empty())
        return;
    release_own_stack(*impl);
    Vma vma;
    for (uint64_t at = 0; impl->vmas.find(at, &vma); at = vma.end)
        if (impl->arena.is_mapped_by(vma))
            state.moved.push_back(vma);
    if (!state.moved.empty() && ::pipe2(state.pipe, O_CLOEXEC) != 0)
        state.pipe[0] = state.pipe[1] = -1; // then the parent does not wait
}

void after_in_parent() noexcept
{
    if (!state.locked)
        return;
    if (state.pipe[0] >= 0) {
        ::close(state.pipe[1]);
        pollfd end{state.pipe[0], POLLIN, 0};
        (void)::poll(&end, 1, fork_wait_ms); // the end of file: the child has copied, or died
        ::close(state.pipe[0]);
        state.pipe[0] = state.pipe[1] = -1;
    }
    state.locked = false;
    current()->mutex.unlock();
}

// Only data pages of the file are read: holes stay holes, in the child too.
bool copy_out(int fd, const Vma& vma, std::byte* to) noexcept
{
    const uint64_t end = vma.file_offset + (vma.end - vma.start);
    off_t at = ::lseek(fd, off_t(vma.file_offset), SEEK_DATA);
    while (at >= 0 && uint64_t(at) < end) {
        off_t stop = ::lseek(fd, at, SEEK_HOLE);
        stop = stop < 0 ? off_t(end) : std::min(stop, off_t(end));
        while (at < stop) {
            const long got = ::syscall(SYS_pread64, fd, to + (uint64_t(at) - vma.file_offset), size_t(stop - at), at);
            if (got <= 0)
                return false;
            at += got;
        }
        at = ::lseek(fd, at, SEEK_DATA);
    }
    return true;
}

// System calls only: other threads of the parent may have held any lock.
void after_in_child() noexcept
{
    if (!state.locked)
        return;
    ProcessMemory::Impl* impl = current();
    state.impl.store_release(0);
    for (const Vma& vma : state.moved) {
        const size_t bytes = vma.end - vma.start;
        void* copy = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (copy == MAP_FAILED || !copy_out(impl->arena.fd(), vma, static_cast<std::byte*>(copy)) ||
            ::syscall(SYS_mremap, copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, vma.start) == -1)
            (void)remap(vma, MAP_PRIVATE | MAP_FIXED, impl->arena.fd()); // no memory: at least no write goes back
    }
    impl->mover.close(); // it would act on the parent
    if (state.pipe[0] >= 0) {
        ::close(state.pipe[0]);
        ::close(state.pipe[1]); // the parent goes on
        state.pipe[0] = state.pipe[1] = -1;
    }
    state.locked = false;
    impl->mutex.unlock();
}

} // namespace

void ProcessMemory::install_fork_handlers() noexcept
{
    static const int installed = ::pthread_atfork(before_fork, after_in_parent, after_in_child);
    (void)installed;
}

void set_forkable(ProcessMemory::Impl* impl) noexcept
{
    state.impl.store_release(reinterpret_cast<uint64_t>(impl));
}

} // namespace tofu::sim
