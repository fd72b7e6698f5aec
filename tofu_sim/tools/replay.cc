// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// tofu-sim replay: recorded or made-up traffic on a network of any shape, by SimGrid.
#include "replay/report.h"

#include "clock/factor.h"
#include "job/layout.h"
#include "replay/gates.h"
#include "replay/pattern.h"
#include "replay/played.h"
#include "replay/progress.h"
#include "replay/recorded.h"
#include "tools/command.h"
#include "tools/libraries.h"
#include "traces/files.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <sys/resource.h>

namespace tofu::sim::tools {
namespace {

using namespace replay;

struct ReplayOptions {
    std::optional<std::array<uint8_t, 3>> shape;
    std::optional<uint8_t> wraps;
    std::optional<uint32_t> ppn;
    std::optional<Order> order;
    std::optional<uint32_t> processes;
    Paths paths = Paths::recorded;
    double link = 0; ///< GB/s; 0: Tofu-D's
    double cpu = 1;
    std::optional<size_t> share;
    std::string pattern;
    std::string algorithm;
    uint32_t segment = 0;
    uint32_t bytes = 8;
    uint32_t rounds = 0;
    std::vector<std::string> files;
    std::vector<std::string_view> given; ///< names of the options
};

constexpr uint32_t most_processes_of_a_node = 54; ///< as tofu-sim run has it
constexpr size_t share_of_a_trace = 5000;
constexpr uint32_t usual_segment = 16384;

int refuse(const std::string& what)
{
    std::fprintf(stderr, "tofu-sim: %s\n", what.c_str());
    return exit_usage;
}

std::string take_number(const char* text, uint64_t low, uint64_t high, auto& value, const char* expected)
{
    const auto number = parse_count(text, low, high);
    if (!number)
        return std::string(text) + ": use " + expected;
    value = static_cast<std::decay_t<decltype(value)>>(*number);
    return {};
}

std::string take_placement(ReplayOptions& o, const char* value)
{
    o.order = parse_order(value);
    if (!o.order)
        return std::string(value) + ": use order, random:SEED, snake, or box:XxYxZ such as box:4x6x16";
    const bool box = o.order->kind == Order::Kind::box;
    const std::string problem = box ? check_grid(o.order->grid) : std::string();
    return problem.empty() ? problem : std::string(value) + ": " + problem;
}

std::string take_option(ReplayOptions& o, std::string_view name, const char* value)
{
    uint32_t number = 0;
    std::string problem;
    if (name == "--shape") {
        o.shape = parse_shape(value);
        return o.shape ? std::string()
                       : std::string(value) + ": use units along X, Y and Z such as 4x6x2; 24x23x24 has 158,976 nodes";
    }
    if (name == "--torus") {
        o.wraps = std::strcmp(value, "none") == 0 ? 0 : parse_torus(value);
        return o.wraps ? std::string() : std::string(value) + ": use axes out of x, y, z, or none";
    }
    if (name == "--ppn") {
        problem = take_number(value, 1, most_processes_of_a_node, number, "processes of a node, 1 to 54");
        o.ppn = number;
    } else if (name == "-n" || name == "--np") {
        problem = take_number(value, 2, uint64_t{max_nodes} * most_processes_of_a_node, number, "processes, 2 or more");
        o.processes = number;
    } else if (name == "--bytes") {
        problem = take_number(value, 0, max_transfer, o.bytes, "bytes of a message, 0 to 16777215");
    } else if (name == "--rounds") {
        problem = take_number(value, 1, 1'000'000, o.rounds, "rounds, 1 to 1000000");
    } else if (name == "--share") {
        problem = take_number(value, 0, 10'000'000, number,
                              "maximal number of competing messages that SimGrid computes at a time");
        o.share = number;
    } else if (name == "--placement") {
        problem = take_placement(o, value);
    } else if (name == "--algorithm") {
        o.algorithm = value;
    } else if (name == "--segment") {
        problem = take_number(value, 1, max_transfer, o.segment, "bytes of a segment, 1 to 16777215");
    } else if (name == "--paths") {
        const auto paths = parse_paths(value);
        o.paths = paths.value_or(o.paths);
        problem = paths ? "" : std::string(value) + ": use recorded, spread, target or source";
    } else if (name == "--link") {
        const auto speed = parse_factor(value);
        o.link = static_cast<double>(speed.value_or(0)) / 1000;
        problem = o.link > 0 ? "" : std::string(value) + ": use the GB/s of a link, up to 1000, such as 6.8";
    } else if (name == "--cpu") {
        const auto factor = parse_factor(value);
        o.cpu = static_cast<double>(factor.value_or(0)) / 1000;
        problem = factor ? "" : std::string(value) + ": " + factor_expected;
    } else if (name == "--pattern") {
        o.pattern = value;
        const bool known = std::any_of(std::begin(pattern_names), std::end(pattern_names),
                                       [&](const PatternName& one) { return o.pattern == one.name; });
        for (const PatternName& one : pattern_names) {
            problem += problem.empty() ? std::string(value) + ": use " : ", ";
            problem += one.name;
        }
        problem = known ? "" : problem;
    } else {
        return "unknown option of replay: see tofu-sim --help";
    }
    return problem;
}

/// Of a pattern those of `algorithm_names`, for a line.
std::string algorithms_of(const std::string& pattern)
{
    std::string list;
    for (const AlgorithmName& one : algorithm_names)
        if (pattern == one.pattern)
            list += (list.empty() ? "" : ", ") + std::string(one.name);
    return list;
}

std::string why_unused_by_pattern(const ReplayOptions& o, std::string_view name)
{
    if (o.pattern.starts_with("gates"))
        return "has no effect on " + o.pattern + ", which uses the gates of all nodes with one process each; omit it";
    if (name == "--cpu")
        return "applies to traces, since patterns do not compute; omit it";
    if (name == "--algorithm") {
        const std::string list = algorithms_of(o.pattern);
        const bool known =
            std::any_of(std::begin(algorithm_names), std::end(algorithm_names),
                        [&](const AlgorithmName& one) { return o.pattern == one.pattern && o.algorithm == one.name; });
        return list.empty() ? "has no effect on " + o.pattern + ", which has one direction only; omit it"
               : known      ? ""
                            : o.algorithm + ": " + o.pattern + " takes " + list;
    }
    if (name == "--segment") {
        const bool used =
            std::any_of(std::begin(algorithm_names), std::end(algorithm_names), [&](const AlgorithmName& one) {
                return one.segments && o.pattern == one.pattern && o.algorithm == one.name;
            });
        return used ? "" : "applies to a broadcast by chain or double-tree; omit it";
    }
    if (name == "--placement" && o.pattern == "halo6" && o.order->kind != Order::Kind::number &&
        o.order->kind != Order::Kind::random)
        return "has no effect on halo6, whose neighbours lie along the six axes; use order or random";
    const bool empty = name == "--bytes" && o.pattern == "barrier";
    return empty ? "has no effect on barrier, whose messages are empty; omit it" : "";
}

/// Why an option that was given says nothing of what is to be played. Empty: it does.
std::string why_unused(const ReplayOptions& o, std::string_view name)
{
    if (name == "--shape" || name == "--torus" || name == "--pattern")
        return {};
    if (!o.pattern.empty())
        return why_unused_by_pattern(o, name);
    const bool is_for_patterns = name == "-n" || name == "--np" || name == "--bytes" || name == "--rounds" ||
                                 name == "--algorithm" || name == "--segment";
    return is_for_patterns ? "applies to patterns only: a trace has its own" : "";
}

/// Axes of the whole machine, 24x23x24, wrap around; parts of an axis do not.
uint8_t usual_wraps(const std::array<uint8_t, 3>& units)
{
    constexpr std::array<uint8_t, 3> machine{24, 23, 24};
    uint8_t wraps = 0;
    for (unsigned axis = 0; axis < 3; axis++)
        wraps = static_cast<uint8_t>(wraps | (units[axis] == machine[axis] ? 1u << axis : 0u));
    return wraps;
}

/// The shape that was given, that of the box, or `otherwise`. Nothing: it was refused.
std::optional<std::array<uint8_t, 3>> find_shape(const ReplayOptions& o, const std::array<uint8_t, 3>& otherwise)
{
    if (!o.order || o.order->kind != Order::Kind::box)
        return o.shape.value_or(otherwise);
    const auto need = units_of(o.order->grid);
    const std::string needed = std::to_string(need[0]) + "x" + std::to_string(need[1]) + "x" + std::to_string(need[2]);
    const auto shape = o.shape ? o.shape : parse_shape(needed.c_str());
    const bool holds = shape && need[0] <= (*shape)[0] && need[1] <= (*shape)[1] && need[2] <= (*shape)[2];
    if (!holds) {
        refuse("--placement box needs " + needed + " units of 2x3x2 nodes" +
               (o.shape ? ": use a --shape of as many along each axis, or none"
                        : ": that is too large, use a smaller box"));
        return std::nullopt;
    }
    return shape;
}

int parse(std::span<char* const> words, ReplayOptions& options)
{
    for (size_t i = 0; i < words.size(); i++) {
        const std::string_view word = words[i];
        if (word.empty() || word[0] != '-' || word == "-") {
            if (const std::string problem = add_trace_files(words[i], options.files); !problem.empty())
                return refuse(problem);
            continue;
        }
        const size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const char* value = equals != std::string_view::npos ? words[i] + equals + 1 : nullptr;
        if (value == nullptr && i + 1 < words.size())
            value = words[++i];
        const std::string box =
            name == "--placement" && value != nullptr && std::strcmp(value, "box") == 0 && i + 1 < words.size()
                ? std::string("box:") + words[++i]
                : std::string();
        value = box.empty() ? value : box.c_str();
        if (value == nullptr) {
            return refuse(std::string(name) +
                          ": unknown option of replay, or its value is missing: see tofu-sim --help");
        }
        if (const std::string problem = take_option(options, name, value); !problem.empty())
            return refuse(std::string(name) + " " + problem);
        options.given.push_back(name);
    }
    if (options.files.empty() == options.pattern.empty())
        return refuse("replay needs the trace files of TOFU_SIM_TRACE, their directory, or a --pattern");
    for (const std::string_view name : options.given)
        if (const std::string why = why_unused(options, name); !why.empty())
            return refuse(std::string(name) + " " + why);
    return 0;
}

/// Empty, or what to do.
std::string check_room(const Placement& placement, uint64_t processes)
{
    const Topology& topology = placement.topology();
    const uint32_t ppn = placement.ppn();
    const uint64_t nodes = (processes + ppn - 1) / ppn;
    if (placement.grid() && nodes > placement.nodes()) {
        return std::to_string(processes) + " processes, " + std::to_string(ppn) + " of a node, need " +
               std::to_string(nodes) + " nodes, but the box has " + std::to_string(placement.nodes()) +
               ": use a larger box or --ppn";
    }
    if (nodes <= topology.num_nodes())
        return {};
    const auto units = topology.units();
    char text[256];
    std::snprintf(text, sizeof text,
                  "%llu processes, %u of a node, need %llu nodes, but %ux%ux%u has %u: use a larger --shape or a --ppn "
                  "of %llu or more",
                  static_cast<unsigned long long>(processes), ppn, static_cast<unsigned long long>(nodes), units[0],
                  units[1], units[2], topology.num_nodes(),
                  static_cast<unsigned long long>((processes + topology.num_nodes() - 1) / topology.num_nodes()));
    return text;
}

double slowness(const ReplayOptions& options)
{
    constexpr uint64_t sample = 1'000'000;
    const double speed = static_cast<double>(sample) * 1000 / static_cast<double>(figures::link_time(sample));
    return options.link > 0 ? speed / options.link : 1;
}

/// Nothing: there is none, which was reported.
std::unique_ptr<Fluid> make_fluid(size_t links)
{
    const std::string path = find_library("libtofu-sim-simgrid.so", "tofu-fi/");
    if (path.empty()) {
        std::fputs("tofu-sim: this tofu-sim was built without SimGrid: install libsimgrid-dev, configure and build "
                   "again; with --share 0 competing messages are served in turn\n",
                   stderr);
        return nullptr;
    }
    void* const module = ::dlopen(path.c_str(), RTLD_NOW); // for good
    void* const make = module != nullptr ? ::dlsym(module, make_fluid_name) : nullptr;
    if (make == nullptr) {
        std::fprintf(stderr,
                     "tofu-sim: replay cannot load SimGrid: %s; install the libsimgrid that it was built with\n",
                     ::dlerror());
        return nullptr;
    }
    return std::unique_ptr<Fluid>(reinterpret_cast<MakeFluid*>(make)(links));
}

/// Plays and prints what the network has seen. `expected`: about how many messages; 0: unknown.
template <typename Print>
int play(const Topology& topology, const ReplayOptions& options, size_t share, Script& script, uint64_t expected,
         Print&& print)
{
    // Of a shared stream some resources are others' as well.
    const size_t links = std::min<size_t>(size_t{topology.num_nodes()} * resources_per_node, 8 * share);
    const std::unique_ptr<Fluid> fluid = share != 0 ? make_fluid(links) : nullptr;
    if (share != 0 && !fluid)
        return exit_failure;
    Traffic traffic(topology, slowness(options), fluid.get(), share);
    Player player(script, traffic);
    std::optional<ReplayProgress> progress(expected);
    traffic.progressed = [&] { progress->at(traffic.messages()); };
    const uint32_t stuck = player.play();
    progress.reset();
    print(player.length());
    print_network(topology, traffic, player.length(), stdout);
    rusage usage{};
    (void)::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    std::printf("%llu messages in %.2f s of processor time and %ld MiB",
                static_cast<unsigned long long>(traffic.messages()), seconds(usage.ru_utime) + seconds(usage.ru_stime),
                usage.ru_maxrss / 1024);
    if (fluid) {
        std::printf("; SimGrid %s computed %llu competing messages", fluid->version(),
                    static_cast<unsigned long long>(traffic.shared()));
    }
    if (traffic.took_turns() != 0)
        std::printf(", %llu were served in turn (--share)", static_cast<unsigned long long>(traffic.took_turns()));
    std::printf("\n");
    if (stuck != 0) {
        std::fprintf(stderr,
                     "tofu-sim: %u of %u threads wait for records that the trace lacks: use all files of the run, and "
                     "record it with a TOFU_SIM_TRACE_MIB that is large enough\n",
                     stuck, script.actors());
        return exit_failure;
    }
    return 0;
}

int replay_pattern(const ReplayOptions& o)
{
    const auto shape = find_shape(o, {1, 1, 1});
    if (!shape)
        return exit_usage;
    const Topology topology(*shape, o.wraps.value_or(usual_wraps(*shape)));
    const uint32_t ppn = o.ppn.value_or(1);
    const auto units = topology.units();
    if (o.pattern.starts_with("gates")) {
        const Picoseconds time = time_of_gates(topology, o.pattern != "gates");
        std::printf("%s over %u nodes of %ux%ux%u: %.4g us\n", o.pattern.c_str(), topology.num_nodes(), units[0],
                    units[1], units[2], static_cast<double>(time) / 1e6);
        return 0;
    }
    const Placement placement(topology, ppn, o.paths, o.order.value_or(Order{}));
    const uint32_t processes = o.processes.value_or(placement.nodes() * ppn);
    if (processes < 2)
        return refuse("a pattern needs 2 processes or more, and the box has one node: use a larger box or --ppn");
    if (const std::string problem = check_room(placement, processes); !problem.empty())
        return refuse(problem);
    const uint32_t segment = o.segment != 0 ? o.segment : usual_segment;
    const auto pattern = make_pattern(o.pattern, placement, {processes, o.bytes, o.rounds, o.algorithm, segment});
    return play(topology, o, o.share.value_or(0), *pattern, pattern->messages(), [&](Picoseconds length) {
        const double us = static_cast<double>(length) / 1e6;
        const double each = us / pattern->rounds() * pattern->of_a_round();
        const std::string remark = pattern->remark(each), algorithm = pattern->algorithm();
        std::printf("%s%s%s of %u processes on %ux%ux%u (%u nodes), %u B: %.4g us %s%s%s; %u rounds take %.4g us\n",
                    o.pattern.c_str(), algorithm.empty() ? "" : " by ", algorithm.c_str(), processes, units[0],
                    units[1], units[2], topology.num_nodes(), o.pattern == "barrier" ? 0 : o.bytes, each,
                    pattern->unit().c_str(), remark.empty() ? "" : ", ", remark.c_str(), pattern->rounds(), us);
    });
}

int replay_trace(const ReplayOptions& o)
{
    trace::Run run;
    std::vector<std::string> warnings;
    if (const std::string problem = trace::read_run(o.files, run, warnings); !problem.empty()) {
        std::fprintf(stderr, "tofu-sim: %s\n", problem.c_str());
        return exit_failure;
    }
    for (const std::string& warning : warnings)
        std::fprintf(stderr, "tofu-sim: %s\n", warning.c_str());
    std::map<uint32_t, uint32_t> on_node;
    uint32_t ppn = 1;
    for (const trace::Process& process : run.processes)
        ppn = std::max(ppn, ++on_node[process.node]);
    const auto shape = find_shape(o, run.topology.units());
    if (!shape)
        return exit_usage;
    const bool same_shape = *shape == run.topology.units();
    const Topology topology(*shape, o.wraps.value_or(same_shape ? run.topology.wraps() : usual_wraps(*shape)));
    const bool same_network = same_shape && topology.wraps() == run.topology.wraps();
    const bool moved = o.order && o.order->kind != Order::Kind::number;
    const bool as_recorded = same_network && !o.ppn && !moved;
    ppn = o.ppn.value_or(ppn);
    const Placement placement(topology, ppn, o.paths, o.order.value_or(Order{}));
    if (const std::string problem = as_recorded ? "" : check_room(placement, run.processes.size()); !problem.empty())
        return refuse(problem);
    Recorded script(run, placement, {as_recorded, o.paths == Paths::recorded, o.cpu});
    return play(topology, o, o.share.value_or(share_of_a_trace), script, run.transfers.size(), [&](Picoseconds length) {
        const auto units = topology.units();
        std::printf(
            "job %s, %zu processes on %ux%ux%u (%u nodes)%s: %.4g us; it was recorded with %.4g us of %s time\n",
            run.job.c_str(), run.processes.size(), units[0], units[1], units[2], topology.num_nodes(),
            as_recorded ? ", as recorded" : "", static_cast<double>(length) / 1e6,
            static_cast<double>(run.length) / 1e3, run.clock == trace::ClockKind::real ? "real" : "Tofu-D's");
        if (script.has_gates())
            std::printf("rounds of barrier gates take their recorded time\n");
    });
}

} // namespace

int replay_command(std::span<char* const> words)
{
    ReplayOptions options;
    if (const int status = parse(words, options); status != 0)
        return status;
    return options.pattern.empty() ? replay_trace(options) : replay_pattern(options);
}

} // namespace tofu::sim::tools
