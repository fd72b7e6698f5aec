// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes that die or leave: errors for their peers, places for their successors, nothing left.
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

// One VCQ with a registered word, published to the other processes.
struct Node {
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;
    utofu_stadd_t stadd = 0;

    void open(const Rank& rank, void* buffer, size_t size, unsigned slot)
    {
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_reg_mem(vcq, buffer, size, 0, &stadd), UTOFU_SUCCESS);
        rank.set(2 * slot + 1, stadd);
        rank.set(2 * slot, id);
    }
};

int put_and_wait(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, utofu_stadd_t at)
{
    EXPECT_EQ(posted([&] {
                  return utofu_put_piggyback8(vcq, to, 1, at, 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
              }),
              UTOFU_SUCCESS);
    void* cbdata = nullptr;
    (void)utofu_poll_tcq(vcq, 0, &cbdata);
    utofu_mrq_notice notice{};
    return wait_mrq(vcq, &notice);
}

TEST(SimDeath, PostsToAKilledProcessEndWithPeerError)
{
    const auto exits = run_processes(3, [](const Rank& rank) {
        static uint64_t word;
        Node me;
        me.open(rank, &word, sizeof word, rank.number);
        rank.barrier();
        if (rank.number == 1)
            ::raise(SIGKILL);
        // The moment of death shows in the answers; before it puts succeed.
        EXPECT_TRUE(wait_until([&] {
            const int rc = put_and_wait(me.vcq, rank.get(2), rank.get(3));
            EXPECT_TRUE(rc == UTOFU_SUCCESS || rc == UTOFU_ERR_MRQ_PEER);
            return rc == UTOFU_ERR_MRQ_PEER;
        }));
        const unsigned other = rank.number == 0 ? 2 : 0;
        rank.set(100 + rank.number, 1);
        EXPECT_TRUE(wait_until([&] { return rank.get(100 + other) == 1; }));
        EXPECT_EQ(put_and_wait(me.vcq, rank.get(2 * other), rank.get(2 * other + 1)), UTOFU_SUCCESS);
        rank.set(200 + rank.number, 1);
        EXPECT_TRUE(wait_until([&] { return rank.get(200 + other) == 1; }));
    });
    EXPECT_TRUE(exits[0].success());
    EXPECT_TRUE(WIFSIGNALED(exits[1].status));
    EXPECT_TRUE(exits[2].success());
    EXPECT_FALSE(job_is_left());
}

TEST(SimDeath, PostsToFreedOrNeverCreatedVcqsEndWithPeerError)
{
    expect_processes(2, [](const Rank& rank) {
        static uint64_t word;
        Node me;
        me.open(rank, &word, sizeof word, rank.number);
        rank.barrier();
        const unsigned other = 1 - rank.number;
        const auto to = rank.get(2 * other);
        const auto at = rank.get(2 * other + 1);
        EXPECT_EQ(put_and_wait(me.vcq, to, at), UTOFU_SUCCESS);
        EXPECT_EQ(put_and_wait(me.vcq, to ^ 1, at), UTOFU_ERR_MRQ_PEER);           // another CQ
        EXPECT_EQ(put_and_wait(me.vcq, to ^ (1ul << 24), at), UTOFU_ERR_MRQ_PEER); // another component
        rank.barrier();
        if (rank.number == 0)
            EXPECT_EQ(utofu_free_vcq(me.vcq), UTOFU_SUCCESS);
        rank.barrier();
        if (rank.number == 1)
            EXPECT_EQ(put_and_wait(me.vcq, to, at), UTOFU_ERR_MRQ_PEER);
        rank.barrier();
        if (rank.number == 0)
            me.open(rank, &word, sizeof word, 0);
        rank.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(rank.get(0), to); // the same place
            EXPECT_EQ(put_and_wait(me.vcq, to, rank.get(1)), UTOFU_SUCCESS);
        }
        rank.barrier();
    });
}

