// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Published figures of Tofu-D beside what the virtual clock's model makes of them: the tables of docs/time-model.md.
// Run by hand and by tests/bench/time.sh.
//
// usage: time            prints the tables; status 1 if a row is further off than its bar
#include "clock/network.h"
#include "job/layout.h"
#include "replay/gates.h"
#include "replay/pattern.h"
#include "topology/ids.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

using namespace tofu::sim;
using Kind = Transit::Kind;

namespace {

enum class Origin { calibrated, predicted, compared };

constexpr double no_bar = 0;

bool all_hold = true;

void title(const char* text, double bar)
{
    std::printf("\n**%s** (", text);
    bar == no_bar ? std::printf("no bar") : std::printf("bar: %.0f %%", bar * 100);
    std::printf(")\n\n| row | figure | model | error | |\n|---|---|---|---|---|\n");
}

// A figure that is a range stands for its middle.
void row(const std::string& name, double figure, double model, const char* unit, double bar, Origin origin)
{
    const double error = model / figure - 1;
    const bool holds = bar == no_bar || std::fabs(error) <= bar;
    all_hold = all_hold && holds;
    std::printf("| %s | %.4g %s | %.4g %s | %+.1f %% | %s%s |\n", name.c_str(), figure, unit, model, unit, error * 100,
                origin == Origin::calibrated  ? "calibrated"
                : origin == Origin::predicted ? "predicted"
                                              : "compared",
                holds ? "" : ", **beyond its bar**");
}

// One network without traffic, of `units` of twelve nodes.
class Machine {
  public:
    explicit Machine(std::array<uint8_t, 3> units = {1, 1, 1})
        : topology(units, 0), calendars_(topology.num_nodes() * (clock_node_bytes / sizeof(Calendar))),
          network(
              topology, reinterpret_cast<std::byte*>(calendars_.data()), [](void*, uint32_t) noexcept { return true; },
              nullptr)
    {
    }
    [[nodiscard]] Way way(const Coords& from, const Coords& to) const
    {
        return network.way(topology.node_of(from), encode_path({to[3], to[4], to[5]}), topology.node_of(to));
    }

    Topology topology;

  private:
    std::vector<Calendar> calendars_;

