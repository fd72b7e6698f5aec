// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What it would gain or cost to send one transfer over several paths, a TNI each, by the virtual clock's model; and
// which links they are. The tables of docs/architecture.md, "Several TNIs". Run by hand and by tests/bench/time.sh.
//
// usage: stripes         prints the tables
#include "clock/network.h"
#include "job/layout.h"
#include "topology/ids.h"
#include "topology/route.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

using namespace tofu::sim;

namespace {

constexpr unsigned most_paths = 4;

/// A torus of 4x4x4 units without traffic.
struct Machine {
    Machine()
        : topology({4, 4, 4}, 7), calendars(topology.num_nodes() * (clock_node_bytes / sizeof(Calendar))),
          network(
              topology, reinterpret_cast<std::byte*>(calendars.data()), [](void*, uint32_t) noexcept { return true; },
              nullptr)
    {
    }
    Topology topology;
    std::vector<Calendar> calendars;
    Network network;
};

/// Paths between two nodes that have no link in common, the shortest first (guide 2.4: twelve can be chosen). All nodes
/// go about it alike, so that none of them is in the way of more others than it has to be: corners count from the own
/// one. Flows of one node begin with different ones.
std::vector<PathCoords> disjoint_paths(const Topology& topology, const Coords& from, const Coords& to, unsigned flow)
{
    struct Candidate {
        PathCoords path;
        std::vector<Link> links;
    };
    constexpr unsigned steps[][3] = {{0, 1, 0}, {1, 0, 0}, {0, 2, 0}, {0, 0, 1}, {0, 0, 0}, {1, 1, 0},
                                     {1, 2, 0}, {0, 1, 1}, {0, 2, 1}, {1, 0, 1}, {1, 1, 1}, {1, 2, 1}};
    std::vector<Candidate> all;
    for (unsigned i = 0; i < std::size(steps); i++) {
        PathCoords corner{};
        for (unsigned axis = 0; axis < 3; axis++) {
            const unsigned step = steps[i < 4 ? (i + flow) % 4 : i][axis]; // the first four are next to the own one
            corner[axis] = static_cast<uint8_t>((from[3 + axis] + step) % unit_shape[axis]);
        }
        all.push_back({corner, route(topology, from, corner, to)});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& x, const Candidate& y) { return x.links.size() < y.links.size(); });
    std::vector<PathCoords> chosen;
    std::vector<Link> used;
    for (const Candidate& candidate : all) {
        if (std::find_first_of(candidate.links.begin(), candidate.links.end(), used.begin(), used.end()) ==
            candidate.links.end()) {
            chosen.push_back(candidate.path);
            used.insert(used.end(), candidate.links.begin(), candidate.links.end());
        }
    }
    return chosen;
}

double us(Picoseconds time)
{
    return static_cast<double>(time) / 1e6;
}

/// A transfer of `length` over the first so many of `paths`, the TNIs from `tni` on, in equal parts; the end of the
/// last.
Picoseconds carry(Machine& m, uint32_t from, uint32_t to, const std::vector<PathCoords>& paths, unsigned count,
                  uint32_t length, unsigned tni, Picoseconds& now)
{
    Picoseconds last = 0;
    for (unsigned i = 0; i < count; i++) {
        now += figures::post_call;
        const auto by = static_cast<uint8_t>((tni + i) % 6);
        const Transit part{.kind = Transit::Kind::put, .length = length / count, .from_tni = by, .to_tni = by};
        last = std::max(last, m.network.carry(m.network.way(from, encode_path(paths[i]), to), part, now).arrived);
    }
    return last;
}

void print_row(const std::string& name, const double (&times)[most_paths])
{
    std::printf("| %s |", name.c_str());
    for (const double time : times)
        std::printf(" %.1f us |", time);
    std::printf("\n");
}

void print_head(const char* what)
{
    std::printf("\n| %s | 1 path | 2 | 3 | 4 |\n|---|---:|---:|---:|---:|\n", what);
}

