// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// swarm [-p PLATFORM] [SECONDS [SEED]]: random programs for so long, from this seed on (default: 10 s, a new one), over
// the deterministic network, or over tcp, shm or sim (platform.h). The first that fails is made shorter and printed, to
// be given to replay. Over the network a process carries out many programs, one after the other; one that fails is
// repeated in a process of its own. Over other platforms each program has a process of its own. SWARM_KNOWN: defects
// that are known, whose programs are left out: "identity" (a successor has the VCQ IDs of what is gone), "closing"
// (what was reported as sent is lost by fi_close), by commas. SWARM_SHOW: prints the program of this seed, and does not
// run it. SWARM_PLAIN: what fails is not made shorter. SWARM_BATCH: most programs of a process. SWARM_DIGEST: prints a
// line for each seed, which is the same in any batch. Run by make check and make swarm.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/random.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generator.h"
#include "world.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned most_seconds = 120;  ///< of one program
constexpr unsigned most_work = 5;       ///< seconds of a processor for one over the network; most need some thousandths
constexpr unsigned shortening = 120;    ///< seconds to make one shorter
constexpr unsigned most_programs = 500; ///< of one process

/// What a process that carries out programs says of them.
struct Report {
    std::uint64_t seed; ///< of the present one
    unsigned long programs;
    unsigned long long commands;
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

/// From here on this process may take so long, until the next call.
void limit_time(const swarm::Platform& platform)
{
    alarm(most_seconds);
    const itimerval most{{0, 0}, {most_work, 0}};
    if (!platform.is_in_real_time())
        (void)setitimer(ITIMER_PROF, &most, nullptr);
}

/// Runs `work` in a process of its own. What it prints before it ends otherwise than by returning is what is wrong.
template <class Work>
Result run_apart(swarm::Platform& platform, Work&& work)
{
    int ends[2];
    if (pipe(ends) != 0)
        std::abort();
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        dup2(ends[1], STDOUT_FILENO);
        if (std::getenv("SWARM_STDERR") == nullptr && std::freopen("/dev/null", "w", stderr) == nullptr)
            _exit(4);
        work();
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
                (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGPROF ? " (does not end)" : "") + "\n";
    else if (WEXITSTATUS(status) != 0 && text.empty())
        text += "status " + std::to_string(WEXITSTATUS(status)) + "\n";
    return {status == 0, text};
}

Result try_program(const swarm::Program& program, const swarm::Options& options, swarm::Platform& platform)
{
    return run_apart(platform, [&] {
        limit_time(platform);
        (void)swarm::run_program(program, options, platform);
    });
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

/// The program of a seed, without what is known or what the platform lacks.
swarm::Program program_for(std::uint64_t seed, const swarm::Platform& platform)
{
    swarm::Program program = swarm::program_of(seed);
    if (knows("identity"))
        program.setup.reuse = 0;
    return platform.fit(std::move(program));
}

/// The programs of these seeds, one after the other in one process.
template <class Seeds>
Result try_seeds(Seeds next, const swarm::Options& options, swarm::Platform& platform, Report& report)
{
    return run_apart(platform, [&] {
        const bool tells = std::getenv("SWARM_DIGEST") != nullptr;
        while (next(report.seed)) {
            limit_time(platform);
            const swarm::Program program = program_for(report.seed, platform);
            const swarm::Numbers numbers = swarm::run_program(program, options, platform);
            report.programs++;
            report.commands += program.commands.size();
            report.numbers.steps += numbers.steps;
            report.numbers.calls += numbers.calls;
            if (tells)
                std::printf("swarm: seed %llu: %llu steps, %llu calls, digest %016llx\n",
                            static_cast<unsigned long long>(report.seed), numbers.steps, numbers.calls, numbers.digest);
        }
        std::fflush(stdout);
    });
}

/// Of programs that fail only behind others of their process: as few of these others as possible.
std::vector<std::uint64_t> fewest_before(std::uint64_t first, std::uint64_t failing, const std::string& kind,
                                         const swarm::Options& options, swarm::Platform& platform)
{
    Report scratch{};
    const auto fails = [&](const std::vector<std::uint64_t>& seeds) {
        std::size_t at = 0;
        const auto next = [&](std::uint64_t& seed) {
            if (at > seeds.size())
                return false;
            seed = at < seeds.size() ? seeds[at] : failing;
            at++;
            return true;
        };
        const Result result = try_seeds(next, options, platform, scratch);
        return !result.good && kind_of(result.text) == kind;
    };
    std::vector<std::uint64_t> best;
    for (std::uint64_t seed = first; seed < failing; seed++)
        best.push_back(seed);
    for (std::size_t chunk = best.size(); chunk != 0; chunk /= 2)
        for (std::size_t at = 0; at < best.size();) {
            std::vector<std::uint64_t> fewer = best;
            const auto from = fewer.begin() + static_cast<std::ptrdiff_t>(at);
            fewer.erase(from, from + static_cast<std::ptrdiff_t>(std::min(chunk, best.size() - at)));
            if (fails(fewer))
                best = std::move(fewer);
            else
                at += chunk;
        }
    return best;
}

/// Prints a failure and the shortest program that shows it.
void show_failure(std::uint64_t first, std::uint64_t seed, const std::string& text, const swarm::Options& options,
                  swarm::Platform& platform)
{
    std::printf("swarm: seed %llu fails: %s", static_cast<unsigned long long>(seed), text.c_str());
    std::fflush(stdout);
    if (std::getenv("SWARM_PLAIN") != nullptr)
        return;
    const std::string kind = kind_of(text);
    const swarm::Program program = program_for(seed, platform);
    const Result alone = try_program(program, options, platform);
    if (alone.good) {
        std::printf("swarm: it passes in a process of its own, and fails behind the programs of the seeds");
        std::fflush(stdout);
        for (const std::uint64_t each : fewest_before(first, seed, kind, options, platform))
            std::printf(" %llu", static_cast<unsigned long long>(each));
        std::printf("\n");
        std::fflush(stdout);
        return;
    }
    const auto found = Clock::now();
    const swarm::Program shorter = swarm::shorten(program, [&](const swarm::Program& candidate) {
        if (Clock::now() - found > std::chrono::seconds(platform.is_in_real_time() ? shortening / 4 : shortening))
            return false;
        const Result again = try_program(candidate, options, platform);
        return !again.good && kind_of(again.text) == kind;
    });
    std::printf("%s# %s\n", swarm::text_of(shorter).c_str(), try_program(shorter, options, platform).text.c_str());
    std::fflush(stdout);
}

/// The seed to begin with: an argument, or a random one.
std::uint64_t first_seed(const char* wanted)
{
    std::uint64_t seed = 0;
    if (wanted != nullptr)
        seed = std::strtoull(wanted, nullptr, 0);
    else if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
    return seed & 0xffffffffffff;
}

/// Programs that a process carries out, one after the other.
unsigned long batch_size(const swarm::Platform& platform)
{
    const char* const wanted = std::getenv("SWARM_BATCH");
    if (!platform.is_repeatable())
        return 1;
    return wanted != nullptr ? std::max(std::strtoul(wanted, nullptr, 0), 1ul) : most_programs;
}

/// Carries out the programs of all seeds from `first` on until the time is over, or until one fails. Status: did one?
int search(std::uint64_t first, Clock::time_point end, swarm::Platform& platform, Report& report)
{
    swarm::Options options;
    options.knows_closing = knows("closing");
    const unsigned long most = batch_size(platform);
    int status = 0;
    for (std::uint64_t seed = first; Clock::now() < end; seed = report.seed + 1) {
        unsigned long count_of_batch = 0;
        const auto next = [&](std::uint64_t& of) {
            if (count_of_batch != 0 && (count_of_batch == most || Clock::now() >= end))
                return false;
            of = seed + count_of_batch++;
            return true;
        };
        Result result = try_seeds(next, options, platform, report);
        while (result.text.rfind("swarm: ", 0) == 0) { // lines about programs that are as they must be
            const std::size_t line = result.text.find('\n') + 1;
            std::printf("%.*s", static_cast<int>(line), result.text.c_str());
            result.text.erase(0, line);
        }
        if (result.good)
            continue;
        show_failure(seed, report.seed, result.text, options, platform);
        status = 1;
        if (std::getenv("SWARM_GO_ON") == nullptr)
            break;
    }
    return status;
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
    const char* seconds = count > 1 ? arguments[1] : std::getenv("SWARM_SECONDS");
    if (seconds == nullptr)
        seconds = "10";
    const std::uint64_t first = first_seed(count > 2 ? arguments[2] : nullptr);
    std::printf("swarm: seeds from %llu on\n", static_cast<unsigned long long>(first));
    std::fflush(stdout);
    if (std::getenv("SWARM_SHOW") != nullptr) {
        std::printf("%s", swarm::text_of(platform->fit(swarm::program_of(first))).c_str());
        return 0;
    }
    Report* const report = shared_report();
    if (report == nullptr)
        return 1;
    const auto start = Clock::now();
    const int status =
        search(first, start + std::chrono::seconds(std::strtoul(seconds, nullptr, 0)), *platform, *report);
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    std::printf("swarm: %lu programs of %llu calls, %llu steps of the network, %llu calls of uTofu in %.1f s\n",
                report->programs, report->commands, report->numbers.steps, report->numbers.calls, took);
    return status;
}
