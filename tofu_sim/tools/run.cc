// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: tofu-sim run: its options, and the environment the processes get.
// Called by: tools/main.cc. Calls: tools/launcher, topology/ (to check shapes), tools/job_files.
#include "tools/command.h"

#include "clock/factor.h"
#include "job/freedoms.h"
#include "tools/job_files.h"
#include "tools/launcher.h"
#include "tools/libraries.h"
#include "tools/node_model.h"
#include "topology/topology.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#define CLOCK_LIBRARY "libtofu-sim-clock.so"

namespace tofu::sim::tools {
namespace {

struct Options {
    uint32_t processes = 0;
    const char* shape = nullptr;
    const char* torus = nullptr;
    const char* ppn = nullptr;
    const char* job = nullptr;
    const char* chaos = nullptr;
    bool clock = false;
    const char* cpu = nullptr;
    const NodeModel* node = nullptr;
    bool bound = true;
    const char* library_path = nullptr;
    std::chrono::milliseconds timeout{0};
    std::span<char* const> program;
};

int refuse(std::string_view option, const char* value, const char* expected)
{
    std::fprintf(stderr, "tofu-sim: %.*s %s: %s\n", static_cast<int>(option.size()), option.data(),
                 value, expected);
    return exit_usage;
}

bool is_job_name(std::string_view name)
{
    constexpr std::string_view allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return !name.empty() && name.size() <= 64 && name[0] != '.' &&
           name.find_first_not_of(allowed) == std::string_view::npos;
}

int set_timeout(Options& options, const char* value)
{
    double seconds = 0;
    const char* const end = value + std::strlen(value);
    const auto [stop, error] = std::from_chars(value, end, seconds);
    if (error != std::errc{} || stop != end || !(seconds > 0 && seconds <= 1e6)) { // NaN is neither
        return refuse("--timeout", value, "give seconds, more than 0 and up to 1000000");
    }
    options.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000) + 1);
    return 0;
}

// Checks a value as soon as it is read, so that N processes need not say the same.
int set_option(Options& options, std::string_view name, const char* value)
{
    if (name == "-n" || name == "--np") {
        const auto count = parse_count(value, 1, max_processes);
        if (!count) {
            return refuse(name, value, "give a number of processes, 1 to 4096");
        }
        options.processes = static_cast<uint32_t>(*count);
    } else if (name == "--shape") {
        if (!parse_shape(value)) {
            return refuse(name, value, "give units of 2x3x2 nodes along X, Y and Z, as 1x1x2");
        }
        options.shape = value;
    } else if (name == "--torus") {
        if (!parse_torus(value)) {
            return refuse(name, value, "give axes out of x, y and z, as xz");
        }
        options.torus = value;
    } else if (name == "--ppn") {
        if (!parse_count(value, 1, cqs_per_node)) {
            return refuse(name, value, "give the processes of a node, 1 to 54");
        }
        options.ppn = value;
    } else if (name == "--job") {
        if (!is_job_name(value)) {
            return refuse(name, value,
                          "use up to 64 letters, digits, '.', '_', '-', not '.' in front");
        }
        options.job = value;
    } else if (name == "--chaos") {
        if (!parse_chaos(value)) {
            return refuse(name, value, chaos_expected);
        }
        options.chaos = value;
    } else if (name == "--cpu") {
        if (!parse_factor(value)) {
            return refuse(name, value, factor_expected);
        }
        options.cpu = value;
    } else if (name == "--node") {
        options.node = find_node_model(value);
        if (options.node == nullptr) {
            return refuse(name, value, "give the name of a node whose topology is known: a64fx");
        }
    } else if (name == "--bind") {
        options.bound = std::strcmp(value, "node") == 0;
        if (!options.bound && std::strcmp(value, "none") != 0) {
            return refuse(name, value, "say node (processors for each simulated node) or none");
        }
    } else if (name == "--library-path") {
        options.library_path = value;
    } else if (name == "--timeout") {
        return set_timeout(options, value);
    } else {
        std::fprintf(stderr, "tofu-sim: run has no option %.*s: see tofu-sim --help\n",
                     static_cast<int>(name.size()), name.data());
        return exit_usage;
    }
    return 0;
}

