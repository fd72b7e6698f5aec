// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How much of a transfer goes on while one side computes and calls nothing (MPI's MPI_Isend, work, MPI_Wait): of 16 MiB
// by rendezvous, for each side, with manual and with automatic progress. Run by bench/run and by hand.
//
// Of the side that computes: the time of the transfer alone, of the computation alone, which is chosen as long, and of
// both. What both take less than one after the other is what they overlap, as a part of the computation. The other side
// sleeps in fi_cq_sread: with two processors each side has one.
#include "frame/objects.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <rdma/fi_tagged.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace tofu::bench;
using Clock = std::chrono::steady_clock;

constexpr std::size_t length = std::size_t{16} << 20;
constexpr int sample_rounds = 9;
constexpr int warm_ups = 24; // the simulator moves memory from which much was copied, once

/// What the two processes of a measurement share.
struct Board {
    std::atomic<unsigned> arrived{0};
    char names[2][64] = {};
    double percent[sample_rounds] = {};
};

struct Case {
    const char* name;
    fi_progress progress;
    unsigned computes; ///< 0: the sender; 1: the receiver
};

double microseconds_since(Clock::time_point begin)
{
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// Multiplications, each of which waits for the one before.
void compute(long steps)
{
    double x = 1.0;
    for (; steps > 0; steps--) {
        x = x * 0.999999 + 1e-9;
        asm volatile("" : "+m"(x));
    }
}

class Process {
  public:
    Process(const Case& which, unsigned number, Board& board)
        : computes_(which.computes == number), sends_(number == 0), board_(board),
          objects_({.progress = which.progress, .wait = FI_WAIT_UNSPEC}), memory_(map_pages(length)),
          end_(objects_.add_endpoint()), region_(objects_.add_region(memory_, length, 1))
    {
        std::size_t size = sizeof(board.names[0]);
        check(fi_getname(&end_->fid, board.names[number], &size), "fi_getname");
        meet();
        check(fi_av_insert(objects_.av, board.names[1 - number], 1, &peer_, 0, nullptr) - 1, "fi_av_insert");
    }
    void run(int rounds)
    {
        constexpr long trial = 1'000'000;
        const auto begin = Clock::now();
        compute(trial);
        const double step_us = microseconds_since(begin) / trial;
        for (int left = warm_ups; left > 0; left--)
            (void)transfer(0);
        for (int round = 0; round < rounds; round++) {
            const double alone = transfer(0);
            const long steps = static_cast<long>(alone / step_us);
            const auto start = Clock::now();
            if (computes_)
                compute(steps);
            const double computed = microseconds_since(start);
            const double both = transfer(steps);
            if (computes_)
                board_.percent[round] =
                    100 * std::clamp((alone + computed - both) / std::min(alone, computed), 0.0, 1.0);
        }
        meet();
    }

  private:
    /// One message, with so much computation beside it where we are to compute. Its microseconds.
    double transfer(long steps)
    {
        meet();
        const auto begin = Clock::now();
        objects_.post(sends_ ? "fi_tsend" : "fi_trecv", objects_, [&] {
            void* const desc = fi_mr_desc(region_);
            return sends_ ? fi_tsend(end_, memory_, length, desc, peer_, 1, nullptr)
                          : fi_trecv(end_, memory_, length, desc, peer_, 1, 0, nullptr);
        });
        if (computes_)
            compute(steps);
        fi_cq_tagged_entry entry;
        const ssize_t n = fi_cq_sread(objects_.cq, &entry, 1, nullptr, 30000);
        check(n == -FI_EAGAIN ? -FI_ETIMEDOUT : n, "fi_cq_sread");
        return microseconds_since(begin);
    }
    /// Between transfers, when there is nothing to make progress with.
    void meet()
    {
        board_.arrived++;
        for (const unsigned all = 2 * ++meetings_; board_.arrived < all;)
            sched_yield();
    }

    const bool computes_, sends_;
    Board& board_;
    Objects objects_;
    char* const memory_;
    fid_ep* const end_;
    fid_mr* const region_;
    fi_addr_t peer_ = FI_ADDR_UNSPEC;
    unsigned meetings_ = 0;
};

} // namespace

int main(int argc, char** argv)
{
    const int rounds = argc > 1 && std::string(argv[1]) == "--quick" ? 1 : sample_rounds;
    constexpr Case cases[] = {
        {"the sender computes, manual progress", FI_PROGRESS_MANUAL, 0},
        {"the sender computes, automatic progress", FI_PROGRESS_AUTO, 0},
        {"the receiver computes, manual progress", FI_PROGRESS_MANUAL, 1},
        {"the receiver computes, automatic progress", FI_PROGRESS_AUTO, 1},
    };
    for (const Case& which : cases) {
        void* const shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        check(shared == MAP_FAILED ? -FI_ENOMEM : 0, "mmap");
        Board& board = *new (shared) Board;
        for (unsigned number = 0; number < 2; number++)
            if (const pid_t child = fork(); child == 0) {
                alarm(30); // a side that waits for a failed one
                Process(which, number, board).run(rounds);
                std::exit(0);
            } else {
                check(child, "fork");
            }
        bool good = true;
        for (int status = 0; wait(&status) > 0;)
            good &= status == 0;
        check(good ? 0 : -FI_EOTHER, which.name);
        std::string samples;
        for (int round = 0; round < rounds; round++)
            samples += (round != 0 ? "," : "") + std::to_string(board.percent[round]);
        std::printf("Overlap\t%s\t%zu\t2\t%%\ttofu\t%s\n", which.name, length, samples.c_str());
        std::fflush(stdout);
        munmap(shared, sizeof(Board));
    }
    return 0;
}