TEST(SimDeath, ASuccessorTakesThePlaceOfTheDead)
{
    const auto exits = run_processes(2, [](const Rank& rank) {
        static uint64_t word;
        Node me;
        if (rank.number == 1) {
            // A child that joins as process 1, is killed, and is followed by another.
            for (unsigned life = 1; life <= 20; life++) {
                const pid_t pid = ::fork();
                if (pid == 0) {
                    me.open(rank, &word, sizeof word, 1);
                    rank.set(50, life);
                    for (;;)
                        ::pause();
                }
                EXPECT_TRUE(wait_until([&] { return rank.get(51) == life; }));
                ::kill(pid, SIGKILL);
                ::waitpid(pid, nullptr, 0);
                rank.set(52, life);
                EXPECT_TRUE(wait_until([&] { return rank.get(53) == life; }));
            }
            return;
        }
        me.open(rank, &word, sizeof word, 0);
        utofu_vcq_id_t first = 0;
        for (unsigned life = 1; life <= 20; life++) {
            ASSERT_TRUE(wait_until([&] { return rank.get(50) == life; }));
            first = first == 0 ? rank.get(2) : first;
            EXPECT_EQ(rank.get(2), first); // the same VCQ ID each time
            EXPECT_EQ(put_and_wait(me.vcq, rank.get(2), rank.get(3)), UTOFU_SUCCESS);
            rank.set(51, life);
            ASSERT_TRUE(wait_until([&] { return rank.get(52) == life; }));
            EXPECT_EQ(put_and_wait(me.vcq, first, rank.get(3)), UTOFU_ERR_MRQ_PEER);
            rank.set(53, life);
        }
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_TRUE(exits[1].success()) << exits[1].errors;
    EXPECT_EQ(exits[0].errors, "");
    EXPECT_FALSE(job_is_left());
}

TEST(SimOverflow, EndsTheOwnerWithTheMessageOfTheGuide)
{
    ::setenv("UTOFU_NUM_MRQ_ENTRIES", "2Ki", 1);
    const auto exits = run_processes(2, [](const Rank& rank) {
        static uint64_t word;
        Node me;
        me.open(rank, &word, sizeof word, rank.number);
        rank.barrier();
        if (rank.number == 1)
            for (;;)
                ::pause(); // never polls
        unsigned sent = 0;
        utofu_mrq_notice notice{};
        EXPECT_TRUE(wait_until([&] {
            EXPECT_EQ(posted([&] {
                          return utofu_put_piggyback8(me.vcq, rank.get(2), 1, rank.get(3), 8, 0,
                                                      UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr);
                      }),
                      UTOFU_SUCCESS);
            sent++;
            void* cbdata = nullptr;
            (void)utofu_poll_tcq(me.vcq, 0, &cbdata);
            return utofu_poll_mrq(me.vcq, 0, &notice) == UTOFU_ERR_MRQ_PEER;
        }));
        EXPECT_GT(sent, 2048u);
    });
    ::unsetenv("UTOFU_NUM_MRQ_ENTRIES");
    EXPECT_TRUE(exits[0].success());
    EXPECT_TRUE(WIFEXITED(exits[1].status));
    EXPECT_EQ(WEXITSTATUS(exits[1].status), 1);
    EXPECT_EQ(exits[1].errors, "utofu: asynchronous error: MRQ Overflow on TNI 0 CQ 0\n");
    EXPECT_FALSE(job_is_left());
}

TEST(SimOverflow, LocalNoticesCountToo)
{
    ::setenv("UTOFU_NUM_MRQ_ENTRIES", "2048", 1);
    const auto exits = run_processes(1, [](const Rank& rank) {
        static uint64_t word;
        Node me;
        me.open(rank, &word, sizeof word, 0);
        for (;;) {
            (void)posted([&] {
                return utofu_armw8(me.vcq, me.id, UTOFU_ARMW_OP_ADD, 1, me.stadd, 0,
                                   UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
            });
            void* cbdata = nullptr;
            (void)utofu_poll_tcq(me.vcq, 0, &cbdata);
        }
    });
    ::unsetenv("UTOFU_NUM_MRQ_ENTRIES");
    EXPECT_EQ(exits[0].errors, "utofu: asynchronous error: MRQ Overflow on TNI 0 CQ 0\n");
}

// Leaves so many notices in the MRQ of a CQ, polls for all of them and comes to its end, unless they were too many.
void expect_room(unsigned local, unsigned remote, unsigned remote_of_second, bool enough)
{
    ::setenv("UTOFU_NUM_MRQ_ENTRIES", "2048", 1);
    const auto exits = run_processes(1, [&](const Rank& rank) {
        static uint64_t word;
        Node me;
        me.open(rank, &word, sizeof word, 0);
        utofu_vcq_hdl_t second = 0;
        utofu_vcq_id_t second_id = 0;
        utofu_stadd_t second_stadd = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &second), UTOFU_SUCCESS); // shares the CQ
        ASSERT_EQ(utofu_query_vcq_id(second, &second_id), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_reg_mem(second, &word, sizeof word, 0, &second_stadd), UTOFU_SUCCESS);
        const auto leave = [&](utofu_vcq_id_t to, utofu_stadd_t stadd, unsigned count, unsigned long notice) {
            for (unsigned i = 0; i < count; i++)
                ASSERT_EQ(posted([&] {
                              void* cbdata = nullptr;
                              (void)utofu_poll_tcq(me.vcq, 0, &cbdata);
                              return utofu_put_piggyback8(me.vcq, to, i, stadd, 8, 0, notice, nullptr);
                          }),
                          UTOFU_SUCCESS);
        };
        leave(me.id, me.stadd, local, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE);
        leave(me.id, me.stadd, remote, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE);
        leave(second_id, second_stadd, remote_of_second, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE);
        ASSERT_TRUE(wait_until([&] {
            void* cbdata = nullptr;
            size_t unread = 1;
            (void)utofu_poll_tcq(me.vcq, 0, &cbdata);
            return utofu_query_num_unread_tcq(me.vcq, &unread) == UTOFU_SUCCESS && unread == 0;
        }));
        utofu_mrq_notice notice;
        for (unsigned i = 0; i < local + remote; i++)
            ASSERT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
        for (unsigned i = 0; i < remote_of_second; i++)
            ASSERT_EQ(wait_mrq(second, &notice), UTOFU_SUCCESS);
    });
    ::unsetenv("UTOFU_NUM_MRQ_ENTRIES");
    EXPECT_EQ(exits[0].success(), enough) << local << ' ' << remote << ' ' << remote_of_second;
    EXPECT_EQ(exits[0].errors, enough ? "" : "utofu: asynchronous error: MRQ Overflow on TNI 0 CQ 0\n");
}

// The MRQ is one per CQ (guide, glossary), and its entries are for all notices of the CQ's VCQs together.
TEST(SimOverflow, ComesWhenAllNoticesOfACqAreMoreThanItsEntries)
{
    expect_room(1024, 1024, 0, true);
    expect_room(0, 1024, 1024, true);
    expect_room(64, 992, 992, true);
    // In adversarial mode the last ones may come while the first are taken.
    const unsigned late = std::getenv("TOFU_SIM_CHAOS") != nullptr ? 128 : 0;
    expect_room(1088, 1024, late, false);
    expect_room(64, 2048, late, false);
    expect_room(0, 1024, 1025 + late, false);
    expect_room(64, 1024, 1024 + late, false);
}

TEST(SimDeath, AForkedChildIsAProcessOfItsOwn)
{
    const auto exits = run_processes(1, [](const Rank& rank) {
        static uint64_t word;
        Node me;
        me.open(rank, &word, sizeof word, 0);
        const pid_t pid = ::fork();
        if (pid == 0) {
            utofu_vcq_id_t id = 0;
            bool good = utofu_query_vcq_id(me.vcq, &id) == UTOFU_ERR_INVALID_VCQ_HDL;
            utofu_vcq_hdl_t own = 0;
            good = good && utofu_create_vcq(0, 0, &own) == UTOFU_SUCCESS;
            good = good && utofu_query_vcq_id(own, &id) == UTOFU_SUCCESS && id != rank.get(0);
            std::exit(good ? 0 : 1);
        }
        int status = -1;
        ::waitpid(pid, &status, 0);
        EXPECT_EQ(status, 0);
        EXPECT_EQ(put_and_wait(me.vcq, me.id, me.stadd), UTOFU_SUCCESS); // the parent goes on
        EXPECT_EQ(word, 1u);
    });
    // Leak checkers talk on stderr about the thread that only the parent has: not asked for silence here.
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_FALSE(job_is_left());
}

// The number of the segment among the open files of this process.
int segment_fd()
{
    char name[64] = {};
    for (int fd = 3; fd < 256; fd++) {
        const std::string path = "/proc/self/fd/" + std::to_string(fd);
        const ssize_t size = ::readlink(path.c_str(), name, sizeof name - 1);
        if (size > 0 && std::strncmp(name, "/memfd:tofu-sim-segment", 23) == 0)
            return fd;
    }
    return -1;
}

// What a process has left by exec is free, whatever the new program has open at the same number.
TEST(SimDeath, AProcessThatCallsExecHasLeftTheJob)
{
    ::setenv("TOFU_SIM_PPN", "9", 1); // one CQ of each TNI for each
    ::setenv("PMIX_RANK", "0", 1);    // the same place
    const auto exits = run_processes(2, [](const Rank& rank) {
        if (rank.number == 0) {
            utofu_vcq_hdl_t vcq = 0;
            ASSERT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq), UTOFU_SUCCESS);
            const int fd = segment_fd();
            ASSERT_GT(fd, 2);
            rank.set(0, static_cast<uint64_t>(::getpid()));
            rank.barrier();
            (void)::dup2(STDIN_FILENO, fd); // not closed by exec
            ::execlp("sleep", "sleep", "100", nullptr);
            ::_exit(1);
        }
        rank.barrier();
        const auto pid = static_cast<pid_t>(rank.get(0));
        EXPECT_TRUE(wait_until([&] {
            char name[64] = {};
            const std::string path = "/proc/" + std::to_string(pid) + "/exe";
            return ::readlink(path.c_str(), name, sizeof name - 1) > 0 && std::strstr(name, "_processes") == nullptr;
        }));
        // The kernel shows the new program a moment before it closes the old one's files.
        utofu_vcq_hdl_t vcq = 0;
        EXPECT_TRUE(wait_until([&] { return utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq) == UTOFU_SUCCESS; }));
        ::kill(pid, SIGKILL);
    });
    ::unsetenv("TOFU_SIM_PPN");
    ::unsetenv("PMIX_RANK");
    EXPECT_TRUE(exits[1].success()) << exits[1].errors;
    EXPECT_FALSE(job_is_left());
}