int parse(std::span<char* const> words, Options& options)
{
    size_t i = 0;
    while (i < words.size() && words[i][0] == '-') {
        const std::string_view word = words[i++];
        if (word == "--") {
            break;
        }
        if (word == "--clock") {
            options.clock = true;
            continue;
        }
        const size_t equals = word.starts_with("--") ? word.find('=') : std::string_view::npos;
        const char* value = nullptr;
        if (equals != std::string_view::npos) {
            value = word.data() + equals + 1;
        } else if (i < words.size()) {
            value = words[i++];
        } else {
            return refuse(word, "", "its value is missing");
        }
        if (const int status = set_option(options, word.substr(0, equals), value); status != 0) {
            return status;
        }
    }
    options.program = words.subspan(i);
    if (options.clock && options.chaos != nullptr) {
        return refuse("--chaos", options.chaos, "the adversarial mode has no times: leave --clock away");
    }
    if (options.processes == 0 || options.program.empty()) {
        std::fputs("tofu-sim: run needs -n N and a program: see tofu-sim --help\n", stderr);
        return exit_usage;
    }
    return 0;
}

// Never the name of another job of this user: process and time tell them apart.
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

std::string with_former(std::string text, const char* name)
{
    if (const char* const old = std::getenv(name); old != nullptr && *old != '\0') {
        text += std::string(":") + old;
    }
    return text;
}

void export_environment(const Options& options, const std::string& job, const std::string& clock_library)
{
    const auto put = [](const char* name, const char* value) {
        if (value != nullptr) {
            ::setenv(name, value, 1);
        }
    };
    put("TOFU_SIM_JOB", job.c_str());
    put("TOFU_SIM_SIZE", std::to_string(options.processes).c_str());
    put("TOFU_SIM_SHAPE", options.shape);
    put("TOFU_SIM_TORUS", options.torus);
    put("TOFU_SIM_PPN", options.ppn);
    put("TOFU_SIM_CHAOS", options.chaos);
    put("TOFU_SIM_CPU", options.cpu);
    if (options.clock) {
        put("TOFU_SIM_CLOCK", "tofud");
        put("LD_PRELOAD", with_former(clock_library, "LD_PRELOAD").c_str());
    }
    if (options.library_path != nullptr) {
        put("LD_LIBRARY_PATH", with_former(options.library_path, "LD_LIBRARY_PATH").c_str());
    }
}

// As the processes will place themselves (job/claims): one a node, or as many as were asked for, or as have to be.
std::vector<uint32_t> nodes_of(const Options& options)
{
    const auto setting = [](const char* given, const char* variable) { return given != nullptr ? given : std::getenv(variable); };
    const char* const shape = setting(options.shape, "TOFU_SIM_SHAPE");
    const char* const ppn = setting(options.ppn, "TOFU_SIM_PPN");
    const auto units = parse_shape(shape != nullptr ? shape : "");
    const uint32_t nodes = Topology(units.value_or(Topology().units()), 0).num_nodes();
    const uint32_t least = (options.processes + nodes - 1) / nodes;
    const auto each = static_cast<uint32_t>(parse_count(ppn != nullptr ? ppn : "", 1, cqs_per_node).value_or(least));
    std::vector<uint32_t> node_of(options.processes);
    for (uint32_t rank = 0; rank < options.processes; rank++) {
        node_of[rank] = rank / each;
    }
    return node_of;
}

// The path of a file without a name, which ends with this process; others open it meanwhile. Empty, after a line on
// stderr: it can't be made.
std::string write_topology(const NodeModel& model)
{
    const std::string text = topology_xml(model);
    if (text.empty()) {
        return {};
    }
    const int file = ::memfd_create("tofu-sim-node", MFD_CLOEXEC);
    if (file < 0 || ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
        std::perror("tofu-sim: --node");
        return {};
    }
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file);
}

} // namespace

int run_command(std::span<char* const> words)
{
    Options options;
    if (const int status = parse(words, options); status != 0) {
        return status;
    }
    const std::string job = options.job != nullptr ? options.job : unique_job_name();
    const std::string clock_library = options.clock ? find_library(CLOCK_LIBRARY) : std::string();
    if (options.clock && clock_library.empty()) {
        return refuse("--clock", "", "there is no " CLOCK_LIBRARY " in " TOFU_SIM_LIBDIR ": install it");
    }
    export_environment(options, job, clock_library);
    const std::string topology = options.node != nullptr ? write_topology(*options.node) : std::string();
    if (options.node != nullptr && topology.empty()) {
        return exit_failure;
    }
    Launcher launcher({nodes_of(options), options.bound, topology, options.program, options.timeout});
    const int status = launcher.run();
    // What the last process could not take away because it was killed. A job that others joined by
    // --job goes on.
    if (const File base = open_base(); base.is_open()) {
        (void)remove_job(base, job);
    }
    return status;
}

} // namespace tofu::sim::tools
