// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// tofu-sim run: its options, and the environment the processes get.
#include "tools/command.h"

#include "clock/factor.h"
#include "job/relaxations.h"
#include "tools/job_files.h"
#include "tools/launcher.h"
#include "tools/libraries.h"
#include "tools/node_model.h"
#include "topology/topology.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <sys/personality.h>
#include <unistd.h>
#include <vector>

#define CLOCK_LIBRARY "libtofu-sim-clock.so"
#define NODE_LIBRARY "libtofu-sim-node.so"

namespace tofu::sim::tools {
namespace {

/// --seeds FIRST-LAST[:LIST]
struct Seeds {
    uint64_t first = 0;
    uint64_t last = 0;
    std::string relaxations; ///< with the colon

    [[nodiscard]] std::string chaos(uint64_t seed) const { return std::to_string(seed) + relaxations; }
};

struct RunOptions {
    uint32_t processes = 0;
    const char* shape = nullptr;
    const char* torus = nullptr;
    const char* ppn = nullptr;
    const char* job = nullptr;
    const char* chaos = nullptr;
    bool clock = false;
    bool exact = false;
    std::optional<Seeds> seeds;
    const char* cpu = nullptr;
    const NodeModel* node = nullptr;
    bool bound = true;
    const char* library_path = nullptr;
    std::chrono::milliseconds timeout{0};
    std::span<char* const> program;
};

int refuse(std::string_view option, const char* value, const char* expected)
{
    std::fprintf(stderr, "tofu-sim: %.*s%s%s: %s\n", static_cast<int>(option.size()), option.data(),
                 *value != '\0' ? " " : "", value, expected);
    return exit_usage;
}

bool is_job_name(std::string_view name)
{
    constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return !name.empty() && name.size() <= 64 && name[0] != '.' &&
           name.find_first_not_of(allowed) == std::string_view::npos;
}

int set_timeout(RunOptions& options, const char* value)
{
    double seconds = 0;
    const char* const end = value + std::strlen(value);
    const auto [stop, error] = std::from_chars(value, end, seconds);
    if (error != std::errc{} || stop != end || !(seconds > 0 && seconds <= 1e6)) // NaN is neither
        return refuse("--timeout", value, "use seconds, more than 0 and up to 1000000");
    options.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000) + 1);
    return 0;
}

int set_seeds(RunOptions& options, const char* value)
{
    const std::string_view whole = value;
    const size_t colon = std::min(whole.find(':'), whole.size());
    const std::string_view range = whole.substr(0, colon);
    const size_t dash = range.find('-');
    const auto first = parse_count(range.substr(0, dash), 0, UINT64_MAX - 1);
    const auto last = dash == range.npos ? first : parse_count(range.substr(dash + 1), 0, UINT64_MAX - 1);
    if (!first || !last || *last < *first) {
        return refuse("--seeds", value,
                      "use the first and the last seed, such as 1-1000, optionally with a list as for --chaos");
    }
    options.seeds = Seeds{*first, *last, std::string(whole.substr(colon))};
    if (!parse_chaos(options.seeds->chaos(*first).c_str()))
        return refuse("--seeds", value, chaos_expected);
    return 0;
}

