// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: tofu-sim replay: recorded or made-up traffic on a network of any shape, by SimGrid.
// Called by: tools/main.cc. Calls: replay/, trace/run, tools/replay_report.
#include "tools/replay_report.h"

#include "clock/factor.h"
#include "job/layout.h"
#include "replay/gates.h"
#include "replay/pattern.h"
#include "replay/recorded.h"
#include "tools/command.h"
#include "tools/libraries.h"
#include "tools/trace_files.h"

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
    std::optional<uint64_t> seed;
    std::optional<uint32_t> processes;
    Paths paths = Paths::recorded;
    double link = 0; // GB/s; 0: Tofu-D's
    double cpu = 1;
    size_t share = 5000;
    std::string pattern;
    uint32_t bytes = 8;
    uint32_t rounds = 0;
    std::vector<std::string> files;
    std::vector<std::string_view> given; // names of the options
};

constexpr uint32_t most_processes_of_a_node = 54; // as tofu-sim run has it

int refuse(const std::string& what)
{
    std::fprintf(stderr, "tofu-sim: %s\n", what.c_str());
    return exit_usage;
}

std::string take_number(const char* text, uint64_t low, uint64_t high, auto& value, const char* expected)
{
    const auto number = parse_count(text, low, high);
    if (!number) {
        return std::string(text) + ": give " + expected;
    }
    value = static_cast<std::decay_t<decltype(value)>>(*number);
    return {};
}

std::string take_option(ReplayOptions& o, std::string_view name, const char* value)
{
    uint32_t number = 0;
    std::string problem;
    if (name == "--shape") {
        o.shape = parse_shape(value);
        return o.shape ? std::string() : std::string(value) + ": give units along X, Y and Z such as 4x6x2, 158,976 nodes "
                                                              "are 24x23x24";
    }
    if (name == "--torus") {
        o.wraps = parse_torus(value);
        return o.wraps ? std::string() : std::string(value) + ": give axes out of x, y, z";
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
        problem = take_number(value, 0, 10'000'000, o.share, "how many messages that meet SimGrid gets at a time");
    } else if (name == "--placement") {
        uint64_t seed = 0;
        if (std::strcmp(value, "order") == 0) {
            o.seed.reset();
        } else if (std::strncmp(value, "random:", 7) == 0 &&
                   take_number(value + 7, 0, ~uint64_t{0}, seed, "").empty()) {
            o.seed = seed;
        } else {
            problem = std::string(value) + ": give order, or random:SEED";
        }
    } else if (name == "--paths") {
        const auto paths = parse_paths(value);
        o.paths = paths.value_or(o.paths);
        problem = paths ? "" : std::string(value) + ": give recorded, spread, target or source";
    } else if (name == "--link") {
        const auto speed = parse_factor(value);
        o.link = static_cast<double>(speed.value_or(0)) / 1000;
        problem = o.link > 0 ? "" : std::string(value) + ": give GB/s of a link, up to 1000, such as 6.8";
    } else if (name == "--cpu") {
        const auto factor = parse_factor(value);
        o.cpu = static_cast<double>(factor.value_or(0)) / 1000;
        problem = factor ? "" : std::string(value) + ": " + factor_expected;
    } else if (name == "--pattern") {
        o.pattern = value;
        const bool known = std::any_of(std::begin(pattern_names), std::end(pattern_names),
                                       [&](const PatternName& one) { return o.pattern == one.name; });
        for (const PatternName& one : pattern_names) {
            problem += problem.empty() ? std::string(value) + ": give " : ", ";
            problem += one.name;
        }
        problem = known ? "" : problem;
    } else {
        return "replay has no such option: see tofu-sim --help";
    }
    return problem;
}

