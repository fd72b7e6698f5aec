// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A run in figures. See summary.h.
#include "traces/summary.h"

#include "traces/exports.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <tuple>

namespace tofu::sim::tools {

using namespace trace;

namespace {

constexpr uint32_t most_in_a_row = 256; ///< atomics of one post

Transit transit_of(const Transfer& transfer) noexcept
{
    Transit transit{.length = transfer.bytes, .from_tni = transfer.from_tni, .to_tni = transfer.to_tni};
    switch (transfer.op) {
    case Op::put: transit.kind = Transit::Kind::put; break;
    case Op::put_piggyback: transit.kind = Transit::Kind::piggyback; break;
    case Op::get: transit.kind = Transit::Kind::get; break;
    default: transit.kind = Transit::Kind::armw; break;
    }
    return transit;
}

} // namespace

void add_credit(const Run& run, LinkLoads& loads, uint32_t buffer)
{
    const uint32_t nodes = run.topology.num_nodes();
    // Zeros, which take no memory until something passes there.
    const std::unique_ptr<std::byte, void (*)(void*)> area(
        static_cast<std::byte*>(std::calloc(nodes, clock_node_bytes)), std::free);
    if (run.clock == ClockKind::real || area == nullptr)
        return;
    struct Seen {
        std::vector<bool> nodes;
    } seen{std::vector<bool>(nodes)};
    const auto touch = [](void* context, uint32_t node) noexcept {
        static_cast<Seen*>(context)->nodes[node] = true;
        return true;
    };
    Network network(run.topology, area.get(), touch, &seen, buffer);
    std::vector<const Transfer*> order;
    for (const Transfer& transfer : run.transfers)
        if (transfer.arrived != 0 && transfer.from_node < nodes && transfer.to_node < nodes &&
            transfer.from_tni < tnis_per_node && transfer.to_tni < tnis_per_node)
            order.push_back(&transfer);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return a->returned < b->returned; });
    for (const Transfer* transfer : order) {
        const Way way = network.way(transfer->from_node, transfer->path, transfer->to_node);
        for (uint32_t i = 0; i < std::min(transfer->count, most_in_a_row); i++)
            (void)network.carry(way, transit_of(*transfer), transfer->returned * 1000);
    }
    for (uint32_t node = 0; node < nodes; node++)
        if (seen.nodes[node])
            loads.add(*network.calendars(node), node);
    loads.know_credit();
}

LinkLoads loads_of(const Run& run)
{
    std::map<std::tuple<uint32_t, uint32_t, uint8_t>, Flow> flows;
    for (const Transfer& transfer : run.transfers) {
        if (transfer.to_node != no_index && transfer.arrived != 0) {
            Flow& sum = flows[{transfer.from_node, transfer.to_node, transfer.path}];
            const bool get = transfer.op == Op::get, atomic = transfer.op >= Op::armw4 && transfer.op <= Op::cswap8;
            const uint64_t packets = std::max<uint64_t>(packets_of(transfer.bytes), 1);
            sum.operations += transfer.count;
            (get ? sum.bytes_back : sum.bytes_out) += transfer.bytes;
            sum.packets_out += get || atomic ? transfer.count : packets;
            sum.packets_back += get ? packets : atomic ? transfer.count : 0; // the answer
        }
    }
    LinkLoads loads(run.topology);
    for (const auto& [way, sum] : flows) {
        const auto& [from, to, path] = way;
        loads.add(from, to, path, sum);
    }
    return loads;
}

std::vector<HotLink> hottest_links(const LinkLoads& loads, size_t most)
{
    std::vector<HotLink> links;
    for (const auto& [place, load] : loads.by_link())
        if (load.bytes + load.operations + load.packets != 0)
            links.push_back({place, load});
    const auto hotter = [](const HotLink& a, const HotLink& b) {
        return std::tuple(a.load.bytes, a.load.operations, a.load.packets) >
               std::tuple(b.load.bytes, b.load.operations, b.load.packets);
    };
    std::stable_sort(links.begin(), links.end(), hotter);
    links.resize(std::min(links.size(), most));
    return links;
}

