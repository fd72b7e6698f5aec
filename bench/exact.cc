// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: what exact mode (TOFU_SIM_CLOCK=exact) costs here: operations that are simulated in a second, over processes.
// Called by: people. Calls: the uTofu library.
//
// usage: bench/exact [ROUNDS [PROCESSES...]]        (2000 rounds, with 2, 4, 12 and 64 processes)
// A ring: in each round each process puts 8 bytes to the next one with a notice, and waits for its own.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
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
    if (rank == 0) {
        board.began_ns = now_ns();
    }
    const unsigned next = (rank + 1) % size;
    for (unsigned round = 0; round < rounds; round++) {
        must(utofu_put_piggyback8(vcq, board.ids[next], round, board.stadds[next], 8, 0,
                                  UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr),
             "utofu_put_piggyback8");
        utofu_mrq_notice notice{};
        int code = UTOFU_ERR_NOT_FOUND;
        while (code == UTOFU_ERR_NOT_FOUND) {
            code = utofu_poll_mrq(vcq, 0, &notice);
        }
        must(code, "utofu_poll_mrq");
        void* cbdata = nullptr;
        (void)utofu_poll_tcq(vcq, 0, &cbdata);
    }
    board.ended_ns[rank] = now_ns();
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
}

bool measure(unsigned size, unsigned rounds)
{
    auto* const board =
        static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (board == MAP_FAILED) {
        std::perror("bench/exact");
        return false;
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
            member(*board, rank, size, rounds);
            std::exit(0);
        }
        children.push_back(child);
    }
    bool good = true;
    for (const pid_t child : children) {
        int status = 0;
        good = waitpid(child, &status, 0) == child && status == 0 && good;
    }
    uint64_t ended = 0;
    for (unsigned rank = 0; rank < size; rank++) {
        ended = std::max(ended, board->ended_ns[rank].load());
    }
    if (good) {
        const double seconds = double(ended - board->began_ns) / 1e9;
        std::printf("| %u | %.0f |\n", size, double(size) * rounds / seconds);
        std::fflush(stdout);
    }
    (void)munmap(board, sizeof(Board));
    return good;
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
    if (rounds < 1 || rounds > 1'000'000) {
        return usage();
    }
    std::vector<unsigned> sizes;
    for (int i = 2; i < argc; i++) {
        sizes.push_back(static_cast<unsigned>(std::strtoul(argv[i], nullptr, 10)));
        if (sizes.back() < 2 || sizes.back() > most) {
            return usage();
        }
    }
    if (sizes.empty()) {
        sizes = {2, 4, 12, 64};
    }
    std::puts("| processes | operations a second |\n|---|---|");
    std::fflush(stdout); // before fork
    for (const unsigned size : sizes) {
        if (!measure(size, static_cast<unsigned>(rounds))) {
            return 1;
        }
    }
    return 0;
}
