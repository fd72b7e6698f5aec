// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Barriers and reductions on barrier gates, by shape of the circuit and number of processes, beside a plain counter in
// shared memory whose waiters give up the processor. Run by hand.
#include "../tests/sim/barrier/circuits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <sched.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace tofu::bench {
namespace {

using sim::test::GateAt;
using sim::test::Shape;

constexpr int max_members = 48;
constexpr int max_gates = 16;
constexpr double bound_seconds = 20;

struct Board {
    std::atomic<int> arrived{0};
    std::atomic<int> round{0};
    std::atomic<int> failed{0};
    std::atomic<uint64_t> ids[max_members][max_gates];
    double result_us = 0;
    double cpu_us[max_members] = {};
};

double now_us()
{
    using namespace std::chrono;
    return double(duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count()) / 1000;
}

double cpu_us()
{
    rusage usage{};
    (void)getrusage(RUSAGE_SELF, &usage);
    const auto us = [](const timeval& t) { return double(t.tv_sec) * 1e6 + double(t.tv_usec); };
    return us(usage.ru_utime) + us(usage.ru_stime);
}

void give_up(Board& board, const char* what, int code)
{
    std::fprintf(stderr, "barrier_gates: %s: %d\n", what, code);
    board.failed.store(1);
    std::exit(1);
}

// The plain counter.
void meet(Board& board, int members)
{
    const int round = board.round.load();
    if (board.arrived.fetch_add(1) + 1 == members) {
        board.arrived.store(0);
        board.round.store(round + 1);
        return;
    }
    for (unsigned polls = 0; board.round.load() == round; polls++) {
        if (board.failed.load() != 0)
            std::exit(1);
        if (polls >= 200 || members > 2)
            sched_yield();
    }
}

struct Case {
    const char* name;
    bool gates;
    Shape shape;
    int doubles; // of a reduction; 0: a barrier
};

void round_of_gates(Board& board, utofu_vbg_id_t id, int doubles)
{
    double values[3] = {1, 2, 3};
    int rc = doubles == 0 ? utofu_barrier(id, 0)
                          : utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, values, size_t(doubles), 0);
    if (rc != UTOFU_SUCCESS)
        give_up(board, "start", rc);
    do {
        rc = doubles == 0 ? utofu_poll_barrier(id, 0) : utofu_poll_reduce_double(id, 0, values);
    } while (rc == UTOFU_ERR_NOT_COMPLETED);
    if (rc != UTOFU_SUCCESS)
        give_up(board, "poll", rc);
}

utofu_vbg_id_t build(Board& board, Shape shape, int members, int me)
{
    const auto plan = sim::test::plan_circuit(shape, members, me);
    std::vector<utofu_vbg_id_t> ids(plan.size());
    int rc = utofu_alloc_vbg(utofu_tni_id_t(me % 6), ids.size(), 0, ids.data());
    if (rc != UTOFU_SUCCESS)
        give_up(board, "utofu_alloc_vbg", rc);
    for (size_t i = 0; i < ids.size(); i++)
        board.ids[me][i].store(ids[i]);
    meet(board, members);
    auto settings = sim::test::settings_of(plan, me, [&](GateAt at) { return board.ids[at.member][at.gate].load(); });
    rc = utofu_set_vbg(settings.data(), settings.size());
    if (rc != UTOFU_SUCCESS)
        give_up(board, "utofu_set_vbg", rc);
    meet(board, members);
    return ids[0];
}

[[noreturn]] void member(Board& board, const Case& what, int members, int me, int rounds)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(unsigned(bound_seconds));
    setenv("TOFU_SIM_RANK", std::to_string(me).c_str(), 1);
    setenv("TOFU_SIM_JOB", ("bench-gates-" + std::to_string(getppid())).c_str(), 1);
    std::function<void()> one = [&] { meet(board, members); };
    if (what.gates) {
        const utofu_vbg_id_t id = build(board, what.shape, members, me);
        one = [&board, id, &what] { round_of_gates(board, id, what.doubles); };
    }
    for (int i = 0; i < rounds / 10; i++)
        one();
    meet(board, members);
    const double cpu = cpu_us();
    const double start = now_us();
    for (int i = 0; i < rounds; i++)
        one();
    if (me == 0)
        board.result_us = (now_us() - start) / rounds;
    board.cpu_us[me] = (cpu_us() - cpu) / rounds;
    meet(board, members);
    std::exit(0);
}

