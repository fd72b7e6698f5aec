// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Session mode: relay, fork, join, pipeline, lacking descriptors, errors, killed participants (guide 2.2.8).
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <csignal>
#include <sys/mman.h>
#include <sys/wait.h>

namespace tofu::sim::test {
namespace {

constexpr unsigned relay_words = 512;

struct Relay {
    const Rank& rank;
    utofu_vcq_hdl_t vcq = 0;     // free mode
    utofu_vcq_hdl_t session = 0; // session mode
    utofu_vcq_id_t session_id = 0;
    utofu_stadd_t stadd = 0; // of the session VCQ
    utofu_stadd_t free_stadd = 0;
    volatile uint64_t* buffer;

    Relay(const Rank& r, uint64_t* memory) : rank(r), buffer(memory)
    {
        EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_SESSION_MODE, &session), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(session, &session_id), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem(session, memory, relay_words * 8, 0, &stadd), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem(vcq, memory, relay_words * 8, 0, &free_stadd), UTOFU_SUCCESS);
        rank.set(2 * rank.number, session_id);
        rank.set(2 * rank.number + 1, stadd);
        rank.barrier();
    }
    [[nodiscard]] utofu_vcq_id_t id_of(unsigned other) const { return rank.get(2 * other); }
    [[nodiscard]] utofu_stadd_t at(unsigned other, size_t word = 0) const { return rank.get(2 * other + 1) + word * 8; }

    // From a free mode VCQ: begins something.
    int begin(unsigned to, size_t from_word, size_t to_word, size_t count, unsigned sps)
    {
        return posted([&] {
            return utofu_put(vcq, id_of(to), free_stadd + from_word * 8, at(to, to_word), count * 8, 5,
                             UTOFU_ONESIDED_FLAG_SPS(sps) | UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr);
        });
    }
    // In the session TOQ: waits.
    int relay(unsigned to, size_t from_word, size_t to_word, size_t count, unsigned sps, unsigned long flags = 0)
    {
        return posted([&] {
            return utofu_put(session, id_of(to), stadd + from_word * 8, at(to, to_word), count * 8, 6,
                             flags | UTOFU_ONESIDED_FLAG_SPS(sps) | UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr);
        });
    }
    bool see(size_t word, uint64_t value)
    {
        return wait_until([&] { return buffer[word] == value; });
    }
};

TEST(SimSession, RelaysThroughAProcessThatDoesNothing)
{
    expect_processes(4, [](const Rank& rank) {
        static uint64_t memory[relay_words];
        memory[0] = rank.number == 0 ? 123 : 0;
        Relay me(rank, memory);
        constexpr unsigned long notices = UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE |
                                          UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
        if (rank.number == 1 || rank.number == 2)
            EXPECT_EQ(me.relay(rank.number + 1, 0, 0, 1, rank.number == 1 ? 1 : 0, notices), UTOFU_SUCCESS);
        rank.barrier();
        if (rank.number == 0)
            EXPECT_EQ(me.begin(1, 0, 0, 1, 1), UTOFU_SUCCESS);
        if (rank.number == 3) {
            EXPECT_TRUE(me.see(0, 123));
            utofu_mrq_notice notice;
            EXPECT_EQ(wait_mrq(me.session, &notice), UTOFU_SUCCESS);
            EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_RMT_PUT);
            EXPECT_EQ(notice.vcq_id, me.id_of(2));
            EXPECT_EQ(notice.edata, 6u);
        }
        rank.barrier();
        if (rank.number == 1 || rank.number == 2) {
            void* cbdata = nullptr;
            EXPECT_EQ(wait_tcq(me.session, &cbdata), UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            unsigned types = 0;
            EXPECT_EQ(wait_mrq(me.session, &notice), UTOFU_SUCCESS);
            types |= 1u << notice.notice_type;
            if (rank.number == 2) { // and what process 1 sent
                EXPECT_EQ(wait_mrq(me.session, &notice), UTOFU_SUCCESS);
                types |= 1u << notice.notice_type;
            }
            EXPECT_EQ(types, rank.number == 1 ? 1u << UTOFU_MRQ_TYPE_LCL_PUT
                                              : 1u << UTOFU_MRQ_TYPE_LCL_PUT | 1u << UTOFU_MRQ_TYPE_RMT_PUT);
        }
        rank.barrier();
    });
}

