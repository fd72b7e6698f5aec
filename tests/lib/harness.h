// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs a test's body in several processes of one simulated job, with bounded waits.
//
// The test program itself never calls uTofu: it forks, the children do. They talk through a shared page.
#pragma once

#include <utofu.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tofu::sim::test {

// What the processes of a test share: a barrier and words to exchange IDs and STADDs.
struct Board {
    std::atomic<uint32_t> arrived;
    std::atomic<uint32_t> round;
    std::atomic<uint32_t> failed;
    std::atomic<uint64_t> words[1024];
};

struct Rank {
    unsigned number;
    unsigned size;
    Board* board;

    // All processes of the test, or a failure after 40 s.
    void barrier() const;
    void set(unsigned index, uint64_t value) const { board->words[index].store(value); }
    [[nodiscard]] uint64_t get(unsigned index) const { return board->words[index].load(); }
};

struct Exit {
    int status = 0;     // as of waitpid
    std::string errors; // what the process wrote to stderr
    [[nodiscard]] bool success() const { return status == 0; }
};

// Forks `size` processes, gives each a job of its own name, runs the body and returns how each ended. A body
// reports failures with the EXPECT macros; a process with a failure exits with 1. Kills all after 120 s.
std::vector<Exit> run_processes(unsigned size, const std::function<void(const Rank&)>& body);

// The same, and every process must succeed; afterwards nothing of the job is left in /dev/shm.
void expect_processes(unsigned size, const std::function<void(const Rank&)>& body);

// One process in the job of the last run, which must succeed.
void rejoin_last_job(const std::function<void(const Rank&)>& body);

// The last one out clears up; where the survivors left without, one that comes in and goes.
void clear_last_job();

// Does a directory of the job of the last run exist, this user's or the ordinary one's?
[[nodiscard]] bool job_is_left();

// Does this system let the simulator move private memory to where peers map it (docs/memory-model.md)? Containers do
// not.
[[nodiscard]] bool memory_moves();

// Can a process refuse itself system calls here (seccomp)? Not in QEMU's user mode.
[[nodiscard]] bool filters_calls();

// Makes this process, one of a test's, an ordinary user's without capabilities, as setpriv does. Empty, or why it
// cannot.
[[nodiscard]] std::string become_ordinary();

// Polls until `done` or 40 s are over; returns whether it was done.
[[nodiscard]] bool wait_until(const std::function<bool()>& done);

// Posts again as long as the TOQ is said to be full, which the adversarial mode does at will.
template <typename Post>
[[nodiscard]] int posted(Post&& post)
{
    int rc = UTOFU_ERR_BUSY;
    (void)wait_until([&] { return (rc = post()) != UTOFU_ERR_BUSY; });
    return rc;
}

// Polls for one entry, bounded.
[[nodiscard]] int wait_tcq(utofu_vcq_hdl_t vcq, void** cbdata);
[[nodiscard]] int wait_mrq(utofu_vcq_hdl_t vcq, utofu_mrq_notice* notice);

} // namespace tofu::sim::test