/// Checks a value as soon as it is read, so that N processes need not say the same.
int set_option(RunOptions& options, std::string_view name, const char* value)
{
    if (name == "-n" || name == "--np") {
        const auto count = parse_count(value, 1, max_processes);
        if (!count)
            return refuse(name, value, "use a number of processes, 1 to 4096");
        options.processes = static_cast<uint32_t>(*count);
    } else if (name == "--shape") {
        if (!parse_shape(value))
            return refuse(name, value, "use units of 2x3x2 nodes along X, Y and Z, such as 1x1x2");
        options.shape = value;
    } else if (name == "--torus") {
        if (!parse_torus(value))
            return refuse(name, value, "use axes out of x, y and z, such as xz");
        options.torus = value;
    } else if (name == "--ppn") {
        if (!parse_count(value, 1, cqs_per_node))
            return refuse(name, value, "use the number of processes of a node, 1 to 54");
        options.ppn = value;
    } else if (name == "--job") {
        if (!is_job_name(value))
            return refuse(name, value, "use up to 64 letters, digits, '.', '_', '-', not '.' in front");
        options.job = value;
    } else if (name == "--chaos") {
        if (!parse_chaos(value))
            return refuse(name, value, chaos_expected);
        options.chaos = value;
    } else if (name == "--seeds") {
        return set_seeds(options, value);
    } else if (name == "--cpu") {
        if (!parse_factor(value))
            return refuse(name, value, factor_expected);
        options.cpu = value;
    } else if (name == "--node") {
        options.node = find_node_model(value);
        if (options.node == nullptr)
            return refuse(name, value, "use the name of a known topology: a64fx");
    } else if (name == "--bind") {
        options.bound = std::strcmp(value, "node") == 0;
        if (!options.bound && std::strcmp(value, "none") != 0)
            return refuse(name, value, "use node (processors for each simulated node) or none");
    } else if (name == "--library-path") {
        options.library_path = value;
    } else if (name == "--timeout") {
        return set_timeout(options, value);
    } else {
        std::fprintf(stderr, "tofu-sim: run: unknown option %.*s: see tofu-sim --help\n", static_cast<int>(name.size()),
                     name.data());
        return exit_usage;
    }
    return 0;
}

int parse(std::span<char* const> words, RunOptions& options)
{
    size_t i = 0;
    while (i < words.size() && words[i][0] == '-') {
        const std::string_view word = words[i++];
        if (word == "--")
            break;
        if (word == "--clock") {
            options.clock = true;
            continue;
        }
        if (word == "--exact") {
            options.exact = true;
            continue;
        }
        const size_t equals = word.starts_with("--") ? word.find('=') : std::string_view::npos;
        const char* value = nullptr;
        if (equals != std::string_view::npos)
            value = word.data() + equals + 1;
        else if (i < words.size())
            value = words[i++];
        else
            return refuse(word, "", "its value is missing");
        if (const int status = set_option(options, word.substr(0, equals), value); status != 0)
            return status;
    }
    options.program = words.subspan(i);
    options.exact = options.exact || options.seeds;
    if (options.clock && !options.exact && options.chaos != nullptr)
        return refuse("--chaos", options.chaos, "the adversarial mode has no times: omit --clock, or use --exact");
    if (options.seeds && options.chaos != nullptr)
        return refuse("--chaos", options.chaos, "--seeds sets the seed of each run: omit one of them");
    if (options.seeds && options.job != nullptr)
        return refuse("--job", options.job, "--seeds starts many jobs: omit it");
    if (options.processes == 0 || options.program.empty()) {
        std::fputs("tofu-sim: run needs -n N and a program: see tofu-sim --help\n", stderr);
        return exit_usage;
    }
    return 0;
}

/// Never the name of another job of this user: process and time make it unique.
std::string unique_job_name()
{
    timespec now{};
    (void)::clock_gettime(CLOCK_REALTIME, &now);
    char name[65];
    std::snprintf(name, sizeof name, "run-%d-%llx", ::getpid(),
                  static_cast<unsigned long long>(now.tv_sec) * 1'000'000'000ULL +
                      static_cast<unsigned long long>(now.tv_nsec));
    return name;
}

std::string with_former(const std::string& text, const char* name)
{
    const char* const old = std::getenv(name);
    if (old == nullptr || *old == '\0')
        return text;
    const std::string first = text + ":";
    return (old + std::string(":")).starts_with(first) ? old : first + old; // an earlier run of --seeds
}

void export_environment(const RunOptions& options, const std::string& job, const std::string& preloaded)
{
    const auto put = [](const char* name, const char* value) {
        if (value != nullptr)
            ::setenv(name, value, 1);
    };
    put("TOFU_SIM_JOB", job.c_str());
    put("TOFU_SIM_SIZE", std::to_string(options.processes).c_str());
    put("TOFU_SIM_SHAPE", options.shape);
    put("TOFU_SIM_TORUS", options.torus);
    put("TOFU_SIM_PPN", options.ppn);
    put("TOFU_SIM_CHAOS", options.chaos);
    put("TOFU_SIM_CPU", options.cpu);
    if (options.clock || options.exact) {
        put("TOFU_SIM_CLOCK", options.exact ? "exact" : "tofud");
        put("TOFU_SIM_BIND", options.exact && !options.bound ? "none" : nullptr);
    }
    if (!preloaded.empty())
        put("LD_PRELOAD", with_former(preloaded, "LD_PRELOAD").c_str());
    if (options.library_path != nullptr)
        put("LD_LIBRARY_PATH", with_former(options.library_path, "LD_LIBRARY_PATH").c_str());
}

