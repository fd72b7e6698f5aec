// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the driver: starts a pair of processes per transport, makes them run the same cases in turn, and
// prints medians, spread and ratios as a table and as JSON. Called by: the user (bench/run). Calls: bench.h.
#include "bench.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tofu::bench {
namespace {

constexpr double start_bound_ns = 20e9;
constexpr double case_bound_ns = 60e9;

struct Pair {
    std::string name;
    std::unique_ptr<Transport> transport;
    Control* control = nullptr;
    pid_t side[2] = {-1, -1};
    bool alive = false;
};

[[noreturn]] void child(Pair& pair, int side)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(side % int(sysconf(_SC_NPROCESSORS_ONLN)), &cpus);
    sched_setaffinity(0, sizeof(cpus), &cpus);
    setenv("TOFU_SIM_RANK", side ? "1" : "0", 1);
    setenv("TOFU_SIM_JOB", ("bench-" + std::to_string(getppid()) + "-" + pair.name).c_str(), 1);
    Control& control = *pair.control;
    if (!pair.transport->open(control, side))
        _exit(1);
    control.ready.fetch_add(1);
    for (std::uint32_t round = 1;; ++round) {
        // A side with nothing to do sleeps, so that the pair whose turn it is has the cores.
        while (control.round.load(std::memory_order_acquire) < round)
            usleep(500);
        if (control.case_id < 0) {
            pair.transport.reset();
            std::exit(0);
        }
        double result = pair.transport->run(control, side);
        if (side == 0)
            control.result = result;
        control.done[side].store(round, std::memory_order_release);
    }
}

void end(Pair& pair)
{
    for (pid_t& pid : pair.side) {
        if (pid > 0) {
            kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
        pid = -1;
    }
    pair.alive = false;
}

bool exited(Pair& pair)
{
    for (pid_t& pid : pair.side)
        if (pid > 0 && waitpid(pid, nullptr, WNOHANG) == pid) {
            pid = -1;
            return true;
        }
    return false;
}

void start(Pair& pair)
{
    pair.control = new (mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                             -1, 0)) Control;
    std::fflush(nullptr);
    for (int side = 0; side < 2; ++side)
        if ((pair.side[side] = fork()) == 0)
            child(pair, side);
    double bound = now_ns() + start_bound_ns;
    while (pair.control->ready.load() < 2) {
        if (exited(pair) || now_ns() > bound) {
            std::fprintf(stderr, "bench: %s is left out: it did not come up\n", pair.name.c_str());
            end(pair);
            return;
        }
        usleep(1000);
    }
    pair.alive = true;
}

double run(Pair& pair, int id, std::size_t size, std::size_t iterations)
{
    Control& control = *pair.control;
    control.case_id = id;
    control.size = size;
    control.iterations = iterations;
    control.stop.store(0);
    std::uint32_t round = control.round.fetch_add(1, std::memory_order_acq_rel) + 1;
    double bound = now_ns() + case_bound_ns;
    while (control.done[0].load() < round || control.done[1].load() < round) {
        if (exited(pair) || now_ns() > bound) {
            std::fprintf(stderr, "bench: %s failed in \"%s\"\n", pair.name.c_str(), cases[id].name);
            end(pair);
            return -1;
        }
        usleep(1000);
    }
    return control.result;
}

struct Figure {
    double median = -1, low = -1, high = -1; // spread: quartiles
};

Figure figure_of(std::vector<double> samples)
{
    std::erase_if(samples, [](double s) { return s < 0; });
    if (samples.empty())
        return {};
    std::sort(samples.begin(), samples.end());
    auto at = [&](double part) { return samples[std::size_t(part * double(samples.size() - 1) + 0.5)]; };
    return {at(0.5), at(0.25), at(0.75)};
}

const char* unit_name(Unit unit)
{
    return unit == Unit::ns ? "ns" : unit == Unit::mib_per_s ? "MiB/s" : "M/s";
}

