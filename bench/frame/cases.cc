// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table of cases. See case.h for how to add one.
#include "case.h"

namespace tofu::bench {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;
constexpr std::size_t curve[] = {1,        8,        64,        256,     1 * KiB, 4 * KiB,
                                 16 * KiB, 64 * KiB, 256 * KiB, 1 * MiB, 4 * MiB, 16 * MiB};

constexpr const char* rma = "RMA";
constexpr const char* atomics = "Atomics";
constexpr const char* messages = "Messages";
constexpr const char* queues = "Queues and counters";
constexpr const char* objects = "Memory and addresses";
constexpr const char* many = "Several processes";

constexpr Case table[] = {
    {write_latency, rma, "write, seen by the polling target", Unit::ns, 1, 16 * MiB},
    {write_completion, rma, "write until its completion", Unit::ns, 8, 8},
    {read_latency, rma, "read", Unit::ns, 1, 16 * MiB},
    {write_bandwidth, rma, "write bandwidth", Unit::mib_per_s, 64, 16 * MiB},
    {write_bidirectional, rma, "write bandwidth, both ways", Unit::mib_per_s, 4 * KiB, 4 * MiB},
    {write_once, rma, "write to memory seen once", Unit::mib_per_s, 64 * KiB, 1 * MiB},
    {read_bandwidth, rma, "read bandwidth", Unit::mib_per_s, 64, 16 * MiB},
    {inject_rate, rma, "inject write rate", Unit::mega_per_s, 8, 8},
    {write_rate, rma, "write rate, a completion each", Unit::mega_per_s, 8, 8},
    {fetch_add, atomics, "fetch add", Unit::ns, 8, 8},
    {fetch_add_polled, atomics, "fetch add, target polls the word", Unit::ns, 8, 8},
    {compare_swap, atomics, "compare and swap", Unit::ns, 8, 8},
    {fetch_min, atomics, "fetch min", Unit::ns, 8, 8},
    {fetch_add_contended, atomics, "fetch add, all on one word", Unit::mega_per_s, 8, 8, 4},
    {fetch_min_contended, atomics, "fetch min, all on one word", Unit::mega_per_s, 8, 8, 4},
    {atomic_vector, atomics, "elements added, 512 a call", Unit::mega_per_s, 8, 8},
    {atomic_single, atomics, "elements added, 1 a call", Unit::mega_per_s, 8, 8},
    {atomic_vector_loop, atomics, "doubles added, 512 a call", Unit::mega_per_s, 8, 8},
    {atomic_single_loop, atomics, "doubles added, 1 a call", Unit::mega_per_s, 8, 8},
    {tagged_latency, messages, "tagged ping-pong", Unit::ns, 1, 16 * MiB},
    {tagged_latency_used, messages, "tagged ping-pong, bytes written and read", Unit::ns, 64, 1 * MiB},
    {tagged_bandwidth, messages, "tagged bandwidth", Unit::mib_per_s, 64, 16 * MiB},
    {message_latency, messages, "plain ping-pong", Unit::ns, 8, 4 * KiB},
    {message_bandwidth, messages, "plain bandwidth", Unit::mib_per_s, 4 * KiB, 1 * MiB},
    {message_rate, messages, "tagged send rate, windows of 64", Unit::mega_per_s, 64, 64},
    {message_rate_small, messages, "tagged inject rate, windows of 64", Unit::mega_per_s, 8, 8},
    {message_behind_receives, messages, "tagged ping-pong, 10,000 receives posted", Unit::ns, 8, 8},
    {queue_empty, queues, "CQ read, empty", Unit::ns, 0, 0},
    {queue_full, queues, "CQ read, full, per entry", Unit::ns, 0, 0},
    {counter_read, queues, "counter read", Unit::ns, 0, 0},
    {counter_write, queues, "write until counted", Unit::ns, 8, 8},
    {counter_remote, queues, "write, seen by the target's counter", Unit::ns, 8, 8},
    {registration, objects, "register and deregister", Unit::ns, 4 * KiB, 16 * MiB},
    {registration_again, objects, "register", Unit::ns, 64 * KiB, 64 * KiB},
    {registration_new, objects, "map, register, deregister, unmap", Unit::ns, 64 * KiB, 64 * KiB},
    {address_insertion, objects, "AV insertion, per address", Unit::ns, 0, 0},
    {many_to_one, many, "many to one, tagged", Unit::mega_per_s, 8, 16 * KiB, 4},
    {many_to_one_write, many, "many to one, write", Unit::mega_per_s, 8, 16 * KiB, 4},
    {all_to_all, many, "all to all, tagged, a round", Unit::ns, 8, 64 * KiB, 4},
};

constexpr bool ordered()
{
    for (int i = 0; i < case_count; ++i)
        if (table[i].id != i)
            return false;
    return sizeof(table) / sizeof(table[0]) == case_count;
}
static_assert(ordered(), "the table has the order of CaseId");

} // namespace

const char* unit_name(Unit unit)
{
    switch (unit) {
    case Unit::ns: return "ns";
    case Unit::mib_per_s: return "MiB/s";
    case Unit::mega_per_s: return "M/s";
    }
    return "";
}

std::span<const std::size_t> sizes()
{
    return curve;
}

std::span<const Case> cases()
{
    return table;
}

} // namespace tofu::bench
