// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What can be measured between processes: the list of cases.
//
// To add a case: a name in CaseId, a row in cases.cc at the same place, and in each transport that
// can do it a function and a line in its list of offers (the end of transports/fabric.cc,
// transports/utofu.cc, ...). Transports without a line show "-". A bar is a row in bars.cc.
#pragma once

#include <cstddef>
#include <span>

namespace tofu::bench {

inline constexpr std::size_t buffer_bytes = std::size_t{1} << 26; ///< registered memory of each side
inline constexpr int max_sides = 4;                               ///< processes of a transport

/// What a case's figure is; also says which direction is better.
enum class Unit { ns, mib_per_s, mega_per_s };
const char* unit_name(Unit unit);

/// In the order of the report.
enum CaseId : int {
    write_latency,
    write_completion,
    read_latency,
    write_bandwidth,
    write_bidirectional,
    write_once,
    read_bandwidth,
    inject_rate,
    write_rate,
    fetch_add,
    fetch_add_polled,
    compare_swap,
    fetch_min,
    fetch_add_contended,
    fetch_min_contended,
    atomic_vector,
    atomic_single,
    atomic_vector_loop,
    atomic_single_loop,
    tagged_latency,
    tagged_latency_used,
    tagged_bandwidth,
    message_latency,
    message_bandwidth,
    message_rate,
    message_rate_small,
    message_behind_receives,
    queue_empty,
    queue_full,
    counter_read,
    counter_write,
    counter_remote,
    registration,
    registration_again,
    registration_new,
    address_insertion,
    many_to_one,
    many_to_one_write,
    all_to_all,
    case_count
};

struct Case {
    CaseId id;
    const char* section;
    const char* name; ///< also what people type
    Unit unit;
    std::size_t first; ///< smallest size in bytes
    std::size_t last;  ///< largest; all of `sizes` between them are measured
    int sides = 2;     ///< processes that take part
};

/// The sizes of a curve.
std::span<const std::size_t> sizes();
std::span<const Case> cases();

} // namespace tofu::bench