class Report {
  public:
    Report(const std::vector<Pair>& pairs, const char* json_path)
    {
        if (json_path != nullptr && (json_ = std::fopen(json_path, "w")) == nullptr)
            std::perror(json_path);
        std::printf("%-30s %9s %6s", "case", "bytes", "unit");
        for (const Pair& pair : pairs)
            std::printf(" %16s", pair.name.c_str());
        std::printf("\n");
        if (json_ != nullptr)
            std::fprintf(json_, "[");
    }
    ~Report()
    {
        if (json_ != nullptr) {
            std::fprintf(json_, "\n]\n");
            std::fclose(json_);
        }
    }
    void row(const Case& c, std::size_t size, const std::vector<Pair>& pairs,
             const std::vector<Figure>& figures, std::size_t reference)
    {
        std::printf("%-30s %9zu %6s", c.name, size, unit_name(c.unit));
        for (std::size_t i = 0; i < pairs.size(); ++i) {
            double mine = figures[reference].median, theirs = figures[i].median;
            if (theirs < 0)
                std::printf(" %16s", "-");
            else if (i == reference || mine < 0)
                std::printf(" %16.4g", theirs);
            else // how often as good as this transport the reference is
                std::printf(" %8.4g (%4.2fx)", theirs,
                            c.unit == Unit::ns ? theirs / mine : mine / theirs);
            if (json_ != nullptr && theirs >= 0)
                std::fprintf(json_,
                             "%s\n{\"case\": \"%s\", \"bytes\": %zu, \"unit\": \"%s\", \"transport\": "
                             "\"%s\", \"median\": %.6g, \"q1\": %.6g, \"q3\": %.6g}",
                             first_ ? "" : ",", c.name, size, unit_name(c.unit), pairs[i].name.c_str(),
                             theirs, figures[i].low, figures[i].high),
                    first_ = false;
        }
        std::printf("\n");
        std::fflush(stdout);
    }

  private:
    std::FILE* json_ = nullptr;
    bool first_ = true;
};

int usage(int code)
{
    std::fprintf(code ? stderr : stdout,
                 "usage: bench [--utofu LIBRARY] [--providers a,b,...] [--rounds N] [--json FILE] [--case "
                 "WORD]\n"
                 "Measures the machine, raw uTofu calls and libfabric providers (default "
                 "tofu,shm,tcp;ofi_rxm), two processes each,\n"
                 "in turn; prints medians. In brackets: how many times as good the first provider is.\n");
    return code;
}

} // namespace
} // namespace tofu::bench

int main(int argc, char** argv)
{
    using namespace tofu::bench;
    const char* library = "libtofucom.so";
    std::string providers = "tofu,shm,tcp;ofi_rxm";
    const char* json = nullptr;
    const char* only = "";
    int rounds = 5;
    for (int i = 1; i < argc; i += 2) {
        std::string option = argv[i];
        if (option == "--help")
            return usage(0);
        if (i + 1 >= argc)
            return usage(2);
        if (option == "--utofu")
            library = argv[i + 1];
        else if (option == "--providers")
            providers = argv[i + 1];
        else if (option == "--rounds")
            rounds = std::max(1, std::atoi(argv[i + 1]));
        else if (option == "--json")
            json = argv[i + 1];
        else if (option == "--case")
            only = argv[i + 1];
        else
            return usage(2);
    }
    unsetenv("FI_PROVIDER");
    std::vector<Pair> pairs;
    auto add = [&](std::string name, Transport* transport) {
        pairs.emplace_back();
        pairs.back().name = std::move(name);
        pairs.back().transport.reset(transport);
    };
    add("machine", make_machine());
    add("utofu", make_utofu(library));
    for (std::size_t at = 0; at < providers.size();) {
        std::size_t comma = std::min(providers.find(',', at), providers.size());
        std::string name = providers.substr(at, comma - at);
        add(name, make_fabric(name.c_str()));
        at = comma + 1;
    }
    for (Pair& pair : pairs)
        start(pair);
    const std::size_t reference = 2;
    {
        Report report(pairs, json);
        for (int id = 0; id < case_count; ++id) {
            const Case& c = cases[id];
            if (std::strstr(c.name, only) == nullptr)
                continue;
            for (std::size_t size = c.first_size;; size *= 8) {
                size = std::min(size, c.last_size);
                std::size_t iterations =
                    std::max<std::size_t>(16, c.iterations / (1 + size / std::max<std::size_t>(c.first_size, 8192)));
                std::vector<std::vector<double>> samples(pairs.size());
                for (int round = -1; round < rounds; ++round) // the first one warms up
                    for (std::size_t i = 0; i < pairs.size(); ++i)
                        if (pairs[i].alive) {
                            double sample = run(pairs[i], id, size, iterations);
                            if (round >= 0)
                                samples[i].push_back(sample);
                        }
                std::vector<Figure> figures;
                for (auto& s : samples)
                    figures.push_back(figure_of(std::move(s)));
                report.row(c, size, pairs, figures, reference);
                if (size >= c.last_size)
                    break;
            }
        }
    }
    for (Pair& pair : pairs) {
        if (!pair.alive)
            continue;
        pair.control->case_id = -1; // lets libraries clean up what they have in shared memory
        pair.control->round.fetch_add(1, std::memory_order_acq_rel);
        for (int i = 0; i < 2000 && !(exited(pair) && exited(pair)) && (pair.side[0] > 0 || pair.side[1] > 0); ++i)
            usleep(1000);
        end(pair);
    }
    return 0;
}