/// As the processes will place themselves (job/claims): one a node, or as many as were asked for, or as have to be.
std::vector<uint32_t> nodes_of(const RunOptions& options)
{
    const auto setting = [](const char* given, const char* variable) {
        return given != nullptr ? given : std::getenv(variable);
    };
    const char* const shape = setting(options.shape, "TOFU_SIM_SHAPE");
    const char* const ppn = setting(options.ppn, "TOFU_SIM_PPN");
    const auto units = parse_shape(shape != nullptr ? shape : "");
    const uint32_t nodes = Topology(units.value_or(Topology().units()), 0).num_nodes();
    const uint32_t least = (options.processes + nodes - 1) / nodes;
    const auto each = static_cast<uint32_t>(parse_count(ppn != nullptr ? ppn : "", 1, cqs_per_node).value_or(least));
    std::vector<uint32_t> node_of(options.processes);
    for (uint32_t rank = 0; rank < options.processes; rank++)
        node_of[rank] = rank / each;
    return node_of;
}

/// The path of a file without a name, which ends with this process; others open it meanwhile. Empty, after a line on
/// stderr: it cannot be created.
std::string write_topology(const NodeModel& model)
{
    const std::string text = topology_xml(model);
    if (text.empty())
        return {};
    const int file = ::memfd_create("tofu-sim-node", MFD_CLOEXEC);
    if (file < 0 || ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
        std::perror("tofu-sim: --node");
        return {};
    }
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file);
}

/// The option by which the user has asked for a virtual clock.
const char* name_of_clock(const RunOptions& options)
{
    return options.seeds ? "--seeds" : options.exact ? "--exact" : "--clock";
}

/// Addresses are the same in each run: some decisions depend on them, of programs and of the adversarial mode.
void fix_addresses(const RunOptions& options)
{
    const int now = ::personality(0xffffffff);
    if (now == -1 || ::personality(static_cast<unsigned long>(now) | ADDR_NO_RANDOMIZE) == -1) {
        std::fprintf(stderr,
                     "tofu-sim: %s: cannot disable the system's randomized memory layout; a program that depends on "
                     "addresses may differ from run to run\n",
                     name_of_clock(options));
    }
}

/// What all runs of a command have in common.
struct Surroundings {
    std::string preloaded; ///< libraries, for LD_PRELOAD
    std::string topology;
};

int run_once(const RunOptions& options, const Surroundings& surroundings, Launcher::End& ended)
{
    const std::string job = options.job != nullptr ? options.job : unique_job_name();
    export_environment(options, job, surroundings.preloaded);
    Launcher launcher(
        {nodes_of(options), options.bound && !options.exact, surroundings.topology, options.program, options.timeout});
    const int status = launcher.run();
    ended = launcher.ended();
    // What the last process could not take away because it was killed. A job that others joined by
    // --job goes on.
    if (const File base = open_base(); base.is_open())
        (void)remove_job(base, job);
    return status;
}

/// As a shell reads it back.
std::string quoted(const char* word)
{
    constexpr char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    if (*word != '\0' && word[std::strspn(word, plain)] == '\0')
        return word;
    std::string text = "'";
    for (const char* c = word; *c != '\0'; c++)
        text += *c == '\'' ? std::string("'\\''") : std::string(1, *c);
    return text + "'";
}