// Microseconds a round; below 0: failed.
double run(const Case& what, int members, bool quick, double& cpu_spread)
{
    void* const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    auto* const board = new (memory) Board;
    const int rounds = (members <= 2 ? 100000 : members <= 8 ? 5000 : 1000) / (quick ? 50 : 1);
    std::vector<pid_t> pids;
    for (int i = 0; i < members; i++) {
        pids.push_back(fork());
        if (pids.back() == 0)
            member(*board, what, members, i, rounds);
    }
    bool good = true;
    for (const pid_t pid : pids) {
        int status = 0;
        waitpid(pid, &status, 0);
        if (status != 0) {
            board->failed.store(1);
            good = false;
        }
    }
    const auto [low, high] = std::minmax_element(board->cpu_us, board->cpu_us + members);
    cpu_spread = *low > 0 ? *high / *low : 0;
    const double result = good ? board->result_us : -1;
    munmap(memory, sizeof(Board));
    return result;
}

constexpr Case cases[] = {
    {"shared counter, yields", false, Shape::ring, 0},
    {"gates, butterfly", true, Shape::butterfly, 0},
    {"gates, tree", true, Shape::tree, 0},
    {"gates, ring", true, Shape::ring, 0},
    {"gates, butterfly, BFPSUM of 3", true, Shape::butterfly, 3},
};

struct Options {
    std::vector<int> sizes;
    int rounds = 1;
    bool samples = false; // for bench/report
    bool quick = false;
    double seconds = 30; // no other round after that
};

// Everything in turn, as often as asked for; each time what came out, and at the end the lines for
// bench/report.
int report(const Options& options)
{
    bool good = true;
    (void)std::setvbuf(stdout, nullptr, _IOLBF, 0); // nothing unwritten when we fork
    std::map<std::pair<int, int>, std::pair<std::string, std::string>> lists;
    if (!options.samples)
        std::printf("%-30s %9s %12s %12s %18s\n", "barrier", "processes", "us a round", "of counter", "cpu most/least");
    const double start = now_us();
    for (int round = 0; round < options.rounds; ++round) {
        if (round > 0 && now_us() - start > options.seconds * 1e6)
            break;
        for (const int members : options.sizes) {
            double counter = 0;
            for (const Case& what : cases) {
                double spread = 0;
                const double us = run(what, members, options.quick, spread);
                counter = what.gates ? counter : us;
                good = good && us >= 0;
                if (!options.samples) {
                    std::printf("%-30s %9d %12.3f %12.2f %18.2f\n", what.name, members, us,
                                counter > 0 ? us / counter : 0, spread);
                    continue;
                }
                auto& [times, spreads] = lists[{members, int(&what - cases)}];
                times += (times.empty() ? "" : ",") + std::to_string(us);
                spreads += (spreads.empty() ? "" : ",") + std::to_string(spread);
            }
        }
    }
    for (const auto& [key, list] : lists) {
        const auto& [members, what] = key;
        std::printf("Barrier gates\tbarrier, a round\t0\t%d\tus\t%s\t%s\n", members, cases[what].name,
                    list.first.c_str());
    }
    for (const auto& [key, list] : lists) {
        const auto& [members, what] = key;
        if (members > 2)
            std::printf("Barrier gates\tprocessor time, most / least\t0\t%d\t\t%s\t%s\n", members, cases[what].name,
                        list.second.c_str());
    }
    return good ? 0 : 1;
}

int usage()
{
    std::fprintf(stderr, "usage: barrier_gates [--rounds N] [--quick] [--samples] [PROCESSES...], each 1 to %d\n",
                 max_members);
    return 2;
}

} // namespace
} // namespace tofu::bench

int main(int argc, char** argv)
{
    tofu::bench::Options options;
    for (int i = 1; i < argc; i++) {
        if (std::strcmp(argv[i], "--samples") == 0) {
            options.samples = true;
        } else if (std::strcmp(argv[i], "--quick") == 0) {
            options.quick = true;
        } else if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            options.rounds = std::atoi(argv[++i]);
        } else {
            options.sizes.push_back(std::atoi(argv[i]));
            if (options.sizes.back() < 1 || options.sizes.back() > tofu::bench::max_members)
                return tofu::bench::usage();
        }
    }
    if (options.sizes.empty())
        options.sizes = {1, 2, 4, 12, 48};
    return tofu::bench::report(options);
}