// What session mode does not take comes last in a batch: none of the batch is posted.
TEST(SimSession, ABatchWithAnInstructionThatItDoesNotTakePostsNothing)
{
    expect_processes(1, [](const Rank& rank) {
        static uint64_t memory[relay_words];
        memory[0] = 5;
        Relay me(rank, memory);
        alignas(8) std::byte batch[256];
        size_t put = 0;
        size_t addition = 0;
        ASSERT_EQ(utofu_prepare_put(me.session, me.id_of(0), me.at(0), me.at(0, 1), 8, 0,
                                    UTOFU_ONESIDED_FLAG_TCQ_NOTICE, batch, &put),
                  UTOFU_SUCCESS);
        ASSERT_EQ(utofu_prepare_armw8(me.session, me.id_of(0), UTOFU_ARMW_OP_ADD, 1, me.at(0, 2), 0, 0, batch + put,
                                      &addition),
                  UTOFU_SUCCESS);
        EXPECT_EQ(utofu_post_toq(me.session, batch, put + addition, nullptr), UTOFU_ERR_NOT_SUPPORTED);
        EXPECT_EQ(me.begin(0, 0, 3, 1, 1), UTOFU_SUCCESS); // would start what was posted
        EXPECT_TRUE(me.see(3, 5));
        void* cbdata = nullptr;
        EXPECT_EQ(utofu_poll_tcq(me.session, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        EXPECT_EQ(me.buffer[1], 0u);
    });
}

TEST(SimSession, ForksAndStartsNoMoreThanTold)
{
    expect_processes(4, [](const Rank& rank) {
        static uint64_t memory[relay_words];
        memory[1] = 9;
        memory[2] = 8;
        Relay me(rank, memory);
        if (rank.number == 1) {
            EXPECT_EQ(me.relay(2, 0, 0, 1, 0), UTOFU_SUCCESS);
            EXPECT_EQ(me.relay(3, 0, 0, 1, 0), UTOFU_SUCCESS);
            EXPECT_EQ(me.relay(2, 1, 3, 1, 0), UTOFU_SUCCESS); // the third
        }
        rank.barrier();
        if (rank.number == 0) {
            memory[0] = 55;
            EXPECT_EQ(me.begin(1, 0, 0, 1, 2), UTOFU_SUCCESS);
        }
        if (rank.number >= 2)
            EXPECT_TRUE(me.see(0, 55));
        rank.barrier();
        EXPECT_EQ(me.buffer[3], 0u);
        rank.barrier();
        if (rank.number == 0)
            EXPECT_EQ(me.begin(1, 0, 10, 1, 1), UTOFU_SUCCESS);
        if (rank.number == 2)
            EXPECT_TRUE(me.see(3, 9));
        rank.barrier();
    });
}

TEST(SimSession, JoinsThree)
{
    expect_processes(5, [](const Rank& rank) {
        static uint64_t memory[relay_words];
        Relay me(rank, memory);
        for (uint64_t round = 1; round <= 30; round++) {
            if (rank.number == 3) {
                EXPECT_EQ(posted([&] { return utofu_nop(me.session, 0, nullptr); }), UTOFU_SUCCESS);
                EXPECT_EQ(posted([&] { return utofu_nop(me.session, 0, nullptr); }), UTOFU_SUCCESS);
                EXPECT_EQ(me.relay(4, 0, 0, 3, 0), UTOFU_SUCCESS);
            }
            if (rank.number < 3) {
                memory[8] = round * 10 + rank.number;
                EXPECT_EQ(me.begin(3, 8, rank.number, 1, 1), UTOFU_SUCCESS);
            }
            if (rank.number == 4)
                for (unsigned from = 0; from < 3; from++)
                    ASSERT_TRUE(me.see(from, round * 10 + from));
            rank.barrier();
            void* cbdata = nullptr;
            EXPECT_EQ(utofu_poll_tcq(me.session, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
            EXPECT_EQ(utofu_poll_tcq(me.vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        }
    });
}

TEST(SimSession, PipelinesPieces)
{
    expect_processes(3, [](const Rank& rank) {
        static uint64_t memory[relay_words];
        Relay me(rank, memory);
        constexpr unsigned pieces = 50;
        if (rank.number == 1)
            for (unsigned i = 0; i < pieces; i++)
                EXPECT_EQ(me.relay(2, i * 10, i * 10, 10, 0), UTOFU_SUCCESS);
        rank.barrier();
        if (rank.number == 0) {
            for (unsigned i = 0; i < pieces * 10; i++)
                memory[i] = i + 1;
            for (unsigned i = 0; i < pieces; i++)
                EXPECT_EQ(me.begin(1, i * 10, i * 10, 10, 1), UTOFU_SUCCESS);
        }
        if (rank.number == 2)
            for (unsigned i = 0; i < pieces * 10; i++)
                ASSERT_TRUE(me.see(i, i + 1));
        rank.barrier();
    });
}

TEST(SimSession, DescriptorsThatWereLackingStartWhenPosted)
{
    expect_processes(2, [](const Rank& rank) {
        static uint64_t memory[relay_words];
        Relay me(rank, memory);
        if (rank.number == 0) {
            memory[0] = 1;
            for (unsigned i = 0; i < 200; i++) {
                EXPECT_EQ(posted([&] {
                              return utofu_put(me.vcq, me.id_of(1), me.free_stadd, me.at(1), 8, 0,
                                               UTOFU_ONESIDED_FLAG_SPS(10) | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                               nullptr);
                          }),
                          UTOFU_SUCCESS); // 2000 in all
                utofu_mrq_notice notice;
                EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
            }
        }
        rank.barrier();
        if (rank.number == 1) {
            for (unsigned i = 0; i < 2000; i++) {
                memory[1] = i + 1;
                ASSERT_EQ(me.relay(0, 1, 5, 1, 0), UTOFU_SUCCESS);
            }
            memory[1] = 9999;
            EXPECT_EQ(me.relay(0, 1, 5, 1, 0), UTOFU_SUCCESS); // one too many: waits
            size_t unread = 0;
            EXPECT_EQ(utofu_query_num_unread_tcq(me.session, &unread), UTOFU_SUCCESS);
            EXPECT_EQ(unread, 2001u);
        }
        rank.barrier();
        EXPECT_TRUE(me.see(5, rank.number == 0 ? 2000u : 0u));
        rank.barrier();
    });
}

TEST(SimSession, AFailedPutStartsNothingAndErrorsComeBack)
{
    expect_processes(2, [](const Rank& rank) {
        static uint64_t memory[relay_words];
        Relay me(rank, memory);
        if (rank.number == 1) {
            EXPECT_EQ(me.relay(0, 0, relay_words, 1, 0), UTOFU_SUCCESS); // remote STADD outside
            EXPECT_EQ(me.relay(0, relay_words, 0, 1, 0), UTOFU_SUCCESS); // local STADD outside
            EXPECT_EQ(me.relay(0, 0, 7, 1, 0), UTOFU_SUCCESS);
            EXPECT_EQ(
                posted([&] { return utofu_put_piggyback8(me.session, me.id_of(0), 0, me.at(0), 8, 0, 0, nullptr); }),
                UTOFU_ERR_NOT_SUPPORTED);
        }
        memory[0] = 3;
        rank.barrier();
        if (rank.number == 0) {
            EXPECT_EQ(me.begin(1, 0, relay_words, 1, 3), UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_ERR_MRQ_RMT_STADD);
            EXPECT_EQ(me.buffer[7], 0u);
            EXPECT_EQ(me.begin(1, 0, 1, 1, 3), UTOFU_SUCCESS);
            EXPECT_TRUE(me.see(7, 3));
        } else {
            utofu_mrq_notice notice;
            EXPECT_EQ(wait_mrq(me.session, &notice), UTOFU_ERR_MRQ_RMT_STADD);
            void* cbdata = nullptr;
            EXPECT_EQ(wait_tcq(me.session, &cbdata), UTOFU_ERR_TCQ_STADD);
        }
        rank.barrier();
    });
}

// A process that begins is killed again and again while it may be running descriptors of the relay.
TEST(SimSession, TheRelaySurvivesKilledBeginners)
{
    const auto exits = run_processes(2, [](const Rank& rank) {
        static uint64_t memory[relay_words];
        Relay me(rank, memory);
        if (rank.number == 0) {
            for (unsigned life = 0; life < 40; life++) {
                const uint64_t before = rank.get(50);
                const pid_t pid = ::fork();
                if (pid == 0) {
                    utofu_vcq_hdl_t vcq = 0;
                    utofu_stadd_t at = 0;
                    utofu_create_vcq(0, 0, &vcq);
                    utofu_reg_mem(vcq, memory, relay_words * 8, 0, &at);
                    for (;;) {
                        void* cbdata = nullptr;
                        if (utofu_put(vcq, me.id_of(1), at, me.at(1), relay_words * 8, 0, UTOFU_ONESIDED_FLAG_SPS(1),
                                      nullptr) == UTOFU_ERR_BUSY)
                            (void)utofu_poll_tcq(vcq, 0, &cbdata);
                    }
                }
                EXPECT_TRUE(wait_until([&] { return rank.get(50) > before + 20 + life * 7; }));
                ::kill(pid, SIGKILL);
                ::waitpid(pid, nullptr, 0);
            }
            rank.set(51, 1);
        } else {
            // Keeps its TOQ filled with puts to itself and counts what was done.
            uint64_t done = 0;
            while (rank.get(51) == 0) {
                (void)utofu_put(me.session, me.session_id, me.stadd, me.stadd + 8, 8, 0, UTOFU_ONESIDED_FLAG_TCQ_NOTICE,
                                nullptr);
                void* cbdata = nullptr;
                while (utofu_poll_tcq(me.session, 0, &cbdata) == UTOFU_SUCCESS)
                    rank.set(50, ++done);
            }
        }
        rank.barrier();
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_TRUE(exits[1].success()) << exits[1].errors;
    EXPECT_FALSE(job_is_left());
}

// A process still carries out a descriptor of a VCQ that is freed, and another VCQ takes its place: what else had been
// posted to the former one stays undone.
TEST(SimSession, ALateRunnerStartsNothingOfAFormerVcq)
{
    constexpr size_t bytes = 16 * 1024 * 1024 - 256;
    constexpr size_t flag = bytes / 8;
    auto* const there = static_cast<volatile uint64_t*>(
        ::mmap(nullptr, bytes + relay_words * 8, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    expect_processes(2, [&](const Rank& rank) {
        static uint64_t memory[bytes / 8];
        void* const region = rank.number == 0 ? static_cast<void*>(memory) : const_cast<uint64_t*>(there);
        utofu_vcq_hdl_t vcq = 0;
        utofu_vcq_hdl_t session = 0;
        utofu_vcq_id_t id = 0;
        utofu_stadd_t stadd = 0;
        EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem(vcq, region, rank.number == 0 ? bytes : bytes + words * 8, 0, &stadd), UTOFU_SUCCESS);
        rank.set(2 * rank.number, id);
        rank.set(2 * rank.number + 1, stadd);
        rank.barrier();
        for (uint64_t round = 1; round <= 20; round++) {
            memory[0] = round;
            if (rank.number == 0) {
                EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_SESSION_MODE, &session), UTOFU_SUCCESS);
                EXPECT_EQ(utofu_reg_mem(session, region, bytes, 0, &stadd), UTOFU_SUCCESS);
                EXPECT_EQ(utofu_query_vcq_id(session, &id), UTOFU_SUCCESS);
                rank.set(4, id);
                rank.set(5, stadd);
                EXPECT_EQ(utofu_put(session, rank.get(2), stadd, rank.get(3), bytes, 0, 0, nullptr), UTOFU_SUCCESS);
                EXPECT_EQ(utofu_put(session, rank.get(2), stadd, rank.get(3) + bytes, 8, 0, 0, nullptr), UTOFU_SUCCESS);
            }
            rank.barrier();
            if (rank.number == 0) {
                EXPECT_TRUE(wait_until([&] { return there[0] == round; }));
                EXPECT_EQ(utofu_free_vcq(session), UTOFU_SUCCESS);
                EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_SESSION_MODE, &session), UTOFU_SUCCESS);
                EXPECT_EQ(utofu_query_vcq_id(session, &id), UTOFU_SUCCESS);
                EXPECT_EQ(id, rank.get(4));
                EXPECT_EQ(utofu_reg_mem(session, region, bytes, 0, &stadd), UTOFU_SUCCESS);
            } else {
                EXPECT_EQ(utofu_put(vcq, rank.get(4), rank.get(3) + bytes + 64, rank.get(5) + 64, 8, 0,
                                    UTOFU_ONESIDED_FLAG_SPS(1), nullptr),
                          UTOFU_SUCCESS);
            }
            rank.barrier();
            EXPECT_EQ(there[flag], 0u);
            if (rank.number == 0) {
                EXPECT_EQ(utofu_free_vcq(session), UTOFU_SUCCESS);
            }
            rank.barrier();
        }
    });
    ::munmap(const_cast<uint64_t*>(there), bytes + words * 8);
}

} // namespace
} // namespace tofu::sim::test
