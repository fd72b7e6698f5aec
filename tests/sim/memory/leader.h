// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A peer that accesses rank 0's memory whenever rank 0 asks for it.
#pragma once

#include "harness.h"

#include <ucontext.h>

namespace tofu::sim::test {

// Rank 1 does what rank 0 asks for through the board until the command to stop: command in word 20.
enum Command : uint64_t { none, add_one, write_one, stop };

inline void follow(const Rank& rank, const Node& node)
{
    for (uint64_t round = 1;; ++round) {
        ASSERT_TRUE(wait_until([&] { return rank.get(21) == round; }));
        const uint64_t stadd = rank.get(22);
        int rc = 0;
        if (rank.get(20) == stop)
            return;
        if (rank.get(20) == add_one)
            rc = node.add8(rank.get(0), stadd, 1);
        if (rank.get(20) == write_one)
            rc = node.put8(rank.get(0), stadd, rank.get(23));
        rank.set(24, uint64_t(int64_t(rc)));
        rank.set(25, round);
    }
}

/// Rank 0's side of it.
struct Leader {
    const Rank& rank;
    uint64_t round = 0;

    /// Has rank 1 do this at rank 0's memory; how it ended there.
    int ask(Command command, utofu_stadd_t stadd = 0, uint64_t value = 0)
    {
        rank.set(20, command);
        rank.set(22, stadd);
        rank.set(23, value);
        rank.set(21, ++round);
        if (command == stop)
            return 0;
        EXPECT_TRUE(wait_until([&] { return rank.get(25) == round; }));
        return int(int64_t(rank.get(24)));
    }
};

/// As the user of the test, or as an ordinary user, whose moves cannot block the kernel.
enum class As { is, ordinary };

/// Two processes with a node each: `body` in rank 0, and rank 1 at its service. `first`: before any call of uTofu.
inline void lead(
    const std::function<void(Node&, Leader&)>& body, As user = As::is, const std::function<void()>& first = [] {})
{
    expect_processes(2, [&](const Rank& rank) {
        first();
        if (user == As::ordinary)
            ASSERT_EQ(become_ordinary(), "");
        Node node;
        rank.set(rank.number, node.id);
        rank.barrier();
        if (rank.number == 1) {
            follow(rank, node);
            return;
        }
        Leader leader{rank};
        body(node, leader);
        leader.ask(stop);
    });
}

/// Calls `body` on a stack that is memory like any other, and of which no thread tells.
inline void on_coroutine_stack(const std::function<void()>& body)
{
    struct Both {
        const std::function<void()>& body;
        ucontext_t home;
        ucontext_t here;
    };
    static Both* both; // makecontext hands on nothing wider than an int
    constexpr size_t bytes = 256 << 10;
    void* const stack = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(stack, MAP_FAILED);
    Both mine{body, {}, {}};
    both = &mine;
    ASSERT_EQ(::getcontext(&mine.here), 0);
    mine.here.uc_stack.ss_sp = stack;
    mine.here.uc_stack.ss_size = bytes;
    mine.here.uc_link = &mine.home;
    ::makecontext(
        &mine.here, [] { both->body(); }, 0);
    EXPECT_EQ(::swapcontext(&mine.home, &mine.here), 0);
    ::munmap(stack, bytes);
}

} // namespace tofu::sim::test
