// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// tofu-sim show: jobs, processes, where they sit, their VCQs, how full queues are, counts; a picture.
//
// Everything is read while its owners write it: figures are a moment's, and nothing is trusted
// beyond what job_files checks.
#include "job/flows.h"
#include "job/job.h"
#include "pictures/pictures.h"
#include "tni/mrq.h"
#include "tools/command.h"
#include "tools/job_files.h"
#include "tools/output.h"
#include "topology/ids.h"
#include "topology/topology.h"
#include "traces/link_loads.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace tofu::sim::tools {
namespace {

constexpr char axis_names[] = "xyz";

void print_coords(const Coords& c)
{
    std::printf("(%u,%u,%u,%u,%u,%u)", c[0], c[1], c[2], c[3], c[4], c[5]);
}

Topology topology_of(const JobHeader& header)
{
    return Topology({header.shape[0], header.shape[1], header.shape[2]}, header.wraps);
}

const char* mode_name(CqMode mode)
{
    switch (mode) {
    case CqMode::none: return "none";
    case CqMode::free_mode: return "free";
    case CqMode::exclusive: return "exclusive";
    case CqMode::session: return "session";
    }
    return "unknown";
}

/// Notices of peers written and not read yet, and how many fit; nothing of a ring that makes no sense.
void print_mrq(const SegmentView& segment, unsigned index, CqMode mode)
{
    std::byte* const region = segment.base() + vcq_region_offset(index, segment.mrq_entries());
    const auto& control = *reinterpret_cast<const MrqControl*>(region);
    // Acquire: no more than a moment's look; partners are the claim in MrqRing and its reader.
    const uint64_t head = control.head_hint.load_acquire();
    const uint64_t tail = control.tail.load_acquire();
    const uint64_t unread = tail >= head ? tail - head : 0;
    std::printf(" mrq %llu/%u", static_cast<unsigned long long>(unread), segment.mrq_capacity(mode));
    if (control.overflow.load_acquire() != 0)
        std::printf(" OVERFLOWED");
}

struct CqOwned {
    unsigned tni;
    unsigned cq;
    OwnerWord word;
};

std::vector<CqOwned> cqs_of(const JobView& job, const ProcessView& process)
{
    std::vector<CqOwned> owned;
    const NodeEntry node = read_node(job, process.entry.node);
    for (unsigned i = 0; i < cqs_per_node; i++) {
        const OwnerWord word = OwnerWord::decode(node.cqs[i].word.raw);
        if (word.taken && word.process == process.slot && word.incarnation == (process.entry.incarnation.raw & 0xffff))
            owned.push_back({i / cqs_per_tni, i % cqs_per_tni, word});
    }
    return owned;
}

unsigned gates_of(const JobView& job, const ProcessView& process)
{
    unsigned gates = 0;
    const NodeEntry node = read_node(job, process.entry.node);
    for (const GateWord& gate : node.gates) {
        const OwnerWord word = OwnerWord::decode(gate.word.raw);
        gates +=
            word.taken && word.process == process.slot && word.incarnation == (process.entry.incarnation.raw & 0xffff)
                ? 1
                : 0;
    }
    return gates;
}

void show_vcqs(const JobView& job, const ProcessView& process, const SegmentView& segment)
{
    const Coords coords = topology_of(*job.header).coords_of(process.entry.node);
    for (const CqOwned& cq : cqs_of(job, process)) {
        for (unsigned component = 0; component < vcqs_per_cq; component++) {
            if ((cq.word.components >> component & 1) == 0)
                continue;
            VcqAddress address;
            address.coords = coords;
            address.path = {coords[3], coords[4], coords[5]};
            address.tni = static_cast<uint8_t>(cq.tni);
            address.cq = static_cast<uint8_t>(cq.cq);
            address.component = static_cast<uint8_t>(component);
            std::printf("    vcq 0x%016llx tni %u cq %u component %u %s",
                        static_cast<unsigned long long>(encode_vcq_id(address)), cq.tni, cq.cq, component,
                        mode_name(cq.word.mode));
            if (segment.base() != nullptr)
                print_mrq(segment, vcq_index(cq.tni, cq.cq, component), cq.word.mode);
            std::printf("\n");
        }
    }
}

void show_counters(const SegmentView& segment)
{
    for (unsigned tni = 0; tni < tnis_per_node; tni++) {
        const FlowCounters sum = sum_of_tni(segment.base(), tni);
        if (sum.operations != 0) {
            std::printf("    tni %u: %llu operations, %llu bytes\n", tni,
                        static_cast<unsigned long long>(sum.operations),
                        static_cast<unsigned long long>(sum.bytes_out + sum.bytes_back));
        }
    }
}

void show_links(const LinkLoads& loads, const Topology& topology)
{
    for (const auto& [place, load] : loads.by_link()) {
        std::printf("  link ");
        print_coords(topology.coords_of(place.first));
        std::printf(" %s: %llu operations, %llu bytes", port_name(place.second),
                    static_cast<unsigned long long>(load.operations), static_cast<unsigned long long>(load.bytes));
        if (load.packets != 0)
            std::printf(", %llu barrier packets", static_cast<unsigned long long>(load.packets));
        std::printf("\n");
    }
}

void show_process(const JobView& job, const ProcessView& process, bool vcqs, LinkLoads& loads)
{
    const ProcessSlot& entry = process.entry;
    unsigned num_vcqs = 0;
    for (const CqOwned& cq : cqs_of(job, process))
        num_vcqs += static_cast<unsigned>(__builtin_popcount(cq.word.components));
    std::printf("  rank %u pid %d %.*s node %u ", entry.rank, entry.pid,
                static_cast<int>(strnlen(entry.name, sizeof entry.name)), entry.name, entry.node);
    if (entry.node < job.header->num_nodes)
        print_coords(topology_of(*job.header).coords_of(entry.node));
    std::printf(" %u vcqs %u gates%s\n", num_vcqs, gates_of(job, process), process.running ? "" : " DEAD");
    if (!process.running)
        return;
    SegmentView segment;
    if (segment.open(process)) {
        show_counters(segment);
        loads.add(segment_flows(segment.base()), process.entry.node);
    }
    if (vcqs)
        show_vcqs(job, process, segment);
}

void show_job(const JobView& job, bool vcqs)
{
    if (!job.header) {
        std::printf("%s: no readable file\n", job.name.c_str());
        return;
    }
    const JobHeader& header = *job.header;
    std::printf("%s: shape %ux%ux%u (%u nodes), torus '", job.name.c_str(), header.shape[0], header.shape[1],
                header.shape[2], header.num_nodes);
    for (unsigned axis = 0; axis < 3; axis++)
        if ((header.wraps >> axis & 1) != 0)
            std::putchar(axis_names[axis]);
    std::printf("'");
    if (header.ppn != 0)
        std::printf(", %u processes a node", header.ppn);
    const auto processes = read_processes(job);
    std::printf(", %zu processes\n", processes.size());
    const Topology topology = topology_of(header);
    LinkLoads loads(topology);
    for (const ProcessView& process : processes)
        show_process(job, process, vcqs, loads);
    visit_gates(job, [&](uint32_t tni, const TniGates& gates) { loads.add(gates, tni); });
    show_links(loads, topology);
}

/// The traffic of its links and the placement of its processes, as a picture or port by port.
int show_network(const JobView& job, bool counters, const char* svg)
{
    if (!job.header) {
        std::fprintf(stderr, "tofu-sim: job '%s' has no readable file: see tofu-sim clean\n", job.name.c_str());
        return exit_failure;
    }
    const Topology topology = topology_of(*job.header);
    NetworkView view{.job = job.name,
                     .topology = topology,
                     .loads = LinkLoads(topology),
                     .ranks = std::vector<std::vector<std::string>>(topology.num_nodes())};
    for (const ProcessView& process : read_processes(job)) {
        SegmentView segment;
        if (process.running && process.entry.node < topology.num_nodes()) {
            view.ranks[process.entry.node].push_back(std::to_string(process.entry.rank));
            if (segment.open(process))
                view.loads.add(segment_flows(segment.base()), process.entry.node);
        }
    }
    visit_gates(job, [&](uint32_t tni, const TniGates& gates) { view.loads.add(gates, tni); });
    if (job.header->clock != 0) {
        view.loads.know_credit();
        visit_calendars(job, [&](uint32_t node, const NodeCalendars& at) { view.loads.add(at, node); });
    }
    if (counters) {
        std::printf("# %s\n", job.name.c_str());
        print_counters(topology, view.loads, false, stdout);
    }
    if (svg == nullptr)
        return 0;
    const std::string picture = draw_network(view);
    const std::string problem = write_file(svg, [&](std::FILE* to) { std::fputs(picture.c_str(), to); });
    if (!problem.empty()) {
        std::fprintf(stderr, "tofu-sim: %s\n", problem.c_str());
        return exit_failure;
    }
    return 0;
}

} // namespace