// Why an option that was given says nothing of what is to be played. Empty: it does.
std::string why_unused(const ReplayOptions& o, std::string_view name)
{
    if (name == "--shape" || name == "--torus" || name == "--pattern") {
        return {};
    }
    if (o.pattern.empty()) {
        return name == "-n" || name == "--np" || name == "--bytes" || name == "--rounds"
                   ? "is for patterns: a trace has its own"
                   : "";
    }
    if (o.pattern.starts_with("gates")) {
        return "says nothing of " + o.pattern + ": gates of all nodes, one process each; leave it away";
    }
    if (name == "--cpu") {
        return "is for traces: patterns compute nothing; leave it away";
    }
    const bool empty = name == "--bytes" && o.pattern == "barrier";
    return empty ? "says nothing of barrier: its messages are empty; leave it away" : "";
}

int parse(std::span<char* const> words, ReplayOptions& options)
{
    for (size_t i = 0; i < words.size(); i++) {
        const std::string_view word = words[i];
        if (word.empty() || word[0] != '-' || word == "-") {
            if (const std::string problem = add_trace_files(words[i], options.files); !problem.empty()) {
                return refuse(problem);
            }
            continue;
        }
        const size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const char* value = equals != std::string_view::npos ? words[i] + equals + 1 : nullptr;
        if (value == nullptr && i + 1 < words.size()) {
            value = words[++i];
        }
        if (value == nullptr) {
            return refuse(std::string(name) + ": its value is missing, or it is none of replay: see tofu-sim --help");
        }
        if (const std::string problem = take_option(options, name, value); !problem.empty()) {
            return refuse(std::string(name) + " " + problem);
        }
        options.given.push_back(name);
    }
    if (options.files.empty() == options.pattern.empty()) {
        return refuse("replay needs the files that TOFU_SIM_TRACE has named, or their directory, or a --pattern");
    }
    for (const std::string_view name : options.given) {
        if (const std::string why = why_unused(options, name); !why.empty()) {
            return refuse(std::string(name) + " " + why);
        }
    }
    return 0;
}

