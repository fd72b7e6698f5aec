// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_FENCE (fi_rma(3), fi_atomic(3)): what is posted after the fenced operation replaces the results of all that was
// posted before it, also of operations without a waiter and without a promised order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;

constexpr unsigned rounds = 200;
constexpr unsigned most_injects = 7; ///< before a fence
constexpr unsigned distance = 64;    ///< words between their targets: each in a cache line of its own

/// Injects, a fenced write elsewhere, and writes to where the injects went: those must stay.
void replace(Session& s, const Window& w)
{
    std::vector<std::uint64_t> back(most_injects * distance);
    for (unsigned round = 1; round <= rounds; round++) {
        std::uint64_t before = round * 2, after = before + 1;
        const unsigned n = 1 + round % most_injects;
        for (unsigned i = 0; i < n; i++) {
            ASSERT_EQ(s.post([&] { return fi_inject_write(s.ep, &before, 8, 1, w.base + i * distance * 8, w.key); }),
                      0);
        }
        iovec iov{&before, 8};
        fi_rma_iov remote{w.base + 8, 8, w.key};
        fi_msg_rma fenced{&iov, nullptr, 1, 1, &remote, 1, &s, 0};
        ASSERT_EQ(s.post([&] { return fi_writemsg(s.ep, &fenced, FI_FENCE); }), 0);
        for (unsigned i = 0; i < n; i++) {
            ASSERT_EQ(
                s.post([&] { return fi_write(s.ep, &after, 8, nullptr, 1, w.base + i * distance * 8, w.key, &s); }), 0);
        }
        for (unsigned i = 0; i <= n; i++)
            s.expect(&s, FI_WRITE);
        ASSERT_EQ(s.post([&] { return fi_read(s.ep, back.data(), back.size() * 8, nullptr, 1, w.base, w.key, &s); }),
                  0);
        s.expect(&s, FI_READ);
        for (unsigned i = 0; i < n; i++)
            ASSERT_EQ(back[i * distance], after) << round;
    }
}

TEST(Fence, WhatFollowsItReplacesWhatWentUnsignaled)
{
    setenv("TOFU_SIM_CHAOS", "1", 1);
    for (int mode : {FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, 0})
        expect_processes(2, [mode](const Rank& rank) {
            Options options;
            options.mr_mode = mode;
            Session s(rank, options);
            std::vector<std::uint64_t> memory(most_injects * distance, 0);
            const Window w = s.share(memory.data(), memory.size() * 8)[1];
            if (rank.number == 0)
                replace(s, w);
            s.barrier();
        });
    unsetenv("TOFU_SIM_CHAOS");
}

/// FI_ORDER_RMA_RAW and FI_ORDER_ATOMIC_RAW: guide 2.2.10 orders reading behind writing by no flag.
void read_behind_writes(Session& s, const Window& w)
{
    std::vector<std::uint64_t> out(512), back(512);
    for (std::uint64_t round = 1; round <= rounds; round++) {
        const std::size_t n = round % 3 == 0 ? 512 : 1; // words
        std::fill(out.begin(), out.end(), round);
        ASSERT_EQ(s.post([&] { return fi_write(s.ep, out.data(), n * 8, nullptr, 1, w.base, w.key, &s); }), 0);
        ASSERT_EQ(s.post([&] { return fi_read(s.ep, back.data(), n * 8, nullptr, 1, w.base, w.key, &s); }), 0);
        s.expect(&s, FI_RMA);
        s.expect(&s, FI_RMA);
        for (std::size_t i = 0; i < n; i++)
            ASSERT_EQ(back[i], round);
    }
}
void fetch_behind_updates(Session& s, const Window& w)
{
    const std::uint64_t one = 1, word = w.base + 512 * 8;
    std::uint64_t back = 0;
    for (std::uint64_t round = 1; round <= rounds; round++) {
        ASSERT_EQ(s.post([&] { return fi_inject_atomic(s.ep, &one, 1, 1, word, w.key, FI_UINT64, FI_SUM); }), 0);
        ASSERT_EQ(s.post([&] {
            return fi_fetch_atomic(s.ep, nullptr, 1, nullptr, &back, nullptr, 1, word, w.key, FI_UINT64, FI_ATOMIC_READ,
                                   &s);
        }),
                  0);
        s.expect(&s, FI_ATOMIC);
        ASSERT_EQ(back, round);
    }
}

TEST(Fence, AReadSeesTheWritesBeforeItWhereThatOrderWasAskedFor)
{
    for (const char* seed : {"1:raw", "2:late,raw", "3"}) {
        setenv("TOFU_SIM_CHAOS", seed, 1);
        for (int mode : {FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, 0})
            expect_processes(2, [mode](const Rank& rank) {
                Options options;
                options.mr_mode = mode;
                options.caps = FI_RMA | FI_ATOMIC;
                options.tx_order = FI_ORDER_RMA_RAW | FI_ORDER_ATOMIC_RAW;
                Session s(rank, options);
                std::vector<std::uint64_t> memory(1024, 0);
                const Window w = s.share(memory.data(), memory.size() * 8)[1];
                if (rank.number == 0) {
                    read_behind_writes(s, w);
                    fetch_behind_updates(s, w);
                }
                s.barrier();
            });
    }
    unsetenv("TOFU_SIM_CHAOS");
}

} // namespace
