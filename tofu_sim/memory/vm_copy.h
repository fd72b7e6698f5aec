// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: one copy between two address spaces through the kernel, in the order of a network interface.
// Called by: memory/peer, memory/service. Calls: process_vm_readv, process_vm_writev.
//
// The kernel copies with string instructions, whose stores other cores may see in any order. It copies one piece of the
// remote side after the other, each by an instruction of its own, and those are seen in their order: so the last line
// and the last word of the destination are pieces of their own.
#pragma once

#include "memory/copy.h"

#include <sys/uio.h>

namespace tofu::sim {

enum class Towards : bool { here, there };

// As the system call: what was copied, perhaps less than `bytes`, or -1 and errno.
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
    const iovec local{here, bytes};
    return towards == Towards::there ? ::process_vm_writev(pid, &local, 1, pieces, count, 0)
                                     : ::process_vm_readv(pid, &local, 1, pieces, count, 0);
}

} // namespace tofu::sim
