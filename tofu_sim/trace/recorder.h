// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Writes what this process does into its trace (TOFU_SIM_TRACE).
//
// Any thread at any time. A record is four stores into a mapped file; each 2047 of them one system call. What does not
// fit any more is counted.
#pragma once

#include "trace/format.h"

namespace tofu::sim::trace {

struct Owner {
    const char* pattern;
    uint64_t limit_bytes;
    const char* job;
    uint64_t born;
    uint32_t rank;
    uint32_t node;
    uint32_t size;
    uint32_t ppn;
    uint8_t shape[3];
    uint8_t wraps;
    uint32_t cpu_permille;
};

/// Starts recording: UTOFU_SUCCESS, or an error that was reported.
[[nodiscard]] int open(const Owner& owner) noexcept;
[[nodiscard]] bool is_open() noexcept;
/// The process leaves its job: the file says so.
void leave() noexcept;
/// In a forked child, which has no trace until it joins a job itself.
void forget_in_child() noexcept;

/// Of the clock that all processes of the job have in common.
[[nodiscard]] uint64_t now() noexcept;

/// Ends a wait, if one goes on, and adds the record; `arrival` and `relay` end none.
void add(const Record& record) noexcept;
/// A poll found nothing.
void poll_in_vain() noexcept;
/// The thread waits since then, unless it does so longer already: by a virtual clock a waiter need not have polled
/// without success.
void begin_wait(uint64_t since) noexcept;
/// A wait that is over, for bytes in memory.
void add_wait(uint64_t since, uint64_t until) noexcept;

} // namespace tofu::sim::trace