/// What the user has to type to have this run again.
void print_command(const RunOptions& options, const std::string& chaos)
{
    std::fprintf(stderr, "tofu-sim run --exact --chaos %s -n %u", chaos.c_str(), options.processes);
    const auto add = [](const char* name, const char* value) {
        if (value != nullptr)
            std::fprintf(stderr, " %s %s", name, quoted(value).c_str());
    };
    add("--shape", options.shape);
    add("--torus", options.torus);
    add("--ppn", options.ppn);
    add("--cpu", options.cpu);
    add("--node", options.node != nullptr ? options.node->name : nullptr);
    add("--bind", options.bound ? nullptr : "none");
    add("--library-path", options.library_path);
    if (options.timeout.count() != 0)
        std::fprintf(stderr, " --timeout %g", static_cast<double>(options.timeout.count() - 1) / 1000);
    std::fputs(" --", stderr);
    for (const char* const word : options.program)
        std::fprintf(stderr, " %s", quoted(word).c_str());
    std::fputc('\n', stderr);
}

/// Each run writes to a file, which is shown only if the run fails.
int run_seeds(RunOptions& options, const Surroundings& surroundings)
{
    const File output(::memfd_create("tofu-sim-seeds", MFD_CLOEXEC));
    const File said(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    const File errors(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!output.is_open() || !said.is_open() || !errors.is_open()) {
        std::perror("tofu-sim: --seeds");
        return exit_failure;
    }
    sigset_t mask;
    (void)::sigprocmask(SIG_SETMASK, nullptr, &mask);
    for (uint64_t seed = options.seeds->first; seed <= options.seeds->last; seed++) {
        const std::string chaos = options.seeds->chaos(seed);
        options.chaos = chaos.c_str();
        (void)!::ftruncate(output.get(), 0);
        (void)::lseek(output.get(), 0, SEEK_SET);
        (void)::dup2(output.get(), STDOUT_FILENO);
        (void)::dup2(output.get(), STDERR_FILENO);
        Launcher::End ended{};
        const int status = run_once(options, surroundings, ended);
        std::fflush(stdout);
        (void)::dup2(said.get(), STDOUT_FILENO);
        (void)::dup2(errors.get(), STDERR_FILENO);
        (void)::sigprocmask(SIG_SETMASK, &mask, nullptr);
        if (status != 0) {
            char bytes[4096];
            (void)::lseek(output.get(), 0, SEEK_SET);
            for (ssize_t n = 0; (n = ::read(output.get(), bytes, sizeof bytes)) > 0;)
                (void)!::write(STDERR_FILENO, bytes, static_cast<size_t>(n));
            if (ended != Launcher::End::program)
                return status; // not the seed's fault
            std::fprintf(stderr, "tofu-sim: seed %llu fails with status %d; repeat by:\n",
                         static_cast<unsigned long long>(seed), status);
            print_command(options, chaos);
            return status;
        }
    }
    std::fprintf(stderr, "tofu-sim: seeds %llu to %llu: no failure\n",
                 static_cast<unsigned long long>(options.seeds->first),
                 static_cast<unsigned long long>(options.seeds->last));
    return 0;
}

} // namespace

int run_command(std::span<char* const> words)
{
    RunOptions options;
    if (const int status = parse(words, options); status != 0)
        return status;
    const bool clock = options.clock || options.exact;
    Surroundings surroundings;
    surroundings.preloaded = clock ? find_library(CLOCK_LIBRARY) : std::string();
    if (clock && surroundings.preloaded.empty())
        return refuse(name_of_clock(options), "", "there is no " CLOCK_LIBRARY " in " TOFU_SIM_LIBDIR ": install it");
    if (options.node != nullptr) {
        const std::string library = find_library(NODE_LIBRARY);
        if (library.empty())
            return refuse("--node", "", "there is no " NODE_LIBRARY " in " TOFU_SIM_LIBDIR ": install it");
        surroundings.preloaded += (clock ? ":" : "") + library;
    }
    if (options.exact)
        fix_addresses(options);
    surroundings.topology = options.node != nullptr ? write_topology(*options.node) : std::string();
    if (options.node != nullptr && surroundings.topology.empty())
        return exit_failure;
    Launcher::End ended{};
    return options.seeds ? run_seeds(options, surroundings) : run_once(options, surroundings, ended);
}

} // namespace tofu::sim::tools
