// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What exact mode (TOFU_SIM_CLOCK=exact) costs here: operations that are simulated in a second, over processes. Run by
// hand.
//
// usage: bench/exact [ROUNDS [PROCESSES...]]        (2000 rounds, with 2, 4, 12 and 64 processes)
// A ring: in each round each process puts 8 bytes to the next one with a notice, and waits for its own. Beside it, in
// the same run, the bare ring: processes on one processor that do nothing but wake the next one.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utofu.h>
#include <vector>

namespace {

constexpr unsigned most = 64;

struct Board {
    pthread_barrier_t barrier;
    std::atomic<utofu_vcq_id_t> ids[most];
    std::atomic<utofu_stadd_t> stadds[most];
    std::atomic<uint64_t> ended_ns[most];
    std::atomic<uint64_t> began_ns;
    struct Turn {
        uint32_t word;
        uint32_t apart[63]; // no line holds two words
    } turns[most];          // of the bare ring
};

struct Result {
    bool good = false;
    double rate = 0;         // operations a second
    double processor_us = 0; // for an operation, all processes together
};

uint64_t now_ns()
{
    timespec now{};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

void must(int code, const char* what)
{
    if (code != UTOFU_SUCCESS) {
        std::fprintf(stderr, "bench/exact: %s: %d\n", what, code);
        std::exit(1);
    }
}

void member(Board& board, unsigned rank, unsigned size, unsigned rounds)
{
    setenv("TOFU_SIM_RANK", std::to_string(rank).c_str(), 1);
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;
    utofu_stadd_t stadd = 0;
    static uint64_t word;
    must(utofu_create_vcq(0, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &id), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, &word, sizeof word, 0, &stadd), "utofu_reg_mem");
    board.ids[rank] = id;
    board.stadds[rank] = stadd;
    (void)pthread_barrier_wait(&board.barrier);
    if (rank == 0)
        board.began_ns = now_ns();
    const unsigned next = (rank + 1) % size;
    for (unsigned round = 0; round < rounds; round++) {
        must(utofu_put_piggyback8(vcq, board.ids[next], round, board.stadds[next], 8, 0,
                                  UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr),
             "utofu_put_piggyback8");
        utofu_mrq_notice notice{};
        int code = UTOFU_ERR_NOT_FOUND;
        while (code == UTOFU_ERR_NOT_FOUND)
            code = utofu_poll_mrq(vcq, 0, &notice);
        must(code, "utofu_poll_mrq");
        void* cbdata = nullptr;
        (void)utofu_poll_tcq(vcq, 0, &cbdata);
    }
    board.ended_ns[rank] = now_ns();
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
}

// As exact mode does it: one processor, and the thread that has the turn wakes the next one.
void bare_member(Board& board, unsigned rank, unsigned size, unsigned rounds)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
    if (rank == 0)
        board.ids[0] = static_cast<utofu_vcq_id_t>(sched_getcpu());
    (void)pthread_barrier_wait(&board.barrier);
    CPU_ZERO(&one);
    CPU_SET(board.ids[0].load(), &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    (void)pthread_barrier_wait(&board.barrier);
    if (rank == 0)
        board.began_ns = now_ns();
    uint32_t* const own = &board.turns[rank].word;
    uint32_t* const next = &board.turns[(rank + 1) % size].word;
    for (uint32_t round = 0; round < rounds; round++) {
        while ((rank != 0 || round != 0) && __atomic_load_n(own, __ATOMIC_ACQUIRE) == (rank != 0 ? round : round - 1))
            (void)syscall(SYS_futex, own, FUTEX_WAIT, rank != 0 ? round : round - 1, nullptr, nullptr, 0);
        (void)__atomic_fetch_add(next, 1, __ATOMIC_RELEASE);
        (void)syscall(SYS_futex, next, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    }
    board.ended_ns[rank] = now_ns();
}

double processor_time_us()
{
    rusage used{};
    (void)getrusage(RUSAGE_CHILDREN, &used);
    return double(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           double(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

Result measure(void (*run)(Board&, unsigned, unsigned, unsigned), unsigned size, unsigned rounds)
{
    const double used_before = processor_time_us();
    auto* const board =
        static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (board == MAP_FAILED) {
        std::perror("bench/exact");
        return {};
    }
    pthread_barrierattr_t attributes;
    (void)pthread_barrierattr_init(&attributes);
    (void)pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    (void)pthread_barrier_init(&board->barrier, &attributes, size);
    setenv("TOFU_SIM_CLOCK", "exact", 1);
    setenv("TOFU_SIM_SHAPE", "1x1x6", 1); // 72 nodes
    setenv("TOFU_SIM_PPN", "1", 1);
    setenv("TOFU_SIM_SIZE", std::to_string(size).c_str(), 1);
    setenv("TOFU_SIM_JOB", ("bench-exact-" + std::to_string(getpid()) + "-" + std::to_string(size)).c_str(), 1);
    std::vector<pid_t> children;
    for (unsigned rank = 0; rank < size; rank++) {
        const pid_t child = fork();
        if (child == 0) {
            run(*board, rank, size, rounds);
            std::exit(0);
        }
        children.push_back(child);
    }
    Result result{true};
    for (const pid_t child : children) {
        int status = 0;
        result.good = waitpid(child, &status, 0) == child && status == 0 && result.good;
    }
    uint64_t ended = 0;
    for (unsigned rank = 0; rank < size; rank++)
        ended = std::max(ended, board->ended_ns[rank].load());
    const double operations = double(size) * rounds;
    result.rate = operations * 1e9 / double(ended - board->began_ns);
    result.processor_us = (processor_time_us() - used_before) / operations;
    (void)munmap(board, sizeof(Board));
    return result;
}

int usage()
{
    std::fprintf(stderr, "usage: bench/exact [ROUNDS [PROCESSES...]]   (1 to 1000000, 2 to %u)\n", most);
    return 2;
}

} // namespace

int main(int argc, char** argv)
{
    const long rounds = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 2000;
    if (rounds < 1 || rounds > 1'000'000)
        return usage();
    std::vector<unsigned> sizes;
    for (int i = 2; i < argc; i++) {
        sizes.push_back(static_cast<unsigned>(std::strtoul(argv[i], nullptr, 10)));
        if (sizes.back() < 2 || sizes.back() > most)
            return usage();
    }
    if (sizes.empty())
        sizes = {2, 4, 12, 64};
    std::puts("| processes | operations a second | the bare ring | part of it | processor time of both "
              "|\n|---|---|---|---|---|");
    std::fflush(stdout); // before fork
    for (const unsigned size : sizes) {
        const Result exact = measure(member, size, static_cast<unsigned>(rounds));
        const Result bare = measure(bare_member, size, static_cast<unsigned>(rounds));
        if (!exact.good || !bare.good)
            return 1;
        std::printf("| %u | %.0f | %.0f | %.0f %% | %.1f us, %.1f us |\n", size, exact.rate, bare.rate,
                    100 * exact.rate / bare.rate, exact.processor_us, bare.processor_us);
        std::fflush(stdout);
    }
    return 0;
}