// Empty, or what to do.
std::string check_room(const Topology& topology, uint64_t processes, uint32_t ppn)
{
    const uint64_t nodes = (processes + ppn - 1) / ppn;
    if (nodes <= topology.num_nodes()) {
        return {};
    }
    const auto units = topology.units();
    char text[256];
    std::snprintf(text, sizeof text,
                  "%llu processes, %u of a node, need %llu nodes and %ux%ux%u has %u: give a larger --shape or a --ppn of %llu "
                  "or more",
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


// Nothing: there is none, which was said.
std::unique_ptr<Fluid> make_fluid(size_t links)
{
    const std::string path = find_library("libtofu-sim-simgrid.so", "tofu-fi/");
    if (path.empty()) {
        std::fputs("tofu-sim: this tofu-sim was built without SimGrid: install libsimgrid-dev, configure and build again\n",
                   stderr);
        return nullptr;
    }
    void* const module = ::dlopen(path.c_str(), RTLD_NOW); // for good
    void* const make = module != nullptr ? ::dlsym(module, make_fluid_name) : nullptr;
    if (make == nullptr) {
        std::fprintf(stderr, "tofu-sim: replay can't load SimGrid: %s; install the libsimgrid it was built with\n",
                     ::dlerror());
        return nullptr;
    }
    return std::unique_ptr<Fluid>(reinterpret_cast<MakeFluid*>(make)(links));
}

// Plays and prints what the network has seen.
template <typename Print>
int play(const Topology& topology, const ReplayOptions& options, Script& script, Print&& print)
{
    // Of a shared stream some resources are others' as well.
    const size_t links = std::min<size_t>(size_t{topology.num_nodes()} * resources_per_node, 8 * options.share);
    const std::unique_ptr<Fluid> fluid = make_fluid(links);
    if (!fluid) {
        return exit_failure;
    }
    Traffic traffic(topology, slowness(options), *fluid, options.share);
    Player player(script, traffic);
    const uint32_t stuck = player.play();
    print(player.length());
    print_network(topology, traffic, player.length(), stdout);
    rusage usage{};
    (void)::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    std::printf("%llu messages in %.2f s of a processor with %ld MiB; SimGrid %s shared out %llu that met others",
                static_cast<unsigned long long>(traffic.messages()), seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss / 1024,
                fluid->version(), static_cast<unsigned long long>(traffic.shared()));
    if (traffic.took_turns() != 0) {
        std::printf(", %llu took turns (--share)", static_cast<unsigned long long>(traffic.took_turns()));
    }
    std::printf("\n");
    if (stuck != 0) {
        std::fprintf(stderr,
                     "tofu-sim: %u of %u threads wait for what never comes: the trace lacks processes or records; give all "
                     "files of the run, with TOFU_SIM_TRACE_MIB as large as it needs\n",
                     stuck, script.actors());
        return exit_failure;
    }
    return std::fflush(stdout) == 0 ? 0 : exit_failure;
}

int replay_pattern(const ReplayOptions& o)
{
    const Topology topology(o.shape.value_or(std::array<uint8_t, 3>{1, 1, 1}), o.wraps.value_or(0));
    const uint32_t ppn = o.ppn.value_or(1);
    const auto units = topology.units();
    if (o.pattern.starts_with("gates")) {
        const Picoseconds time = time_of_gates(topology, o.pattern != "gates");
        std::printf("%s over %u nodes of %ux%ux%u: %.4g us\n", o.pattern.c_str(), topology.num_nodes(), units[0], units[1],
                    units[2], static_cast<double>(time) / 1e6);
        return 0;
    }
    const uint32_t processes = o.processes.value_or(topology.num_nodes() * ppn);
    if (const std::string problem = check_room(topology, processes, ppn); !problem.empty()) {
        return refuse(problem);
    }
    const Placement placement(topology, ppn, o.paths, o.seed);
    const auto pattern = make_pattern(o.pattern, placement, {processes, o.bytes, o.rounds});
    return play(topology, o, *pattern, [&](Picoseconds length) {
        const double us = static_cast<double>(length) / 1e6;
        const double each = us / pattern->rounds() * pattern->of_a_round();
        const std::string remark = pattern->remark(each);
        std::printf("%s of %u processes on %ux%ux%u (%u nodes), %u B: %.4g us %s%s%s; %u rounds take %.4g us\n",
                    o.pattern.c_str(), processes, units[0], units[1], units[2], topology.num_nodes(), o.bytes, each,
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
    for (const std::string& warning : warnings) {
        std::fprintf(stderr, "tofu-sim: %s\n", warning.c_str());
    }
    std::map<uint32_t, uint32_t> on_node;
    uint32_t ppn = 1;
    for (const trace::Process& process : run.processes) {
        ppn = std::max(ppn, ++on_node[process.node]);
    }
    const Topology topology(o.shape.value_or(run.topology.units()), o.wraps.value_or(run.topology.wraps()));
    const bool same_network = topology.units() == run.topology.units() && topology.wraps() == run.topology.wraps();
    const bool as_recorded = same_network && !o.ppn && !o.seed;
    ppn = o.ppn.value_or(ppn);
    if (const std::string problem = as_recorded ? "" : check_room(topology, run.processes.size(), ppn); !problem.empty()) {
        return refuse(problem);
    }
    const Placement placement(topology, ppn, o.paths, o.seed);
    Recorded script(run, placement, {as_recorded, o.paths == Paths::recorded, o.cpu});
    return play(topology, o, script, [&](Picoseconds length) {
        const auto units = topology.units();
        std::printf("job %s, %zu processes on %ux%ux%u (%u nodes)%s: %.4g us; it was recorded with %.4g us of %s time\n",
                    run.job.c_str(), run.processes.size(), units[0], units[1], units[2], topology.num_nodes(),
                    as_recorded ? ", as recorded" : "", static_cast<double>(length) / 1e6,
                    static_cast<double>(run.length) / 1e3, run.clock == trace::ClockKind::real ? "real" : "Tofu-D's");
        if (script.has_gates()) {
            std::printf("rounds of barrier gates take what they took when they were recorded\n");
        }
    });
}

} // namespace

int replay_command(std::span<char* const> words)
{
    ReplayOptions options;
    if (const int status = parse(words, options); status != 0) {
        return status;
    }
    return options.pattern.empty() ? replay_trace(options) : replay_pattern(options);
}

} // namespace tofu::sim::tools