/// Its first thread sleeps; the kernel closes files later than the list of files shows.
bool sleeps_without_the_job(pid_t pid)
{
    std::error_code error;
    const std::string of = "/proc/" + std::to_string(pid);
    for (const auto& file : std::filesystem::directory_iterator(of + "/fd", error))
        if (std::filesystem::read_symlink(file.path(), error).string().find("tofu-sim") != std::string::npos)
            return false;
    std::ifstream stat(of + "/stat");
    std::string number, name, state;
    return !error && stat >> number >> name >> state && name == "(sleep)" && state == "S";
}

/// Segments that this process has mapped, its own included.
size_t count_segments()
{
    std::ifstream maps("/proc/self/maps");
    std::set<std::string> inodes;
    for (std::string range, rights, offset, device, inode, name;
         maps >> range >> rights >> offset >> device >> inode;) {
        std::getline(maps, name);
        if (name.find("tofu-sim-segment") != std::string::npos)
            inodes.insert(inode);
    }
    return inodes.size();
}

// The process lives on, under the same ID. Its peers give up what they had of it, as of one that was killed.
TEST(SimDeath, WhatACallOfExecLeavesIsNotKeptByPeers)
{
    const auto exits = run_processes(3, [](const Rank& rank) {
        static uint64_t word;
        Node me;
        me.open(rank, &word, sizeof word, rank.number);
        rank.barrier();
        const auto put_to = [&](unsigned other) {
            return put_and_wait(me.vcq, rank.get(2 * other), rank.get(2 * other + 1));
        };
        if (rank.number == 0)
            EXPECT_EQ(put_to(1), UTOFU_SUCCESS);
        if (rank.number == 1)
            rank.set(100, static_cast<uint64_t>(::getpid()));
        rank.barrier();
        if (rank.number == 1) {
            ::execlp("sleep", "sleep", "100", nullptr);
            ::_exit(1);
        }
        if (rank.number == 0) {
            const auto pid = static_cast<pid_t>(rank.get(100));
            EXPECT_TRUE(wait_until([&] { return put_to(1) == UTOFU_ERR_MRQ_PEER; }));
            EXPECT_TRUE(wait_until([&] { return sleeps_without_the_job(pid); }));
            EXPECT_EQ(put_to(2), UTOFU_SUCCESS); // the first one: it looks for those that have gone
            EXPECT_EQ(count_segments(), 2u);
            ::kill(pid, SIGKILL);
            rank.set(101, 1);
        }
        EXPECT_TRUE(wait_until([&] { return rank.get(101) == 1; }));
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_TRUE(exits[2].success()) << exits[2].errors;
    EXPECT_FALSE(job_is_left());
}

// Another job of this user that starts meanwhile, as one of another test does, takes them away as well.
TEST(SimDeath, LeftoversOfKilledJobsGoAtTheNextStart)
{
    bool left = false;
    for (unsigned attempt = 0; attempt < 20 && !left; attempt++) {
        const auto exits = run_processes(2, [](const Rank& rank) {
            static uint64_t word;
            Node me;
            me.open(rank, &word, sizeof word, rank.number);
            rank.barrier();
            ::raise(SIGKILL);
        });
        EXPECT_TRUE(WIFSIGNALED(exits[0].status));
        EXPECT_TRUE(WIFSIGNALED(exits[1].status));
        left = job_is_left();
    }
    EXPECT_TRUE(left);
    ::setenv("TOFU_SIM_SHAPE", "2x1x1", 1);
    clear_last_job();
    ::unsetenv("TOFU_SIM_SHAPE");
    EXPECT_FALSE(job_is_left());
}

} // namespace
} // namespace tofu::sim::test