/// One node to another, without other traffic.
void print_alone()
{
    const Coords from{1, 1, 1, 0, 1, 0};
    const struct {
        const char* name;
        Coords to;
    } rows[] = {{"the next along A", {1, 1, 1, 1, 1, 0}},
                {"the next along X", {2, 1, 1, 0, 1, 0}},
                {"8 hops away", {3, 2, 3, 1, 2, 1}}};
    print_head("1 MiB, alone, to");
    for (const auto& row : rows) {
        double times[most_paths];
        for (unsigned count = 1; count <= most_paths; count++) {
            Machine m;
            Picoseconds now = 0;
            times[count - 1] = us(carry(m, m.topology.node_of(from), m.topology.node_of(row.to),
                                        disjoint_paths(m.topology, from, row.to, 0), count, 1 << 20, 0, now));
        }
        print_row(row.name, times);
    }
    const Machine m;
    std::printf("\nLinks of the paths to the next along X:");
    for (const PathCoords& path : disjoint_paths(m.topology, from, rows[1].to, 0)) {
        std::printf("%s", path[0] == from[3] && path[1] == from[4] && path[2] == from[5] ? "" : ",");
        for (const Link& link : route(m.topology, from, path, rows[1].to))
            std::printf(" %s", port_name(link.port));
    }
    std::printf(".\n");
}

enum class Pattern { along_x, six_neighbours, random };

std::vector<Coords> targets(const Topology& topology, Pattern pattern, const Coords& from, uint64_t& seed)
{
    std::vector<Coords> all;
    const auto add = [&](unsigned axis, unsigned step) {
        Coords to = from;
        to[axis] = static_cast<uint8_t>((to[axis] + step) % topology.units()[axis]);
        all.push_back(to);
    };
    switch (pattern) {
    case Pattern::along_x: add(0, 1); break;
    case Pattern::six_neighbours:
        for (unsigned axis = 0; axis < 3; axis++) {
            add(axis, 1);
            add(axis, topology.units()[axis] - 1u);
        }
        break;
    case Pattern::random:
        do {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            all.assign(1, topology.coords_of(static_cast<uint32_t>((seed >> 33) % topology.num_nodes())));
        } while (all[0] == from);
    }
    return all;
}

/// All nodes at once, each to one other or to six, in turns.
double together(Pattern pattern, unsigned count)
{
    constexpr uint32_t length = 1 << 18;
    constexpr unsigned parts = 16;
    Machine m;
    struct Flow {
        uint32_t to;
        std::vector<PathCoords> paths;
    };
    std::vector<std::vector<Flow>> flows(m.topology.num_nodes());
    uint64_t seed = 1;
    for (uint32_t node = 0; node < flows.size(); node++) {
        const Coords from = m.topology.coords_of(node);
        for (const Coords& to : targets(m.topology, pattern, from, seed)) {
            const auto number = static_cast<unsigned>(flows[node].size());
            flows[node].push_back({m.topology.node_of(to), disjoint_paths(m.topology, from, to, number)});
        }
    }
    std::vector<Picoseconds> now(flows.size(), 0);
    Picoseconds last = 0;
    for (unsigned part = 0; part < parts; part++) {
        for (uint32_t node = 0; node < flows.size(); node++) {
            for (unsigned i = 0; i < flows[node].size(); i++) {
                const Flow& flow = flows[node][i];
                const auto many = static_cast<unsigned>(std::min<std::size_t>(count, flow.paths.size()));
                last = std::max(last, carry(m, node, flow.to, flow.paths, many, length / parts, i, now[node]));
            }
        }
    }
    return us(last);
}

void print_together()
{
    print_head("256 KiB, all 768 nodes at once, each to");
    for (const auto& [name, pattern] : {std::pair{"the next along X", Pattern::along_x},
                                        {"its six neighbours along X, Y, Z", Pattern::six_neighbours},
                                        {"another at random", Pattern::random}}) {
        double times[most_paths];
        for (unsigned count = 1; count <= most_paths; count++)
            times[count - 1] = together(pattern, count);
        print_row(name, times);
    }
}

} // namespace

int main()
{
    print_alone();
    print_together();
}
