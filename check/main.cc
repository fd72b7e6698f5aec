// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// tofu-check: runs each check in processes of its own, bounds them, and prints the report. man/tofu-check.1.
// A supervisor never calls uTofu itself: what a library does to a process does not reach it.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include <fcntl.h>
#include <getopt.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

namespace tofu::check {
namespace {

struct Options {
    std::string library = "libtofucom.so";
    std::string meet;   ///< empty: both processes are ours
    std::string only;   ///< names by commas; empty: all
    std::string worker; ///< the check that this process is a worker of
    int rank = -1;
    bool pair = false;
    bool here = false; ///< no processes of its own: the checks run in the launcher's
    bool list = false;
    bool figures = true;
    bool verbose = false;
};

constexpr const char* measuring = "figures";

[[gnu::format(printf, 1, 2)]] [[noreturn]] void give_up(const char* format, ...)
{
    va_list list;
    va_start(list, format);
    std::fputs("tofu-check: ", stderr);
    std::vfprintf(stderr, format, list);
    std::fputs("\n", stderr);
    va_end(list);
    std::exit(2);
}

/// Longer than any wait of a check: a process that is still there does not wait but hangs.
double time_limit()
{
    return 8 * Patience::seconds;
}

// --- the worker

Finding run_check(const Options& options, Meeting& meeting)
{
    Library library;
    std::string why;
    if (!library.load(options.library.c_str(), why))
        return fails("%s", why.c_str());
    Side side{library, meeting, {}};
    if (!library.missing.empty() && options.worker != "functions")
        return not_tried("functions are missing");
    if (library.missing.empty()) {
        utofu_tni_id_t* tnis = nullptr;
        std::size_t n = 0;
        must(library.get_onesided_tnis(&tnis, &n), "utofu_get_onesided_tnis");
        side.tnis.assign(tnis, tnis + n);
        std::free(tnis);
        if (n == 0)
            return fails("no TNI for one-sided communication: run this on a compute node, in a job");
        utofu_onesided_caps* caps = nullptr;
        must(library.query_onesided_caps(side.tnis[0], &caps), "utofu_query_onesided_caps");
        side.caps = *caps;
    }
    if (options.worker == measuring)
        return measure(side);
    for (const Check& check : all_checks())
        if (options.worker == check.name)
            return check.run(side);
    give_up("unknown check %s: --list shows all", options.worker.c_str());
}

int work(const Options& options)
{
    Meeting meeting(options.meet, options.worker, options.rank);
    Finding finding;
    try {
        finding = run_check(options, meeting);
    } catch (const Stop& stop) {
        finding = stop.finding;
    } catch (const Silence& silence) {
        finding = fails("%s did not arrive within %g seconds", silence.what.c_str(), Patience::seconds);
    }
    try {
        meeting.leave_finding(finding);
    } catch (const Stop& stop) {
        give_up("%s", stop.finding.seen.c_str());
    }
    return 0;
}

// --- the supervisor

pid_t start(const Options& options, const char* check, int rank, bool own_job)
{
    const pid_t child = fork();
    if (child != 0)
        return child;
    if (own_job) { // on the simulator the two are ranks of one job; nothing else reads these
        setenv("TOFU_SIM_RANK", std::to_string(rank).c_str(), 1);
        setenv("TOFU_SIM_SIZE", "2", 1);
    }
    const std::string number = std::to_string(rank);
    const std::string patience = text("%g", Patience::seconds);
    execl("/proc/self/exe", "tofu-check", "--worker", check, "--rank", number.c_str(), "--meet", options.meet.c_str(),
          "--library", options.library.c_str(), "--patience", patience.c_str(), static_cast<char*>(nullptr));
    _exit(127);
}

/// How a worker ended that has left no finding; nothing where it is still running.
std::optional<std::string> end_of(pid_t& child)
{
    int status = 0;
    if (child <= 0 || waitpid(child, &status, WNOHANG) == 0)
        return child > 0 ? std::nullopt : std::optional<std::string>("could not be started");
    child = 0;
    return WIFSIGNALED(status) ? text("ended by signal %d", WTERMSIG(status))
                               : text("ended with status %d", WEXITSTATUS(status));
}

/// Waits for own workers, ends those that hang, and says for them what they did not.
void attend(const Options& options, const char* check, pid_t (&workers)[2])
{
    Patience patience("a worker", time_limit());
    for (int rank = 0; rank < 2; rank++) {
        Meeting meeting(options.meet, check, rank);
        if (workers[rank] == 0)
            continue;
        try {
            for (;;) {
                if (const auto how = end_of(workers[rank])) {
                    if (!meeting.finding_of(rank))
                        meeting.leave_finding(fails("process %d %s", rank, how->c_str()));
                    break;
                }
                usleep(500);
                for (int i = 0; i < 64; i++)
                    patience.next();
            }
        } catch (const Silence&) {
            kill(workers[rank], SIGKILL);
            waitpid(workers[rank], nullptr, 0);
            if (!meeting.finding_of(rank))
                meeting.leave_finding(fails("process %d was still running after %g seconds", rank, time_limit()));
        }
    }
}

/// The heavier finding of the two processes.
Finding judge(const Options& options, const char* check, int processes)
{
    Finding worst;
    for (int rank = 0; rank < processes; rank++) {
        const Meeting meeting(options.meet, check, rank);
        std::optional<Finding> found;
        try {
            for (Patience patience("the other process", time_limit()); !(found = meeting.finding_of(rank));) {
                usleep(1000);
                for (int i = 0; i < 64; i++)
                    patience.next();
            }
        } catch (const Silence&) {
            found = fails("process %d did not start: start two processes with the same directory", rank);
        }
        if (found->verdict > worst.verdict)
            worst = *found;
    }
    return worst.verdict == Verdict::none ? fails("neither process has results") : worst;
}

Finding carry_out(const Options& options, const char* check, int processes)
{
    const bool both = options.rank < 0;
    if (options.here) {
        Options own = options;
        own.worker = check;
        if (options.rank < processes)
            (void)work(own);
        return options.rank == 0 ? judge(options, check, processes) : Finding{};
    }
    pid_t workers[2] = {};
    for (int rank = 0; rank < processes; rank++)
        if (both || rank == options.rank)
            workers[rank] = start(options, check, rank, both);
    attend(options, check, workers);
    return both || options.rank == 0 ? judge(options, check, processes) : Finding{};
}

void print_head(const Options& options)
{
    // A process of its own looks: the report's does not call the library.
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        Library library;
        std::string why;
        if (!library.load(options.library.c_str(), why)) {
            std::fprintf(stderr, "tofu-check: %s; --library names another one\n", why.c_str());
            std::fflush(stderr);
            _exit(2);
        }
        int major = 0, minor = 0, tofu_major = 0, tofu_minor = 0;
        if (library.query_utofu_version != nullptr)
            library.query_utofu_version(&major, &minor);
        if (library.query_tofu_version != nullptr)
            library.query_tofu_version(&tofu_major, &tofu_minor);
        utsname system{};
        (void)uname(&system);
        std::printf("tofu-check %s: %s, uTofu %d.%d, Tofu %d.%d%s%s\n", TOFU_CHECK_VERSION, options.library.c_str(),
                    major, minor, tofu_major, tofu_minor, library.simulator_version != nullptr ? ", simulator " : "",
                    library.simulator_version != nullptr ? library.simulator_version() : "");
        std::printf("%s %s %s, pages of %ld bytes, %s\n\n", system.sysname, system.release, system.machine,
                    sysconf(_SC_PAGESIZE), options.rank < 0 ? "two processes of this node" : "processes of a launcher");
        std::fflush(stdout);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        std::exit(2);
}

bool is_wanted(const Options& options, const std::string& name)
{
    return options.only.empty() || ("," + options.only + ",").find("," + name + ",") != std::string::npos;
}

int report(const Options& options)
{
    const bool speaks = options.rank <= 0;
    unsigned counts[5] = {};
    for (const Check& check : all_checks()) {
        if (!is_wanted(options, check.name))
            continue;
        const Finding finding = carry_out(options, check.name, check.processes);
        if (!speaks)
            continue;
        counts[static_cast<int>(finding.verdict)]++;
        std::printf("%-9s  %-18s %s\n", name_of(finding.verdict), check.name, finding.seen.c_str());
        if (options.verbose || finding.verdict == Verdict::weaker || finding.verdict == Verdict::fails)
            std::printf("%-9s  %-18s looked for: %s; relied on by: %s\n", "", "", check.claim, check.relies);
        std::fflush(stdout);
    }
    if (options.figures && is_wanted(options, measuring)) {
        const Finding lines = carry_out(options, measuring, 2);
        if (speaks)
            std::printf("\n%s%s\n", lines.seen.c_str(), lines.verdict == Verdict::holds ? "" : ": no figures");
    }
    if (!speaks)
        return 0;
    std::printf("%u hold, %u weaker, %u fail, %u not tried\n", counts[static_cast<int>(Verdict::holds)],
                counts[static_cast<int>(Verdict::weaker)], counts[static_cast<int>(Verdict::fails)],
                counts[static_cast<int>(Verdict::not_tried)]);
    return counts[static_cast<int>(Verdict::fails)] != 0 ? 1 : 0;
}

// --- two processes that a launcher has started, or two of ours

void remove_files(const std::string& directory)
{
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
        std::filesystem::remove(entry.path(), ignored);
}

int launched(const Options& options)
{
    if (options.rank > 1)
        return 0; // two are enough
    if (options.rank == 0)
        print_head(options);
    const std::string mark = options.meet + "/here." + std::to_string(options.rank);
    if (mkdir(options.meet.c_str(), 0700) != 0 && errno != EEXIST)
        give_up("--meet %s: %s", options.meet.c_str(), std::strerror(errno));
    const int file = open(mark.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        give_up("%s: %s: --meet needs a new directory that both processes see", mark.c_str(), std::strerror(errno));
    close(file);
    const int status = report(options);
    Meeting end(options.meet, "end", options.rank);
    try {
        end.leave_finding({});
        if (options.rank == 0)
            (void)judge(options, "end", 2);
    } catch (const Stop&) {
    }
    if (options.rank == 0)
        remove_files(options.meet);
    return status;
}

int pair(Options& options)
{
    options.rank = -1;
    print_head(options);
    const char* const place = std::getenv("TMPDIR");
    std::string made = std::string(place != nullptr && *place != '\0' ? place : "/tmp") + "/tofu-check.XXXXXX";
    if (mkdtemp(made.data()) == nullptr)
        give_up("cannot create a directory in %s: %s: set TMPDIR", made.c_str(), std::strerror(errno));
    options.meet = made;
    // On the simulator a separate job, unless the user has chosen one.
    if (std::getenv("TOFU_SIM_JOB") == nullptr) {
        setenv("TOFU_SIM_JOB", text("tofu-check-%d", getpid()).c_str(), 1);
        setenv("TOFU_SIM_PPN", "2", 0);
    }
    const int status = report(options);
    remove_files(made);
    rmdir(made.c_str());
    return status;
}

/// The whole text as a number from `low` to `high`; else the command ends.
template <class Number>
Number number_of(const char* name, const char* value, Number low, Number high, const char* expected)
{
    Number number{};
    const char* const end = value + std::strlen(value);
    const auto [stop, error] = std::from_chars(value, end, number);
    if (error != std::errc{} || stop != end || !(number >= low && number <= high)) // NaN is neither
        give_up("%s %s: use %s", name, value, expected);
    return number;
}

int rank_of(const char* name, const char* value)
{
    return number_of(name, value, 0, std::numeric_limits<int>::max(), "the number of this process, 0 or more");
}

/// What launchers call this process.
int rank_of_launcher()
{
    for (const char* name : {"TOFU_SIM_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
        if (const char* const value = std::getenv(name); value != nullptr && *value != '\0')
            return rank_of(name, value);
    return -1;
}

void help()
{
    std::puts("usage: tofu-check [options]\n"
              "Checks every assumption that the libfabric provider tofu makes about uTofu, and prints a report.\n"
              "  --library PATH   the uTofu library (libtofucom.so; FI_TOFU_BACKEND if that is a path)\n"
              "  --meet DIR       for processes of a launcher: a new directory that both processes see\n"
              "  --rank N         number of this process, if the launcher does not set it\n"
              "  --pair           starts two processes on this node, also under a launcher\n"
              "  --here           with --meet: the checks run in the launcher's processes themselves\n"
              "  --only NAMES     only these checks, separated by commas\n"
              "  --no-figures     without measurements\n"
              "  --patience S     seconds to wait for an event that should be immediate (5)\n"
              "  --list           the checks, and which part of the provider relies on each\n"
              "  --verbose        prints this for checks that hold as well");
}

/// Runs the checks, as the options say how the two processes meet.
int start(Options& options)
{
    if (options.rank < 0)
        options.rank = rank_of_launcher();
    if (options.here && (options.meet.empty() || options.pair || options.only.empty()))
        give_up("--here needs --meet, and the checks in --only");
    if (!options.meet.empty() && !options.pair) {
        if (options.rank < 0)
            give_up("the launcher has not set the number of this process: use --rank 0 and --rank 1");
        return launched(options);
    }
    if (options.rank >= 0 && !options.pair)
        give_up("this process was started by a launcher: use --meet DIR with a new directory that both processes see, "
                "or --pair to start two processes from each");
    return pair(options);
}

/// Ends the program if one of the names in a list with commas is no check.
void refuse_unknown(const std::string& only)
{
    for (std::size_t from = 0; from < only.size();) {
        const std::size_t end = std::min(only.find(',', from), only.size());
        const std::string name = only.substr(from, end - from);
        const auto all = all_checks();
        if (name != measuring && std::none_of(all.begin(), all.end(), [&](const Check& c) { return name == c.name; }))
            give_up("unknown check %s: --list shows all", name.c_str());
        from = end + 1;
    }
}

int run(int argc, char** argv)
{
    enum { library = 1, meet, rank, pair_option, here, only, no_figures, patience, list, verbose, worker };
    static constexpr option known[] = {{"library", required_argument, nullptr, library},
                                       {"meet", required_argument, nullptr, meet},
                                       {"rank", required_argument, nullptr, rank},
                                       {"pair", no_argument, nullptr, pair_option},
                                       {"here", no_argument, nullptr, here},
                                       {"only", required_argument, nullptr, only},
                                       {"no-figures", no_argument, nullptr, no_figures},
                                       {"patience", required_argument, nullptr, patience},
                                       {"list", no_argument, nullptr, list},
                                       {"verbose", no_argument, nullptr, verbose},
                                       {"worker", required_argument, nullptr, worker},
                                       {"help", no_argument, nullptr, 'h'},
                                       {nullptr, 0, nullptr, 0}};
    Options options;
    if (const char* const backend = std::getenv("FI_TOFU_BACKEND"); backend != nullptr && std::strchr(backend, '/'))
        options.library = backend;
    for (int which; (which = getopt_long(argc, argv, "h", known, nullptr)) != -1;)
        switch (which) {
        case library: options.library = optarg; break;
        case meet: options.meet = optarg; break;
        case rank: options.rank = rank_of("--rank", optarg); break;
        case pair_option: options.pair = true; break;
        case here: options.here = true; break;
        case only: options.only = optarg; break;
        case no_figures: options.figures = false; break;
        case patience:
            Patience::seconds = number_of("--patience", optarg, 0.001, 86400.0, "seconds, 0.001 to 86400");
            break;
        case list: options.list = true; break;
        case verbose: options.verbose = true; break;
        case worker: options.worker = optarg; break;
        case 'h': help(); return 0;
        default: help(); return 2;
        }
    if (optind != argc) {
        help();
        return 2;
    }
    if (!options.worker.empty()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); // not even a library that hangs outlives its supervisor
        return work(options);
    }
    if (options.list) {
        for (const Check& check : all_checks())
            std::printf("%-18s %s; relied on by: %s\n", check.name, check.claim, check.relies);
        return 0;
    }
    refuse_unknown(options.only);
    return start(options);
}

} // namespace
} // namespace tofu::check

int main(int argc, char** argv)
{
    const int status = tofu::check::run(argc, argv);
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)
        return status;
    // An error of an earlier write has left its mark, but not its number.
    std::fprintf(stderr, "tofu-check: cannot write to standard output: %s\n",
                 errno != 0 ? std::strerror(errno) : "the report is not complete");
    return status != 0 ? status : 1;
}