int show_command(std::span<char* const> words)
{
    bool vcqs = false, counters = false;
    const char* svg = nullptr;
    std::vector<std::string> names;
    for (size_t i = 0; i < words.size(); i++) {
        const std::string_view word = words[i];
        if (word == "--vcqs") {
            vcqs = true;
        } else if (word == "--counters") {
            counters = true;
        } else if (word.starts_with("--svg=")) {
            svg = words[i] + word.find('=') + 1;
        } else if (word == "--svg" && i + 1 < words.size()) {
            svg = words[++i];
        } else if (word == "--svg") {
            std::fputs("tofu-sim: --svg: name the file to write, or -\n", stderr);
            return exit_usage;
        } else if (word[0] == '-') {
            std::fprintf(stderr, "tofu-sim: show: unknown option %s: see tofu-sim --help\n", words[i]);
            return exit_usage;
        } else {
            names.emplace_back(word);
        }
    }
    const File base = open_base();
    const bool all = names.empty();
    const auto existing = list_jobs(base);
    if (all) {
        names = existing;
        if (names.empty())
            std::printf("no jobs in %s\n", base_path().c_str());
    }
    if (svg != nullptr && names.size() != 1) {
        std::fprintf(stderr, "tofu-sim: --svg shows one job, but there are %zu: name one\n", names.size());
        return exit_usage;
    }
    int status = 0;
    for (const std::string& name : names) {
        const bool exists = std::find(existing.begin(), existing.end(), name) != existing.end();
        const auto job = exists ? open_job(base, name) : std::nullopt;
        if (job && (counters || svg != nullptr)) {
            status = std::max(status, show_network(*job, counters, svg));
        } else if (job) {
            show_job(*job, vcqs);
        } else if (!all) {
            std::fprintf(stderr, "tofu-sim: no job '%s' in %s\n", name.c_str(), base_path().c_str());
            status = exit_failure;
        }
    }
    return status;
}

} // namespace tofu::sim::tools
