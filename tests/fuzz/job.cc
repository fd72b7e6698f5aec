// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fuzz target: a job file and a table of counts that say anything, read as tofu-sim show does.
#include "fuzz.h"

#include "job/flows.h"
#include "job/job.h"
#include "job/liveness.h"
#include "tools/job_files.h"
#include "traces/link_loads.h"

#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tofu::sim::fuzz {
namespace {

// A base directory with one job; gone with the process.
struct Place {
    char path[32] = "/tmp/tofu-fuzz-XXXXXX";
    tools::File base;
    int file = -1;
    int fifo = -1; // an open for reading alone waits for a writer

    Place()
    {
        require(::mkdtemp(path) != nullptr, "a directory");
        base = tools::File(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        require(::mkdirat(base.get(), "j", 0700) == 0, "a job");
        file = ::openat(base.get(), "j/job", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        require(file >= 0, "a job file");
        require(::mkfifoat(base.get(), "fifo", 0600) == 0, "a fifo");
        fifo = ::openat(base.get(), "fifo", O_PATH | O_CLOEXEC);
        (void)::unlinkat(base.get(), "fifo", 0);
    }
    ~Place()
    {
        ::close(file);
        ::close(fifo);
        (void)::unlinkat(base.get(), "j/job", 0);
        (void)::unlinkat(base.get(), "j", AT_REMOVEDIR);
        (void)::rmdir(path);
    }
};

void write_at(int file, size_t offset, const void* data, size_t size)
{
    require(::pwrite(file, data, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size), "write");
}

JobHeader some_job_header(Input& input)
{
    JobHeader header{};
    header.magic = job_magic;
    header.version = layout_version;
    for (uint8_t& units : header.shape)
        units = input.below(8) != 0 ? static_cast<uint8_t>(1 + input.below(3)) : input.take<uint8_t>();
    header.wraps = input.take<uint8_t>();
    header.ppn = input.take<uint16_t>();
    header.num_nodes = input.below(8) != 0 ? 12u * header.shape[0] * header.shape[1] * header.shape[2]
                                           : static_cast<uint32_t>(input.number(12));
    header.file_bytes = input.below(16) != 0 ? job_file_bytes(header.num_nodes) : input.take<uint64_t>();
    return header;
}

ProcessSlot some_process(Input& input, int fifo)
{
    ProcessSlot slot;
    input.fill(&slot, sizeof slot);
    slot.used.raw = 1;
    if (input.below(2) != 0) { // this process, and any of its descriptors
        slot.pid = ::getpid();
        slot.start_time = process_start_time(slot.pid);
        slot.segment_fd = input.below(4) == 0 ? fifo : static_cast<int>(input.below(16));
    } else {
        slot.pid = -slot.pid; // a process that does not live
    }
    return slot;
}

} // namespace

void job(Input input)
{
    static Place place;
    const JobHeader header = some_job_header(input);
    require(::ftruncate(place.file, 0) == 0, "truncate");
    const uint64_t bytes = header.file_bytes < (uint64_t{1} << 40) ? header.file_bytes : 4096;
    require(::ftruncate(place.file, static_cast<off_t>(bytes)) == 0, "size");
    write_at(place.file, 0, &header, sizeof header);
    for (uint32_t i = input.below(3); i != 0; i--) {
        const ProcessSlot slot = some_process(input, place.fifo);
        write_at(place.file, job_slots_offset + input.below(max_processes) * sizeof slot, &slot, sizeof slot);
    }
    const auto view = tools::open_job(place.base, "j");
    if (!view || !view->header)
        return;
    const Topology topology({header.shape[0], header.shape[1], header.shape[2]}, header.wraps);
    require(topology.num_nodes() == view->header->num_nodes, "the nodes of a job are those of its shape");
    // Zeros that are backed where they are written.
    static auto* const table = static_cast<FlowTable*>(
        ::mmap(nullptr, sizeof(FlowTable), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    require(table != MAP_FAILED, "mmap");
    for (uint32_t i = 0; i < 4; i++) {
        table->nodes[i].raw = static_cast<uint32_t>(input.number(header.num_nodes));
        const uint32_t row = input.below(flow_rows);
        table->used[row].raw = 1;
        FlowCounters& flow = table->flows[row][i * path_ids + input.below(path_ids)];
        flow.operations = input.take<uint16_t>();
        flow.bytes_back = input.take<uint16_t>();
    }
    tools::LinkLoads loads(topology);
    static const auto gates = std::make_unique<TniGates>();
    for (uint32_t i = 0; i < 4; i++) {
        GateState& gate = gates->gates[input.below(gates_per_tni)];
        gate.version.raw = input.take<uint16_t>();
        gate.configured.raw = input.below(2);
        gate.dst[0].raw = static_cast<uint32_t>(input.number(header.num_nodes * gates_per_node));
        gate.path.raw = static_cast<uint32_t>(input.number(path_ids));
        gate.out[i % 2].head.raw = input.take<uint64_t>();
    }
    if (view->header->file_bytes < uint64_t{1} << 30) {
        const auto tni = input.below(header.num_nodes * tnis_per_node);
        write_at(place.file, job_gates_offset(header.num_nodes) + size_t{tni} * tni_gates_bytes, gates.get(),
                 sizeof *gates);
    }
    unsigned visits = 0;
    tools::visit_gates(*view, [&](uint32_t tni, const TniGates& found) {
        visits++;
        loads.add(found, tni);
    });
    require(visits <= 2, "no more than what has pages"); // a page may belong to two
    loads.add(*gates, static_cast<uint32_t>(input.number(header.num_nodes * tnis_per_node)));
    for (const tools::ProcessView& process : tools::read_processes(*view)) {
        const NodeEntry node = tools::read_node(*view, process.entry.node);
        (void)OwnerWord::decode(node.cqs[0].word.raw);
        tools::SegmentView segment;
        require(!segment.open(process), "no descriptor of ours is a segment");
        loads.add(*table, process.entry.node);
    }
    for (const auto& [link, load] : loads.by_link())
        require(link.first < topology.num_nodes(), "a link leaves a node that exists");
}

} // namespace tofu::sim::fuzz