void print_counters(const Topology& topology, const LinkLoads& loads, bool exact, std::FILE* to)
{
    struct Port {
        LinkLoad sent;
        LinkLoad received;
    };
    std::map<LinkLoads::Place, Port> ports;
    for (const auto& [place, load] : loads.by_link()) {
        const Link there = opposite(topology, {place.first, place.second});
        ports[place].sent = load;
        ports[{there.node, there.port}].received = load;
    }
    std::fprintf(to,
                 "# Packets of up to %u bytes of payload%s, including those of barriers; bytes / 16 without headers.\n"
                 "# Cycles of 425 MHz without credit, of virtual channels 0 to 3: %s.\n"
                 "# node (x,y,z,a,b,c)  port  sent: packets    bytes/16  received: packets    bytes/16  no credit\n",
                 static_cast<unsigned>(packet_bytes),
                 exact ? "" : ", a lower bound: only sums over operations are known",
                 loads.knows_credit() ? "by the virtual clock, see tofu-sim(1)"
                                      : "unknown without a virtual clock (TOFU_SIM_CLOCK)");
    const auto packets = [](const LinkLoad& load) {
        return static_cast<unsigned long long>(load.data_packets + load.packets);
    };
    const auto units = [](const LinkLoad& load) { return static_cast<unsigned long long>((load.bytes + 15) / 16); };
    for (const auto& [place, port] : ports) {
        std::fprintf(to, "  %-19s  %-4s  %13llu  %10llu  %17llu  %10llu ", node_label(topology, place.first).c_str(),
                     port_name(place.second), packets(port.sent), units(port.sent), packets(port.received),
                     units(port.received));
        for (const Picoseconds without : port.sent.without_credit)
            std::fprintf(to, " %s", loads.knows_credit() ? std::to_string(credit_cycles(without)).c_str() : "?");
        std::fputc('\n', to);
    }
}

std::string link_name(const Topology& topology, const LinkLoads::Place& place)
{
    return node_label(topology, place.first) + " " + port_name(place.second);
}

std::vector<Times> times_of(const Run& run)
{
    std::map<std::pair<uint32_t, uint32_t>, Times> by_thread;
    for (const Transfer& transfer : run.transfers)
        by_thread[{transfer.from, transfer.thread}].posting += transfer.returned - transfer.posted;
    for (const Wait& wait : run.waits)
        by_thread[{wait.process, wait.thread}].waiting += wait.ended - wait.began;
    std::vector<Times> times(run.processes.size());
    for (const auto& [place, thread] : by_thread) {
        Times& best = times[place.first];
        if (thread.posting + thread.waiting >= best.posting + best.waiting)
            best = thread;
    }
    for (size_t i = 0; i < times.size(); i++)
        times[i].total = std::max(run.processes[i].ended - run.processes[i].began, times[i].posting + times[i].waiting);
    return times;
}

std::string bytes_text(uint64_t bytes)
{
    static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = static_cast<double>(bytes);
    unsigned unit = 0;
    while (value >= 1024 && unit + 1 < std::size(units)) {
        value /= 1024;
        unit++;
    }
    char text[32];
    const bool whole = unit == 0 || value >= 100 || value == static_cast<double>(static_cast<uint64_t>(value));
    std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

std::string time_text(uint64_t ns)
{
    static constexpr const char* units[] = {"ns", "us", "ms", "s"};
    double value = static_cast<double>(ns);
    unsigned unit = 0;
    while (value >= 1000 && unit + 1 < std::size(units)) {
        value /= 1000;
        unit++;
    }
    char text[32];
    const bool whole = unit == 0 || value >= 100 || value == static_cast<double>(static_cast<uint64_t>(value));
    std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

std::string count_text(uint64_t count)
{
    const std::string digits = std::to_string(count);
    std::string text;
    for (size_t i = 0; i < digits.size(); i++) {
        if (i != 0 && (digits.size() - i) % 3 == 0)
            text += ',';
        text += digits[i];
    }
    return text;
}

void print_summary(const Run& run, std::FILE* to)
{
    uint64_t bytes = 0;
    for (const Transfer& transfer : run.transfers)
        bytes += transfer.bytes;
    const auto units = run.topology.units();
    std::fprintf(to, "job %s: %zu processes on %ux%ux%u (%u nodes), %s of %s\n", run.job.c_str(), run.processes.size(),
                 units[0], units[1], units[2], run.topology.num_nodes(), time_text(run.length).c_str(),
                 run.clock == ClockKind::real ? "real time" : ("Tofu-D's time: " + run.what_counts()).c_str());
    std::fprintf(to, "%s operations, %s\n", count_text(run.transfers.size()).c_str(), bytes_text(bytes).c_str());
    const auto times = times_of(run);
    for (uint32_t i = 0; i < times.size(); i++) {
        const double total = static_cast<double>(std::max<uint64_t>(times[i].total, 1));
        const double posting = 100 * static_cast<double>(times[i].posting) / total;
        const double waiting = 100 * static_cast<double>(times[i].waiting) / total;
        std::fprintf(to, "  rank %s node %s: %s, posting %.1f %%, waiting %.1f %%, the rest computing%s\n",
                     process_label(run, i).c_str(), node_label(run.topology, run.processes[i].node).c_str(),
                     time_text(times[i].total).c_str(), posting, waiting, run.processes[i].killed ? ", KILLED" : "");
    }
    for (const HotLink& link : hottest_links(loads_of(run), 10)) {
        std::fprintf(to, "  link %s: %llu operations, %llu bytes\n", link_name(run.topology, link.place).c_str(),
                     static_cast<unsigned long long>(link.load.operations),
                     static_cast<unsigned long long>(link.load.bytes));
    }
}

} // namespace tofu::sim::tools
