// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table of bars. To add one: a row.
#include "bars.h"

namespace tofu::bench {
namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr bool at_most = true, at_least = false;
constexpr const char* put = "write, seen by the polling target";
constexpr const char* bandwidth = "write bandwidth";
constexpr const char* add = "fetch add";
constexpr const char* add_polled = "fetch add, target polls the word";
constexpr const char* swap = "compare and swap";
constexpr const char* min = "fetch min";
constexpr const char* ping_pong = "tagged ping-pong";
constexpr const char* rate = "tagged send rate, windows of 64";

// Issue 3: the simulator; 4: RMA and atomics; 5: messages.
constexpr Bar table[] = {
    // clang-format off
    {3, "8-byte put seen by the target / cache line",
     {put, 8, "utofu"}, {put, 8, "memory"}, at_most, 1.3},
    {3, "ARMW round trip / cache line, one way",
     {add, 8, "utofu"}, {put, 8, "memory"}, at_most, 2},
    {3, "ARMW round trip, word polled by its target / cache line",
     {add_polled, 8, "utofu"}, {put, 8, "memory"}, at_most, 2},
    {3, "1 MiB put / memcpy between mappings",
     {bandwidth, MiB, "utofu"}, {bandwidth, MiB, "memory"}, at_least, 0.8},
    {3, "1 MiB put to memory seen once / process_vm_writev",
     {"write to memory seen once", MiB, "utofu"},
     {"write to memory seen once", MiB, "process_vm"}, at_least, 1},
    {3, "8-byte puts with TCQ notice",
     {"write rate, a completion each", 8, "utofu"}, {}, at_least, 5, "M/s"},
    {3, "barrier gates, 48 processes: most / least processor time",
     {"processor time, most / least", 0, "gates, butterfly", 1, 48}, {}, at_most, 3},
    {3, "utofu_reg_mem of memory registered before",
     {"register", 65536, "utofu"}, {}, at_most, 1000, "ns"},
    {4, "8-byte inject write / raw put",
     {put, 8, "tofu"}, {put, 8, "utofu"}, at_most, 1.2},
    {4, "8-byte inject write rate, raw / ours",
     {"inject write rate", 8, "utofu"}, {"inject write rate", 8, "tofu"}, at_most, 1.2},
    {4, "fetch add / raw ARMW, word in use by its target",
     {add_polled, 8, "tofu"}, {add_polled, 8, "utofu"}, at_most, 1.2},
    {4, "fetch add / raw ARMW, word without other users",
     {add, 8, "tofu"}, {add, 8, "utofu"}, at_most, 1.2},
    {4, "fetch add, shm / ours",
     {add, 8, "shm"}, {add, 8, "tofu"}, at_least, 8},
    {4, "compare and swap, shm / ours",
     {swap, 8, "shm"}, {swap, 8, "tofu"}, at_least, 8},
    {4, "fetch min, alone / fetch add",
     {min, 8, "tofu"}, {add, 8, "tofu"}, at_most, 2.5},
    {4, "4 on one word: loop of CSWAPs / ARMW",
     {"fetch min, all on one word", 8, "tofu"},
     {"fetch add, all on one word", 8, "tofu"}, at_least, 1.0 / 3},
    {4, "atomics with count 512 / 512 calls",
     {"elements added, 512 a call", 8, "tofu"},
     {"elements added, 1 a call", 8, "tofu"}, at_least, 5},
    {4, "doubles, by CSWAPs, with count 512 / 512 calls",
     {"doubles added, 512 a call", 8, "tofu"},
     {"doubles added, 1 a call", 8, "tofu"}, at_least, 5},
    {4, "instructions of fi_inject_write in the provider",
     {"fi_inject_write, 8 B", 0, "provider"}, {}, at_most, 120},
    {5, "8-byte tagged ping-pong / shm",
     {ping_pong, 8, "tofu"}, {ping_pong, 8, "shm"}, at_most, 0.5},
    {5, "8-byte tagged ping-pong / cache line",
     {ping_pong, 8, "tofu"}, {ping_pong, 8, "memory"}, at_most, 2},
    {5, "rate of 64-byte sends / shm",
     {rate, 64, "tofu"}, {rate, 64, "shm"}, at_least, 3},
    {5, "1 MiB tagged bandwidth / shm",
     {"tagged bandwidth", MiB, "tofu"}, {"tagged bandwidth", MiB, "shm"}, at_least, 1.2},
    {5, "NetPIPE latency / Open MPI's shared memory",
     {"NetPIPE latency", 1, "tofu"}, {"NetPIPE latency", 1, "vader"}, at_most, 1},
    {5, "NetPIPE bandwidth, 1 MiB / Open MPI's shared memory",
     {"NetPIPE bandwidth", MiB, "tofu"}, {"NetPIPE bandwidth", MiB, "vader"}, at_least, 1},
    {5, "match behind 10,000 receives / alone",
     {"tagged ping-pong, 10,000 receives posted", 8, "tofu"}, {ping_pong, 8, "tofu"}, at_most, 1.5},
    {5, "AV insertion of 158,976 addresses",
     {"AV insertion, per address", 0, "tofu", 158976e-6}, {}, at_most, 100, "ms"},
    // clang-format on
};

} // namespace

std::vector<BarResult> judge_bars(const std::vector<Series>& all)
{
    std::vector<BarResult> results;
    for (const Bar& bar : table) {
        BarResult result{&bar, {}, false};
        const Series* over = find(all, bar.over.name, bar.over.bytes, bar.over.transport, bar.over.processes);
        const Series* under =
            bar.under.name ? find(all, bar.under.name, bar.under.bytes, bar.under.transport, bar.under.processes, over)
                           : nullptr;
        if (over != nullptr && (under != nullptr || bar.under.name == nullptr)) {
            result.figure = under ? ratio_of(over->samples, under->samples) : figure_of(over->samples);
            if (result.figure.valid()) {
                double factor = bar.over.factor / bar.under.factor;
                result.figure = {result.figure.median * factor, result.figure.low * factor,
                                 result.figure.high * factor};
                result.met = bar.at_most ? result.figure.median <= bar.limit : result.figure.median >= bar.limit;
            }
        }
        results.push_back(result);
    }
    return results;
}

} // namespace tofu::bench