  public:
    Network network;
};

double us(Picoseconds time)
{
    return static_cast<double>(time) / 1e6;
}

constexpr Coords origin{0, 0, 0, 0, 0, 0};
constexpr Coords neighbours[] = {{0, 0, 0, 1, 0, 0}, {0, 0, 0, 1, 1, 0}, {0, 0, 0, 1, 1, 1}}; // 1, 2, 3 hops away

Transit transit(Kind kind, uint32_t length, uint8_t tni = 0)
{
    return {.kind = kind, .length = length, .from_tni = tni, .to_tni = tni};
}

// ---- One operation ----

double latency(Kind kind, const Coords& to, uint32_t length = 8)
{
    Machine m;
    const Times times = m.network.carry(m.way(origin, to), transit(kind, length), figures::post_call);
    const bool answers = kind == Kind::get || kind == Kind::armw;
    return us((answers ? times.told : times.arrived) + figures::found);
}

void print_latencies()
{
    title("Latency of 8 bytes by hops", 0.03);
    const struct {
        const char* name;
        Kind kind;
        double figures[3];
    } rows[] = {{"Put, one way", Kind::put, {0.98, 1.06, 1.13}},
                {"Get, round trip", Kind::get, {1.495, 1.65, 1.80}},
                {"ARMW, round trip", Kind::armw, {1.335, 1.49, 1.63}}};
    for (const auto& r : rows) {
        for (unsigned hops = 1; hops <= 3; hops++) {
            // The constants come from the first row of each, the hop from the second row of Put and Get.
            const bool used = hops == 1 || (hops == 2 && r.kind != Kind::armw);
            row(std::string(r.name) + ", " + std::to_string(hops) + (hops == 1 ? " hop" : " hops"), r.figures[hops - 1],
                latency(r.kind, neighbours[hops - 1]), "us", 0.03, used ? Origin::calibrated : Origin::predicted);
        }
    }
    Machine m;
    const Times best = m.network.carry(m.way(origin, neighbours[0]), transit(Kind::piggyback, 8), 0);
    row("Put, the hardware alone: no call, no fetch of the descriptor", 0.49, us(best.arrived - figures::fetch), "us",
        0.03, Origin::calibrated);
}

void print_sizes()
{
    title("Put of a size, one way", 0.05);
    const struct {
        uint32_t length;
        double figure;
        Origin origin;
    } rows[] = {{2080, 1.56, Origin::calibrated}, {4160, 1.83, Origin::predicted},  {8320, 2.49, Origin::predicted},
                {16640, 3.81, Origin::predicted}, {33280, 6.75, Origin::predicted}, {66560, 11.70, Origin::calibrated}};
    for (const auto& r : rows) {
        row(std::to_string(r.length) + " B", r.figure, latency(Kind::put, neighbours[0], r.length), "us", 0.05,
            r.origin);
    }
}

// GB/s of one TNI: `many` at a time.
double bandwidth(Kind kind, uint32_t length, unsigned many)
{
    Machine m;
    const Way way = m.way(origin, neighbours[0]);
    std::vector<Picoseconds> ends;
    Picoseconds now = 0;
    constexpr unsigned count = 1000;
    for (unsigned i = 0; i < count; i++) {
        if (i >= many)
            now = std::max(now, ends[i - many]) + figures::found;
        now += figures::post_call;
        const Times times = m.network.carry(way, transit(kind, length), now);
        ends.push_back(kind == Kind::get ? times.told : times.sent);
    }
    return static_cast<double>(length) * count / static_cast<double>(std::max(now, ends.back())) * 1e3;
}

void print_bandwidths()
{
    title("Bandwidth over size, one TNI, 8 outstanding", 0.05);
    const struct {
        const char* name;
        uint32_t length;
        double figure;
        Origin origin;
    } rows[] = {{"1 KiB", 1024, 3.5, Origin::calibrated},
                {"4 KiB", 4096, 6.2, Origin::predicted},
                {"16 KiB", 16384, 6.3, Origin::predicted},
                {"1 MiB", 1 << 20, 6.3, Origin::predicted}};
    for (const auto& r : rows) {
        row(std::string("Put, ") + r.name, r.figure, bandwidth(Kind::put, r.length, 8), "GB/s", 0.05, r.origin);
        row(std::string("Get, ") + r.name, r.figure, bandwidth(Kind::get, r.length, 8), "GB/s", 0.05,
            Origin::predicted);
    }
}

// ---- Several TNIs ----

// 16,640 B to one peer in equal parts.
double striped(unsigned tnis)
{
    Machine m;
    const Way way = m.way(origin, neighbours[0]);
    Picoseconds now = 0, last = 0;
    for (unsigned tni = 0; tni < tnis; tni++) {
        now += figures::post_call;
        const Times times = m.network.carry(way, transit(Kind::put, 16640 / tnis, static_cast<uint8_t>(tni)), now);
        last = std::max({last, times.arrived, times.sent});
    }
    return us(last + figures::found);
}

// Each of twelve nodes sends 16,640 B to each of its `tnis` nearest by number, on both sides; microseconds of a round.
double all_at_once(unsigned tnis)
{
    Machine m;
    constexpr int offsets[] = {1, -1, 2, -2, 3, -3};
    std::vector<Picoseconds> now(nodes_per_unit, 0);
    Picoseconds last = 0;
    for (unsigned tni = 0; tni < tnis; tni++) {
        for (uint32_t node = 0; node < nodes_per_unit; node++) {
            const uint32_t to =
                static_cast<uint32_t>(static_cast<int>(node + nodes_per_unit) + offsets[tni]) % nodes_per_unit;
            now[node] += figures::post_call;
            const Times times = m.network.carry(m.way(m.topology.coords_of(node), m.topology.coords_of(to)),
                                                transit(Kind::put, 16640, static_cast<uint8_t>(tni)), now[node]);
            last = std::max({last, times.arrived, times.sent});
        }
    }
    return us(last + tnis * figures::found);
}

// Six TNIs of a node, each to another neighbour by a cable of its own; GB/s in total.
double injection()
{
    Machine m({3, 3, 3});
    const Coords here{1, 1, 1, 0, 1, 0};
    const Coords peers[] = {{0, 1, 1, 0, 1, 0}, {2, 1, 1, 0, 1, 0}, {1, 0, 1, 0, 1, 0},
                            {1, 2, 1, 0, 1, 0}, {1, 1, 0, 0, 1, 0}, {1, 1, 2, 0, 1, 0}};
    constexpr uint32_t length = 1 << 20;
    constexpr unsigned rounds = 16;
    Picoseconds now = 0, last = 0;
    for (unsigned round = 0; round < rounds; round++) {
        for (uint8_t tni = 0; tni < 6; tni++) {
            now += figures::post_call;
            last = std::max(last, m.network.carry(m.way(here, peers[tni]), transit(Kind::put, length, tni), now).sent);
        }
    }
    return static_cast<double>(length) * 6 * rounds / static_cast<double>(last) * 1e3;
}

void print_tnis()
{
    title("Several TNIs", 0.10);
    for (const auto& [tnis, figure] : {std::pair{1u, 3.87}, {2u, 3.88}, {3u, 3.87}, {6u, 5.42}}) {
        row("one peer, 16,640 B over " + std::to_string(tnis) + (tnis == 1 ? " TNI" : " TNIs"), figure, striped(tnis),
            "us", 0.10, tnis == 6 ? Origin::calibrated : Origin::predicted);
    }
    // What else a round of that program takes follows from its first row.
    const double rest = 12 * 16640 / 28.9e3 - all_at_once(1);
    for (const auto& [tnis, figure] : {std::pair{1u, 28.9}, {2u, 41.0}, {3u, 64.2}, {4u, 81.2}, {6u, 86.3}}) {
        row("different peers, 12 nodes, " + std::to_string(tnis) + (tnis == 1 ? " TNI" : " TNIs"), figure,
            12 * tnis * 16640 / (all_at_once(tnis) + rest) / 1e3, "GB/s", 0.10,
            tnis == 1 ? Origin::calibrated : Origin::predicted);
    }
    row("injection of a node, 6 TNIs", 38.1, injection(), "GB/s", 0.10, Origin::predicted);
}

// Two flows over one link share it: as much each.
void print_sharing()
{
    title("Two flows over one link", 0.05);
    Machine m;
    const Way first = m.way({0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 0}); // 0,0 -> 1,0 -> 1,1
    const Way second = m.way({0, 0, 0, 1, 0, 0}, {0, 0, 0, 1, 1, 0});
    Picoseconds now[2] = {0, 0}, last[2] = {0, 0};
    constexpr uint32_t length = 16384;
    constexpr unsigned count = 200;
    for (unsigned i = 0; i < count; i++) {
        for (uint8_t flow = 0; flow < 2; flow++) {
            now[flow] = std::max(now[flow] + figures::post_call, last[flow] > 8'000'000 ? last[flow] - 8'000'000 : 0);
            last[flow] =
                m.network.carry(flow == 0 ? first : second, transit(Kind::put, length, flow), now[flow]).arrived;
        }
    }
    const double alone = bandwidth(Kind::put, length, 8);
    for (unsigned flow = 0; flow < 2; flow++) {
        row(flow == 0 ? "the flow from the distant node" : "the other", alone / 2,
            static_cast<double>(length) * count / static_cast<double>(last[flow]) * 1e3, "GB/s", 0.05,
            Origin::predicted);
    }
}

// ---- Barrier gates ----

void print_gates()
{
    title("Barrier gates, 4 processes a node", 0.10);
    const struct {
        const char* processes;
        std::array<uint8_t, 3> units;
        double barrier, sum;
    } rows[] = {{"3,072", {4, 4, 4}, 4.45, 4.79},
                {"6,144", {4, 4, 8}, 4.98, 5.27},
                {"12,288", {8, 4, 8}, 6.36, 6.72},
                {"24,576", {16, 2, 16}, 8.13, 8.37},
                {"49,152", {8, 8, 16}, 8.27, 8.55}};
    for (const bool sums : {false, true}) {
        for (const auto& r : rows) {
            row(std::string(sums ? "sum of a double, " : "barrier, ") + r.processes + " processes",
                sums ? r.sum : r.barrier, us(replay::time_of_gates(Topology(r.units, 0), sums)), "us", 0.10,
                sums && &r != rows ? Origin::predicted : Origin::calibrated);
        }
    }
}

// The same beneath the vendor's MPI, whose own work is in the figures.
void print_gates_of_mpi()
{
    title("Barrier gates beneath the vendor's MPI, 4 processes a node", no_bar);
    const struct {
        const char* nodes;
        std::array<uint8_t, 3> units;
        double allreduce, broadcast, reduce;
    } rows[] = {{"384", {2, 2, 8}, 4.56, 4.4, 4.5},
                {"3,072", {8, 4, 8}, 6.29, 6.0, 8.1},
                {"27,648", {16, 12, 12}, 12.1, 10.8, 12.4}};
    for (const auto& r : rows) {
        const double time = us(replay::time_of_gates(Topology(r.units, 0), true));
        row(std::string("allreduce of 8 B, ") + r.nodes + " nodes", r.allreduce, time, "us", no_bar, Origin::compared);
        row(std::string("broadcast of up to 32 B, ") + r.nodes + " nodes", r.broadcast, time, "us", no_bar,
            Origin::compared);
        row(std::string("reduce of 8 B, ") + r.nodes + " nodes", r.reduce, time, "us", no_bar, Origin::compared);
    }
}

// ---- Collectives in software ----

struct Setting {
    replay::Grid box; // nodes
    uint32_t ppn;
};

// Microseconds of one; `algorithm` as for tofu-sim replay.
double collective(const char* pattern, const char* algorithm, uint32_t bytes, const Setting& setting)
{
    const auto units = replay::units_of(setting.box);
    const Topology topology(
        {static_cast<uint8_t>(units[0]), static_cast<uint8_t>(units[1]), static_cast<uint8_t>(units[2])}, 0);
    const replay::Placement placement(topology, setting.ppn, replay::Paths::spread,
                                      {.kind = replay::Order::Kind::box, .grid = setting.box});
    constexpr uint32_t segment = 16384;
    const auto script =
        replay::make_pattern(pattern, placement, {placement.nodes() * setting.ppn, bytes, 1, algorithm, segment});
    replay::Traffic traffic(topology, 1, nullptr, 0);
    replay::Player player(*script, traffic);
    const bool ended = player.play() == 0;
    return ended ? us(player.length()) * script->of_a_round() : 0;
}

void print_collectives()
{
    title("Collectives in software: other libraries' figures, and the model with several algorithms", no_bar);
    constexpr Setting large{{4, 6, 16}, 4}, alone{{4, 6, 16}, 1}, larger{{16, 12, 16}, 4}, twelve{{2, 3, 2}, 1};
    const struct {
        const char* name;
        double figure; // us
        const char* pattern;
        std::vector<const char*> algorithms;
        uint32_t bytes;
        Setting setting;
    } rows[] = {
        {"all-to-all of 1 B, 1,536 processes", 352, "alltoall", {"bruck", "pairwise"}, 1, large},
        {"all-to-all of 1 KiB, 1,536 processes", 3670, "alltoall", {"pairwise"}, 1024, large},
        {"all-to-all of 8 KiB, 1,536 processes", 22400, "alltoall", {"pairwise"}, 8192, large},
        {"broadcast of 4 MiB, 384 processes",
         577,
         "broadcast",
         {"binomial", "chain", "double-tree", "scatter-allgather"},
         4194304,
         alone},
        {"broadcast of 64 B, 1,536 processes", 39.6, "broadcast", {"binomial"}, 64, large},
        {"broadcast of 64 B, 12,288 processes", 55.6, "broadcast", {"binomial"}, 64, larger},
        {"allreduce of 16 B, 1,536 processes", 31.1, "allreduce", {"doubling"}, 16, large},
        {"allreduce of 16 B, 12,288 processes", 42.3, "allreduce", {"doubling"}, 16, larger},
        {"reduce of 16 B, 1,536 processes", 25.5, "reduce", {""}, 16, large},
        {"reduce of 16 B, 12,288 processes", 35.5, "reduce", {""}, 16, larger},
        {"allreduce of 16,640 B, 12 processes", 23.5, "allreduce", {"doubling", "ring"}, 16640, twelve},
        {"allreduce of 24 KB, 12 processes", 80, "allreduce", {"doubling", "ring"}, 24000, twelve},
        {"allreduce of 24 KB, 96 processes", 140, "allreduce", {"doubling", "ring"}, 24000, {{4, 6, 4}, 1}},
        {"ring of 0 B, 1,536 processes", 1.63, "ring", {""}, 0, large},
        {"ping-pong of 8 B", 1.05, "pingpong", {""}, 8, {{2, 1, 1}, 1}},
    };
    for (const auto& r : rows) {
        for (const char* const algorithm : r.algorithms) {
            const double time = collective(r.pattern, algorithm, r.bytes, r.setting);
            const std::string name = std::string(r.name) + (*algorithm != '\0' ? std::string(", ") + algorithm : "");
            row(name, r.figure, time, "us", no_bar, Origin::compared);
        }
    }
}

} // namespace

int main()
{
    print_latencies();
    print_sizes();
    print_bandwidths();
    print_tnis();
    print_sharing();
    print_gates();
    print_gates_of_mpi();
    print_collectives();
    return all_hold ? 0 : 1;
}
