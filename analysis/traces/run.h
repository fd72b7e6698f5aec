// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The merged traces of a job's processes: transfers, and waits between processes.
#pragma once

#include "tni/descriptor.h"
#include "topology/topology.h"
#include "traces/reader.h"

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace tofu::sim::trace {

inline constexpr uint32_t no_index = std::numeric_limits<uint32_t>::max();

/// All times from here on are nanoseconds since the first process joined.
struct Process {
    uint32_t rank;
    uint32_t node;
    int32_t pid;
    std::string name;
    uint64_t began;
    uint64_t ended; ///< its last event, where it was killed
    bool killed;    ///< or runs
    uint64_t lost;
    uint64_t damaged;
    bool cut_off;
};

/// An instruction, by the process that posted it.
struct Transfer {
    uint64_t posted;
    uint64_t returned; ///< the call
    uint64_t arrived;  ///< at the target; 0: it did not, as far as the trace goes
    uint32_t from;
    uint32_t to; ///< process; no_index: none that has a trace
    uint32_t from_node;
    uint32_t to_node; ///< no_index: not in the network
    uint32_t thread;
    uint32_t bytes; ///< payload
    uint32_t count; ///< instructions: of atomics in a row
    uint16_t vcq;
    uint8_t path;
    Op op;
    bool failed;
    bool told; ///< with a notice to the target
    bool mine; ///< and one to the poster
    bool tcq;  ///< and an entry of its TCQ
    uint8_t from_tni;
    uint8_t to_tni;
    uint16_t to_vcq; ///< of the target's node
};

struct Wait {
    uint64_t began;
    uint64_t ended;
    uint32_t process;
    uint32_t thread;
    uint32_t awaited;  ///< process; no_index: unknown, or itself
    uint32_t transfer; ///< that ended it; no_index: none
    End end;
};

struct Notice {
    uint64_t time;
    uint32_t process;
    uint32_t thread;
    uint32_t peer;
    uint16_t vcq;
    uint8_t type;          ///< utofu_mrq_notice_type
    uint16_t peer_vcq = 0; ///< of the peer's node
};

/// Of the TCQ, found by a poll.
struct Entry {
    uint64_t time;
    uint32_t process;
    uint32_t thread;
    uint16_t vcq;
};

struct Gates {
    uint64_t began;
    uint64_t ended; ///< 0: it has no end in the trace
    uint32_t process;
    uint32_t thread;
    Round round;
};

/// Between two calls of a thread: what it computed, or slept, or did in other libraries. From 1 us on.
struct Computation {
    uint64_t began;
    uint64_t ended;
    uint32_t process;
    uint32_t thread;
};
inline constexpr uint64_t least_computation = 1000;

struct Run {
    std::string job;
    Topology topology;
    ClockKind clock = ClockKind::real;
    uint32_t cpu_permille = 0; ///< see FileHeader

    /// "communication alone", or also how computing counts. Of a virtual clock.
    [[nodiscard]] std::string what_counts() const;
    uint64_t length = 0;                   ///< of the run
    uint32_t expected = 0;                 ///< processes, as the launcher said; 0: unknown
    std::vector<Process> processes;        ///< by rank
    std::vector<Transfer> transfers;       ///< by `posted`
    std::vector<Wait> waits;               ///< by process, and then `began`
    std::vector<Notice> notices;           ///< by time
    std::vector<Entry> entries;            ///< by process and time
    std::vector<Gates> gates;              ///< by `began`
    std::vector<Computation> computations; ///< by process, thread and `began`

    /// Of a transfer that reached its target's process: numbers in `transfers`, by process and time of arrival.
    std::vector<std::vector<uint32_t>> arrivals;
};

/// Empty, or why these are not the traces of one job, with what to do. `warnings`: what does not keep it from being
/// read.
[[nodiscard]] std::string read_run(std::span<const std::string> paths, Run& run, std::vector<std::string>& warnings);

[[nodiscard]] const char* op_name(Op op) noexcept; ///< as in "put"
[[nodiscard]] const char* round_name(Round round) noexcept;
[[nodiscard]] const char* end_name(End end) noexcept;
[[nodiscard]] const char* notice_name(uint8_t type) noexcept;

} // namespace tofu::sim::trace
