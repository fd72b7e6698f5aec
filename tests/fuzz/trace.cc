// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fuzz target: trace files that say anything are put together, counted and drawn like others.
#include "fuzz.h"

#include "pictures/pictures.h"
#include "sim/trace/written.h"
#include "traces/exports.h"
#include "traces/run.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tofu::sim::fuzz {
namespace {

using namespace sim::trace;
using namespace tools;

FileHeader fuzzed_header(Input& input, const Topology& topology)
{
    FileHeader header = some_header(input.below(4), input.below(topology.num_nodes() + 1), topology);
    if (input.below(8) == 0) {
        header.ended.raw = input.take<uint64_t>();
        header.started = input.take<uint64_t>();
        header.lost.raw = input.take<uint16_t>();
        header.chunks.raw = input.take<uint64_t>();
    }
    if (input.below(16) == 0)
        input.fill(&header, input.below(sizeof header));
    return header;
}

Record fuzzed_record(Input& input, const Topology& topology)
{
    Record record{};
    record.time = 1000 + input.take<uint16_t>();
    record.peer = vcq_of(topology, input.below(topology.num_nodes()));
    record.duration = input.take<uint16_t>();
    record.arrival = input.take<uint8_t>();
    record.bytes = input.take<uint32_t>();
    record.vcq = static_cast<uint16_t>(input.below(4));
    record.type = Type{static_cast<uint8_t>(input.below(last_type + 2))};
    record.what = static_cast<uint8_t>(input.below(10));
    switch (input.below(12)) {
    case 0: input.fill(&record, sizeof record); break;
    case 1: record.time = input.take<uint64_t>(); break;
    case 2: record.peer = input.take<uint64_t>(); break;
    case 3: record.duration = input.take<uint32_t>(); break;
    case 4: record.arrival = input.take<uint32_t>(); break;
    default: break;
    }
    return record;
}

struct Files {
    int fds[2] = {::memfd_create("trace", MFD_CLOEXEC), ::memfd_create("trace", MFD_CLOEXEC)};
    std::FILE* nowhere = std::fopen("/dev/null", "we");
};

} // namespace

void trace(Input input)
{
    static const Files files;
    require(files.fds[0] >= 0 && files.fds[1] >= 0 && files.nowhere != nullptr, "files");
    const Topology topology({static_cast<uint8_t>(1 + input.below(2)), 1, static_cast<uint8_t>(1 + input.below(9))},
                            input.take<uint8_t>() & 7);
    std::vector<std::string> paths;
    for (const int fd : files.fds) {
        paths.push_back("/proc/self/fd/" + std::to_string(fd));
        require(::ftruncate(fd, 0) == 0, "truncate");
        std::vector<Record> records;
        for (uint32_t count = input.below(40); records.size() < count && !input.empty();)
            records.push_back(fuzzed_record(input, topology));
        require(write_trace(paths.back(), fuzzed_header(input, topology), records), "write");
        if (input.below(8) == 0)
            require(::ftruncate(fd, input.below(8000)) == 0, "cut off");
    }
    paths.resize(1 + input.below(2));
    Run run;
    std::vector<std::string> warnings;
    const std::string problem = read_run(paths, run, warnings);
    require(problem.find('\n') == std::string::npos, "a refusal is one line");
    if (!problem.empty())
        return;
    for (const Transfer& transfer : run.transfers) {
        require(transfer.from < run.processes.size(), "the poster is a process");
        require(transfer.to == no_index || transfer.to < run.processes.size(), "and so is its target");
        require(transfer.arrived == 0 || transfer.arrived >= transfer.posted, "nothing arrives before it was posted");
        require(transfer.returned <= run.length && transfer.arrived <= run.length, "the run lasts until all is over");
    }
    for (const Wait& wait : run.waits) {
        require(wait.transfer == no_index || wait.transfer < run.transfers.size(), "a wait ends by a transfer");
        require(wait.ended >= wait.began && wait.ended <= run.length, "and not before it began");
    }
    write_chrome(run, files.nowhere);
    write_goal(run, files.nowhere);
    print_summary(run, files.nowhere);
    LinkLoads loads = loads_of(run);
    add_credit(run, loads, input.below(20000));
    print_counters(run.topology, loads, true, files.nowhere);
    write_page(run, warnings, files.nowhere);
    (void)std::fflush(files.nowhere);
}

} // namespace tofu::sim::fuzz
