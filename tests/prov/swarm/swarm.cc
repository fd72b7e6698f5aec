// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// swarm [-p PLATFORM] [SECONDS [SEED]]: random programs for so long, from this seed on (default: 10 s, a new one), over
// the deterministic network, or over tcp, shm or sim (platform.h). The first that fails is made shorter and printed, to
// be given to replay. Each runs in a process of its own.
// SWARM_KNOWN: defects that are known, whose programs are left out: "identity" (a successor has the VCQ IDs of what is
// gone), "closing" (what was reported as sent is lost by fi_close), "renew" (a message that an endpoint had not taken
// when it was closed never ends if a later endpoint has its address), by commas.
// SWARM_SHOW: prints the program of this seed, and does not run it.
// Called by make check and make swarm; calls generator, platform and world.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generator.h"
#include "world.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned most_seconds = 120; ///< of one program
constexpr unsigned most_work = 5;      ///< seconds of a processor for one over the network; most need some hundredths
constexpr unsigned shortening = 120;   ///< seconds to make one shorter

/// What a process that carries out a program says of it.
struct Report {
    swarm::Numbers numbers;
};

struct Result {
    bool good;
    std::string text; ///< what is wrong
};

Report* shared_report()
{
    void* const at = mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at != MAP_FAILED ? static_cast<Report*>(at) : nullptr;
}

Result try_program(const swarm::Program& program, const swarm::Options& options, swarm::Platform& platform,
                   Report& report)
{
    int ends[2];
    if (pipe(ends) != 0)
        std::abort();
    const pid_t child = fork();
    if (child == 0) {
        alarm(most_seconds);
        const rlimit most{most_work, most_work + 1};
        if (!platform.is_in_real_time())
            (void)setrlimit(RLIMIT_CPU, &most);
        dup2(ends[1], STDOUT_FILENO);
        if (std::getenv("SWARM_STDERR") == nullptr && std::freopen("/dev/null", "w", stderr) == nullptr)
            _exit(4);
        report.numbers = swarm::run_program(program, options, platform);
        _exit(0);
    }
    close(ends[1]);
    std::string text;
    char part[512];
    for (ssize_t got = 0; (got = read(ends[0], part, sizeof part)) > 0;)
        text.append(part, static_cast<std::size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0)
        platform.clear_after(child);
    if (WIFSIGNALED(status))
        text += "signal " + std::to_string(WTERMSIG(status)) +
                (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGXCPU ? " (does not end)" : "") + "\n";
    else if (WEXITSTATUS(status) != 0 && text.empty())
        text += "status " + std::to_string(WEXITSTATUS(status)) + "\n";
    return {status == 0, text};
}

bool knows(const char* defect)
{
    const char* const all = std::getenv("SWARM_KNOWN");
    return all != nullptr && std::strstr(all, defect) != nullptr;
}

/// The kind of a failure: its text without numbers.
std::string kind_of(const std::string& text)
{
    std::string kind;
    for (const char c : text)
        if (c < '0' || c > '9')
            kind += c;
    return kind.substr(0, kind.find('\n'));
}

} // namespace

int main(int count, char** arguments)
{
    if (const int now = personality(0xffffffff); now != -1 && (now & ADDR_NO_RANDOMIZE) == 0 &&
                                                 personality(static_cast<unsigned>(now) | ADDR_NO_RANDOMIZE) != -1)
        execv("/proc/self/exe", arguments);
    std::string name;
    if (count > 2 && std::strcmp(arguments[1], "-p") == 0) {
        name = arguments[2];
        count -= 2;
        arguments += 2;
    }
    const std::unique_ptr<swarm::Platform> platform = swarm::Platform::of(name);
    if (platform == nullptr) {
        std::printf("swarm: no platform is called %s; there are tcp, shm and sim\n", name.c_str());
        return 1;
    }
    const char* const wanted = std::getenv("SWARM_SECONDS");
    const unsigned long seconds = std::strtoul(count > 1           ? arguments[1]
                                               : wanted != nullptr ? wanted
                                                                   : "10",
                                               nullptr, 0);
    std::uint64_t first = 0;
    if (count > 2)
        first = std::strtoull(arguments[2], nullptr, 0);
    else if (getrandom(&first, sizeof first, 0) != sizeof first)
        first = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
    first &= 0xffffffffffff;
    std::printf("swarm: seeds from %llu on\n", static_cast<unsigned long long>(first));
    std::fflush(stdout);
    if (std::getenv("SWARM_SHOW") != nullptr) {
        std::printf("%s", swarm::text_of(platform->fit(swarm::program_of(first))).c_str());
        return 0;
    }
    Report* const report = shared_report();
    if (report == nullptr)
        return 1;
    swarm::Options options;
    options.knows_closing = knows("closing");
    const auto start = Clock::now();
    unsigned long programs = 0;
    unsigned long long steps = 0, calls = 0, commands = 0;
    int status = 0;
    for (std::uint64_t seed = first; Clock::now() - start < std::chrono::seconds(seconds); seed++) {
        swarm::Program program = swarm::program_of(seed);
        if (knows("identity"))
            program.setup.reuse = 0;
        if (knows("renew"))
            std::erase_if(program.commands, [](const auto& c) { return c.what == swarm::Do::renew; });
        program = platform->fit(std::move(program));
        const Result result = try_program(program, options, *platform, *report);
        programs++;
        commands += program.commands.size();
        steps += report->numbers.steps;
        calls += report->numbers.calls;
        report->numbers = {};
        if (result.good)
            continue;
        std::printf("swarm: seed %llu fails: %s", static_cast<unsigned long long>(seed), result.text.c_str());
        std::fflush(stdout);
        const std::string kind = kind_of(result.text);
        const auto found = Clock::now();
        const swarm::Program shorter = swarm::shorten(program, [&](const swarm::Program& candidate) {
            if (Clock::now() - found > std::chrono::seconds(platform->is_in_real_time() ? shortening / 4 : shortening))
                return false;
            const Result again = try_program(candidate, options, *platform, *report);
            return !again.good && kind_of(again.text) == kind;
        });
        std::printf("%s# %s\n", swarm::text_of(shorter).c_str(),
                    try_program(shorter, options, *platform, *report).text.c_str());
        std::fflush(stdout);
        status = 1;
        if (std::getenv("SWARM_GO_ON") == nullptr)
            break;
    }
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    std::printf("swarm: %lu programs of %llu calls, %llu steps of the network, %llu calls of uTofu in %.1f s\n",
                programs, commands, steps, calls, took);
    return status;
}
