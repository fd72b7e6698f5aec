// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One copy between two address spaces through the kernel, in the order of a network interface. Uses: process_vm_readv,
// process_vm_writev.
//
// The kernel copies with string instructions, whose stores other cores may see in any order. So the last line and the
// last word of the destination are pieces of their own. Where stores are seen in the order of the program, x86-64, one
// call copies one piece after the other; elsewhere nothing says in what order those of two pieces are seen, and each
// piece is a call with a barrier in front.
#pragma once

#include "memory/copy.h"

#include <cerrno>
#include <sys/uio.h>
#include <unistd.h>

namespace tofu::sim {

enum class Towards : bool { here, there };

#if defined(__x86_64__)
inline constexpr bool stores_in_order = true;
#else
inline constexpr bool stores_in_order = false;
#endif

/// As the system call: what was copied, perhaps less than `bytes`, or -1 and errno.
template <bool at_once = stores_in_order>
inline ssize_t vm_copy(int pid, uint64_t there, void* here, size_t bytes, Towards towards, CopyOrder order) noexcept
{
    iovec pieces[3];
    unsigned count = 0;
    uint64_t done = 0;
    const auto up_to = [&](uint64_t end) {
        if (end > done && end <= bytes) {
            pieces[count++] = {reinterpret_cast<void*>(there + done), size_t(end - done)};
            done = end;
        }
    };
    if (order == CopyOrder::last_line && bytes != 0) {
        const uint64_t destination = towards == Towards::there ? there : reinterpret_cast<uint64_t>(here);
        const uint64_t last = destination + bytes - 1;
        // Where the destination begins behind the start of that line or word, these are beyond `bytes`.
        up_to((last & ~uint64_t{order_line_bytes - 1}) - destination);
        up_to((last & ~uint64_t{7}) - destination);
    }
    up_to(bytes);
    const auto call = [&](iovec local, const iovec* remote, unsigned n) {
        return towards == Towards::there ? ::process_vm_writev(pid, &local, 1, remote, n, 0)
                                         : ::process_vm_readv(pid, &local, 1, remote, n, 0);
    };
    if constexpr (at_once)
        return call({here, bytes}, pieces, count);
    ssize_t copied = 0;
    for (unsigned i = 0; i < count; ++i) {
        // After what this thread has written and read before (guide 6.1.3.1).
        __atomic_thread_fence(__ATOMIC_ACQ_REL);
        const ssize_t part = call({static_cast<std::byte*>(here) + copied, pieces[i].iov_len}, &pieces[i], 1);
        if (part < 0)
            return copied != 0 ? copied : part;
        copied += part;
        if (size_t(part) != pieces[i].iov_len)
            break;
    }
    return copied;
}

/// Copies memory of this process by way of the kernel: where the program has unmapped or protected it, `false` and no
/// fault.
inline bool copy_self(void* here, uint64_t there, size_t bytes, Towards towards, CopyOrder order) noexcept
{
    const ssize_t done = vm_copy(::getpid(), there, here, bytes, towards, order);
    if (done == ssize_t(bytes))
        return true;
    if (done >= 0 || (errno != EPERM && errno != ENOSYS))
        return false;
    // Forbidden even on oneself (seccomp): then trust the registration.
    towards == Towards::there ? copy_bytes(reinterpret_cast<void*>(there), here, bytes, order)
                              : copy_bytes(here, reinterpret_cast<const void*>(there), bytes, order);
    return true;
}

} // namespace tofu::sim
