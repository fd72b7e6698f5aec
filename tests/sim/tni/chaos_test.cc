// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the adversarial mode keeps what guide 2.2.10 and 6.1.3.1 promise, and uses what they leave open.
// Called by: make check. Calls: the public interface only.
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace tofu::sim::test {
namespace {

constexpr unsigned long tcq_notice = UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
constexpr unsigned long local_notice = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
constexpr unsigned long remote_notice = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

class SimChaos : public ::testing::TestWithParam<const char*> {
  protected:
    void SetUp() override
    {
        const char* const outer = std::getenv("TOFU_SIM_CHAOS");
        outer_ = outer != nullptr ? outer : "";
        ::setenv("TOFU_SIM_CHAOS", GetParam(), 1);
    }
    void TearDown() override
    {
        if (outer_.empty()) {
            ::unsetenv("TOFU_SIM_CHAOS");
        } else {
            ::setenv("TOFU_SIM_CHAOS", outer_.c_str(), 1);
        }
    }
    // Processes started from now on: these freedoms alone, or for "" those of a seed alone.
    static void take(const char* freedoms)
    {
        const std::string text = std::string(GetParam()) + (*freedoms != '\0' ? ":" : "") + freedoms;
        ::setenv("TOFU_SIM_CHAOS", text.c_str(), 1);
    }

  private:
    std::string outer_;
};

struct Pair {
    const Rank& rank;
    utofu_vcq_hdl_t vcq = 0;
    utofu_stadd_t stadd = 0;

    Pair(const Rank& r, void* buffer, size_t size) : rank(r)
    {
        utofu_vcq_id_t id = 0;
        EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem(vcq, buffer, size, 0, &stadd), UTOFU_SUCCESS);
        rank.set(2 * rank.number, id);
        rank.set(2 * rank.number + 1, stadd);
        rank.barrier();
    }
    [[nodiscard]] utofu_vcq_id_t peer() const { return rank.get(2 * (1 - rank.number)); }
    [[nodiscard]] utofu_stadd_t at(size_t offset = 0) const { return rank.get(2 * (1 - rank.number) + 1) + offset; }
};

// A VCQ that accesses memory of its own process.
struct Own {
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;

    Own()
    {
        EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
    }
    template <typename T, size_t n>
    [[nodiscard]] utofu_stadd_t add(volatile T (&words)[n]) const
    {
        utofu_stadd_t stadd = 0;
        EXPECT_EQ(utofu_reg_mem(vcq, const_cast<T*>(words), sizeof words, 0, &stadd), UTOFU_SUCCESS);
        return stadd;
    }
};

// Where DELAY_START has filled the TOQ, the flag is ignored: nobody else could make room (guide 3.7.9.1).
TEST_P(SimChaos, AToqFullOfDelayedStartsEmpties)
{
    expect_processes(1, [](const Rank&) {
        utofu_vcq_hdl_t vcq = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        unsigned polled = 0;
        void* cbdata = nullptr;
        for (unsigned i = 0; i < 5000; i++) {
            ASSERT_TRUE(wait_until([&] {
                if (utofu_nop(vcq, UTOFU_ONESIDED_FLAG_DELAY_START | tcq_notice, nullptr) == UTOFU_SUCCESS) {
                    return true;
                }
                polled += utofu_poll_tcq(vcq, 0, &cbdata) == UTOFU_SUCCESS ? 1 : 0;
                return false;
            })) << i;
        }
        ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
        EXPECT_TRUE(wait_until([&] {
            polled += utofu_poll_tcq(vcq, 0, &cbdata) == UTOFU_SUCCESS ? 1 : 0;
            return polled == 5000;
        }));
    });
}

// Who polls the last byte of a strongly ordered put sees all of it, and all that was posted before.
TEST_P(SimChaos, StrongOrderMakesTheLastByteLast)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr size_t size = 3000;
        alignas(256) static uint8_t buffer[4 * size];
        Pair me(rank, buffer, sizeof buffer);
        for (unsigned round = 1; round <= 100; round++) {
            const auto value = static_cast<uint8_t>(round);
            if (rank.number == 0) {
                std::memset(buffer, value, 2 * size);
                for (size_t part = 0; part < 2; part++) {
                    ASSERT_EQ(posted([&] {
                                  return utofu_put(me.vcq, me.peer(), me.stadd + part * size, me.at(part * size), size,
                                                   0, UTOFU_ONESIDED_FLAG_STRONG_ORDER | local_notice, nullptr);
                              }),
                              UTOFU_SUCCESS);
                }
                utofu_mrq_notice notice;
                EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
                EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
            } else {
                const volatile uint8_t& last = buffer[2 * size - 1];
                ASSERT_TRUE(wait_until([&] { return last == value; }));
                for (size_t i = 0; i < 2 * size; i++) {
                    ASSERT_EQ(buffer[i], value) << i;
                }
            }
            rank.barrier();
        }
    });
}

// Notices: TCQ entries in the order of posting; remote and local ones too for one peer; a remote one when its data are
// there; a get's local one when the data are here.
TEST_P(SimChaos, NoticesKeepTheirOrderAndFollowTheirData)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr unsigned count = 500;
        constexpr size_t size = 700;
        static uint8_t buffer[count][size];
        Pair me(rank, buffer, sizeof buffer);
        if (rank.number == 0) {
            std::memset(buffer, 7, sizeof buffer);
            uintptr_t next_tcq = 0;
            unsigned next_mrq = 0;
            const auto poll = [&] {
                void* cbdata = nullptr;
                if (utofu_poll_tcq(me.vcq, 0, &cbdata) == UTOFU_SUCCESS) {
                    EXPECT_EQ(reinterpret_cast<uintptr_t>(cbdata), next_tcq);
                    next_tcq++;
                }
                utofu_mrq_notice notice;
                if (utofu_poll_mrq(me.vcq, 0, &notice) == UTOFU_SUCCESS) {
                    EXPECT_EQ(notice.edata, next_mrq % 256);
                    next_mrq++;
                }
            };
            for (uintptr_t i = 0; i < count; i++) {
                EXPECT_TRUE(wait_until([&] {
                    poll();
                    return utofu_put(me.vcq, me.peer(), me.stadd + i * size, me.at(i * size), size, i % 256,
                                     tcq_notice | local_notice | remote_notice,
                                     reinterpret_cast<void*>(i)) == UTOFU_SUCCESS;
                }));
            }
            EXPECT_TRUE(wait_until([&] {
                poll();
                return next_tcq == count && next_mrq == count;
            }));
        } else {
            for (unsigned i = 0; i < count; i++) {
                utofu_mrq_notice notice;
                ASSERT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
                EXPECT_EQ(notice.edata, i % 256);
                for (size_t byte = 0; byte < size; byte++) {
                    ASSERT_EQ(buffer[i][byte], 7);
                }
            }
        }
        rank.barrier();
    });
}

// Without strong order lines of one transfer arrive in any order, but each of them whole.
TEST_P(SimChaos, UsesItsFreedom)
{
    expect_processes(1, [](const Rank&) {
        constexpr size_t lines = 8;
        alignas(256) static volatile uint8_t source[lines * 256];
        alignas(256) static volatile uint8_t target[lines * 256];
        const Own own;
        const utofu_stadd_t from = own.add(source);
        const utofu_stadd_t to = own.add(target);
        unsigned overtaken = 0;
        for (unsigned round = 1; round <= 200; round++) {
            const auto value = static_cast<uint8_t>(round);
            for (auto& byte : source) {
                byte = value;
            }
            ASSERT_EQ(posted([&] {
                          return utofu_put(own.vcq, own.id, from, to, sizeof source, 0, local_notice, nullptr);
                      }),
                      UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            int rc = UTOFU_ERR_NOT_FOUND;
            while (rc == UTOFU_ERR_NOT_FOUND) { // each poll carries it on a little
                const uint8_t last = target[sizeof target - 1];
                overtaken += last == value && target[0] != value ? 1 : 0;
                rc = utofu_poll_mrq(own.vcq, 0, &notice);
            }
            EXPECT_EQ(rc, UTOFU_SUCCESS);
            for (const auto& byte : target) {
                ASSERT_EQ(byte, value);
            }
        }
        EXPECT_GT(overtaken, 0u);
    });
}

// A line whose bytes come from two pages of 64 KiB arrives in two parts: in any order, but with strong order the one
// from the second page last (guide 6.1.3.1).
TEST_P(SimChaos, CutsLinesWhereTheSourceCrossesAPage)
{
    expect_processes(1, [](const Rank&) {
        constexpr size_t page = 65536;
        constexpr size_t size = 256;
        alignas(page) static volatile uint8_t sources[2 * page];
        alignas(256) static volatile uint8_t target[size];
        const Own own;
        const utofu_stadd_t from = own.add(sources);
        const utofu_stadd_t to = own.add(target);
        const auto run = [&](bool get, unsigned long strong, size_t skip) {
            volatile uint8_t* const source = sources + page - skip;
            const utofu_stadd_t at = from + page - skip;
            unsigned first_alone = 0;
            unsigned last_alone = 0;
            for (unsigned round = 1; round <= 200; round++) {
                const auto value = static_cast<uint8_t>(round);
                for (size_t i = 0; i < size; i++) {
                    source[i] = value;
                }
                const unsigned long flags = strong | local_notice;
                EXPECT_EQ(posted([&] {
                              return get ? utofu_get(own.vcq, own.id, to, at, size, 0, flags, nullptr)
                                         : utofu_put(own.vcq, own.id, at, to, size, 0, flags, nullptr);
                          }),
                          UTOFU_SUCCESS);
                utofu_mrq_notice notice;
                int rc = UTOFU_ERR_NOT_FOUND;
                while (rc == UTOFU_ERR_NOT_FOUND) {
                    const bool last = target[size - 1] == value; // its thread goes on between these looks
                    const bool first = target[0] == value;
                    last_alone += last && !first ? 1 : 0;
                    first_alone += first && target[size - 1] != value ? 1 : 0;
                    rc = utofu_poll_mrq(own.vcq, 0, &notice);
                }
                EXPECT_EQ(rc, UTOFU_SUCCESS);
                for (size_t i = 0; i < size; i++) {
                    EXPECT_EQ(target[i], value);
                }
            }
            if (strong != 0) {
                EXPECT_EQ(last_alone, 0u);
            } else {
                EXPECT_GT(last_alone, 0u) << get << ' ' << skip;
            }
            EXPECT_GT(first_alone, 0u) << get << ' ' << strong << ' ' << skip;
        };
        for (const bool get : {false, true}) {
            for (const unsigned long strong : {0ul, UTOFU_ONESIDED_FLAG_STRONG_ORDER}) {
                run(get, strong, 100);
            }
        }
    });
}

// The source of a put is read late, up to its TCQ entry.
TEST_P(SimChaos, ASourceChangedTooEarlyIsSeen)
{
    expect_processes(1, [](const Rank&) {
        static volatile uint64_t words[64];
        const Own own;
        const utofu_stadd_t at = own.add(words);
        unsigned spoilt = 0;
        for (uint64_t round = 1; round <= 200; round++) {
            words[0] = round;
            ASSERT_EQ(posted([&] {
                          return utofu_put(own.vcq, own.id, at, at + 256, 8, 0, tcq_notice | local_notice, nullptr);
                      }),
                      UTOFU_SUCCESS);
            words[0] = 0; // the mistake
            void* cbdata = nullptr;
            ASSERT_EQ(wait_tcq(own.vcq, &cbdata), UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
            spoilt += words[32] != round ? 1 : 0;
        }
        EXPECT_GT(spoilt, 0u);
    });
}

TEST_P(SimChaos, DelayStartHoldsUntilTheNextPost)
{
    expect_processes(1, [](const Rank&) {
        static volatile uint64_t words[8];
        const Own own;
        const utofu_stadd_t at = own.add(words);
        const auto put = [&](uint64_t value, unsigned long flags) {
            return posted([&] {
                return utofu_put_piggyback8(own.vcq, own.id, value, at, 8, 0, flags | local_notice, nullptr);
            });
        };
        utofu_mrq_notice notice;
        ASSERT_EQ(put(1, UTOFU_ONESIDED_FLAG_DELAY_START), UTOFU_SUCCESS);
        for (unsigned i = 0; i < 100; i++) {
            EXPECT_EQ(utofu_poll_mrq(own.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
        }
        ASSERT_EQ(posted([&] { return utofu_post_toq(own.vcq, nullptr, 0, nullptr); }), UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
        EXPECT_EQ(words[0], 1u);
        ASSERT_EQ(put(2, UTOFU_ONESIDED_FLAG_DELAY_START), UTOFU_SUCCESS);
        ASSERT_EQ(put(3, UTOFU_ONESIDED_FLAG_STRONG_ORDER), UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
        EXPECT_EQ(words[0], 3u);
    });
}

// With the first freedom alone, late, what was posted arrives although its process frees the VCQ, or ends, at once.
TEST_P(SimChaos, WhatIsOnItsWayArrives)
{
    take("late");
    expect_processes(2, [](const Rank& rank) {
        static volatile uint64_t words[101];
        Pair me(rank, const_cast<uint64_t*>(words), sizeof words);
        if (rank.number == 0) {
            for (unsigned i = 0; i < 100; i++) {
                ASSERT_EQ(posted([&] { return utofu_put_piggyback8(me.vcq, me.peer(), i + 1, me.at(i * 8), 8, 0, 0,
                                                                    nullptr); }),
                          UTOFU_SUCCESS);
            }
            return; // and out
        }
        for (unsigned i = 0; i < 100; i++) {
            EXPECT_TRUE(wait_until([&] { return words[i] == i + 1; }));
        }
    });
}

// What no notice has told of may be lost when the VCQ is freed. What one has told of is there, and so is what was posted
// before that to the same VCQ.
TEST_P(SimChaos, WhatIsOnItsWayIsLostWithItsVcq)
{
    for (const char* freedoms : {"drop", ""}) {
        take(freedoms);
        expect_processes(1, [](const Rank&) {
            static volatile uint64_t words[32];
            const Own target;
            const utofu_stadd_t at = target.add(words);
            unsigned lost = 0;
            for (uint64_t round = 1; round <= 100; round++) {
                const Own own;
                for (unsigned i = 0; i < 32; i++) {
                    ASSERT_EQ(posted([&] {
                                  return utofu_put_piggyback8(own.vcq, target.id, round, at + i * 8, 8, 0,
                                                              i == 15 ? local_notice : 0, nullptr);
                              }),
                              UTOFU_SUCCESS);
                }
                utofu_mrq_notice notice;
                ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
                ASSERT_EQ(utofu_free_vcq(own.vcq), UTOFU_SUCCESS);
                for (unsigned i = 0; i < 16; i++) {
                    ASSERT_EQ(words[i], round) << i;
                }
                lost += words[31] != round ? 1 : 0;
            }
            EXPECT_GT(lost, 0u);
            EXPECT_LT(lost, 100u);
        });
    }
}

// A put, or an ARMW, and a get of the same word behind it, in strong order: the get may have read before. Its notice
// comes behind the put all the same, for writing waits for writing.
TEST_P(SimChaos, AGetReadsBeforeAnEarlierPutHasWritten)
{
    for (const char* freedoms : {"raw", "", "late"}) {
        take(freedoms);
        const bool may = std::strcmp(freedoms, "late") != 0;
        expect_processes(1, [&](const Rank&) {
            static volatile uint64_t words[4];
            const Own own;
            const utofu_stadd_t at = own.add(words);
            unsigned early[2] = {};
            for (uint64_t round = 1; round <= 400; round++) {
                const bool armw = round % 2 == 0;
                words[0] = round - 1;
                words[1] = UINT64_MAX;
                ASSERT_EQ(posted([&] {
                              return armw ? utofu_armw8(own.vcq, own.id, UTOFU_ARMW_OP_SWAP, round, at, 0,
                                                        local_notice | UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr)
                                          : utofu_put_piggyback8(own.vcq, own.id, round, at, 8, 0, local_notice,
                                                                 nullptr);
                          }),
                          UTOFU_SUCCESS);
                ASSERT_EQ(posted([&] {
                              return utofu_get(own.vcq, own.id, at + 8, at, 8, 1,
                                               local_notice | UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr);
                          }),
                          UTOFU_SUCCESS);
                utofu_mrq_notice notice;
                ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
                ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
                void* cbdata = nullptr;
                ASSERT_EQ(utofu_poll_tcq(own.vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND); // gives the TOQ room
                ASSERT_EQ(words[0], round);
                ASSERT_TRUE(words[1] == round || words[1] == round - 1) << words[1];
                early[armw ? 1 : 0] += words[1] != round ? 1 : 0;
            }
            EXPECT_EQ(early[0] > 0, may) << early[0];
            EXPECT_EQ(early[1] > 0, may) << early[1];
        });
    }
}

// Who takes a lock by a CSWAP reads, by a get behind it in strong order, what its last holder wrote before it freed the
// lock: reading follows reading, and the CSWAP has read that the lock is free.
TEST_P(SimChaos, ALockTakenByACswapProtectsWhatIsReadBehindIt)
{
    constexpr uint64_t rounds = 200;
    expect_processes(2, [](const Rank& rank) {
        alignas(256) static volatile uint64_t words[4]; // at rank 0: the lock, the sum; here: what was read
        Pair me(rank, const_cast<uint64_t*>(words), sizeof words);
        const utofu_vcq_id_t target = rank.get(0);
        const utofu_stadd_t lock = rank.get(1);
        const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | local_notice;
        const auto swap = [&](uint64_t from, uint64_t to) {
            ASSERT_EQ(posted([&] { return utofu_cswap8(me.vcq, target, from, to, lock, 0, flags, nullptr); }),
                      UTOFU_SUCCESS);
        };
        utofu_mrq_notice notice[2];
        void* cbdata = nullptr;
        for (uint64_t done = 0; done < rounds;) {
            swap(0, 1 + rank.number);
            ASSERT_EQ(posted([&] {
                          return utofu_get(me.vcq, target, me.stadd + 16, lock + 8, 8, 1, flags, nullptr);
                      }),
                      UTOFU_SUCCESS);
            ASSERT_EQ(wait_mrq(me.vcq, &notice[0]), UTOFU_SUCCESS);
            ASSERT_EQ(wait_mrq(me.vcq, &notice[1]), UTOFU_SUCCESS);
            if (notice[0].rmt_value == 0) {
                ASSERT_EQ(posted([&] {
                              return utofu_put_piggyback8(me.vcq, target, words[2] + 1, lock + 8, 8, 0, flags, nullptr);
                          }),
                          UTOFU_SUCCESS);
                swap(1 + rank.number, 0);
                ASSERT_EQ(wait_mrq(me.vcq, &notice[0]), UTOFU_SUCCESS);
                ASSERT_EQ(wait_mrq(me.vcq, &notice[1]), UTOFU_SUCCESS);
                done++;
            }
            ASSERT_EQ(utofu_poll_tcq(me.vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND); // gives the TOQ room
        }
        rank.barrier();
        if (rank.number == 0) {
            EXPECT_EQ(words[1], 2 * rounds);
        }
    });
}

// Gets keep their order of reading, puts theirs of writing, whatever overtakes between the two kinds.
TEST_P(SimChaos, GetsAndPutsKeepTheirOrderAmongThemselves)
{
    expect_processes(1, [](const Rank&) {
        static volatile uint64_t words[64];
        const Own own;
        const utofu_stadd_t at = own.add(words);
        const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | local_notice;
        for (uint64_t round = 1; round <= 200; round++) {
            for (unsigned i = 0; i < 8; i++) { // word 0 counts up, and is read as often
                ASSERT_EQ(posted([&] {
                              return utofu_put_piggyback8(own.vcq, own.id, round * 8 + i, at, 8, 0, flags, nullptr);
                          }),
                          UTOFU_SUCCESS);
                ASSERT_EQ(posted([&] {
                              return utofu_get(own.vcq, own.id, at + 8 + i * 8, at, 8, 0, flags, nullptr);
                          }),
                          UTOFU_SUCCESS);
            }
            utofu_mrq_notice notice;
            for (unsigned i = 0; i < 16; i++) {
                ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
            }
            void* cbdata = nullptr;
            ASSERT_EQ(utofu_poll_tcq(own.vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND); // gives the TOQ room
            EXPECT_EQ(words[0], round * 8 + 7);
            for (unsigned i = 1; i < 8; i++) {
                ASSERT_GE(words[1 + i], words[i]);
            }
        }
    });
}

// A put's TCQ entry may come before its data are there, but not before they were read.
TEST_P(SimChaos, ASourceIsFreeBeforeTheDataArrive)
{
    expect_processes(1, [](const Rank&) {
        constexpr size_t lines = 16;
        alignas(256) static volatile uint8_t bytes[2 * lines * 256];
        volatile uint8_t* const there = bytes + lines * 256;
        const Own own;
        const utofu_stadd_t at = own.add(bytes);
        unsigned before = 0;
        for (unsigned round = 1; round <= 200; round++) {
            const auto fill = [&](uint8_t value) {
                for (size_t i = 0; i < lines * 256; i++) {
                    bytes[i] = value;
                }
            };
            const auto value = static_cast<uint8_t>(round);
            fill(value);
            ASSERT_EQ(posted([&] {
                          return utofu_put(own.vcq, own.id, at, at + lines * 256, lines * 256, 0,
                                           tcq_notice | local_notice, nullptr);
                      }),
                      UTOFU_SUCCESS);
            void* cbdata = nullptr;
            ASSERT_EQ(wait_tcq(own.vcq, &cbdata), UTOFU_SUCCESS);
            bool all = true;
            for (size_t i = 0; i < lines; i++) {
                all = all && there[i * 256] == value;
            }
            before += all ? 0 : 1;
            fill(0);
            utofu_mrq_notice notice;
            ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
            for (size_t i = 0; i < lines * 256; i++) {
                ASSERT_EQ(there[i], value);
            }
        }
        EXPECT_GT(before, 0u);
    });
}

// An entry that is there is found later.
TEST_P(SimChaos, APollFindsLateWhatIsThere)
{
    for (const char* freedoms : {"poll", "", "late"}) {
        take(freedoms);
        const bool may = std::strcmp(freedoms, "late") != 0;
        expect_processes(1, [&](const Rank&) {
            utofu_vcq_hdl_t vcq = 0;
            ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
            unsigned late = 0;
            for (unsigned round = 0; round < 400; round++) {
                ASSERT_EQ(posted([&] { return utofu_nop(vcq, tcq_notice, nullptr); }), UTOFU_SUCCESS);
                size_t unread = 0;
                void* cbdata = nullptr;
                // One is there, it says, which polls alone take away: with nothing under way it is in the queue.
                while (utofu_poll_tcq(vcq, 0, &cbdata) == UTOFU_ERR_NOT_FOUND) {
                    late++;
                    ASSERT_EQ(utofu_query_num_unread_tcq(vcq, &unread), UTOFU_SUCCESS);
                    ASSERT_EQ(unread, 1u);
                    ASSERT_LT(late, 400u * 64);
                }
            }
            // Some 940 by the dice, give or take 130; and 75 for what is not carried out yet.
            EXPECT_EQ(late > 300, may) << late;
        });
    }
}

// Torn: a line comes in parts, of which with strong order the one with the last byte is the last; no word of 8 bytes is
// torn. Without that freedom a line is whole.
TEST_P(SimChaos, LinesAreTornWhereAskedFor)
{
    for (const char* freedoms : {"torn", "", "late,drop,raw,poll,torn"}) {
        take(freedoms);
        const bool may = *freedoms != '\0';
        expect_processes(1, [&](const Rank&) {
            constexpr size_t size = 32; // words of a line
            alignas(256) static volatile uint64_t source[2 * size];
            alignas(256) static volatile uint64_t target[2 * size];
            const Own own;
            const utofu_stadd_t from = own.add(source);
            const utofu_stadd_t to = own.add(target);
            for (const unsigned long strong : {0ul, UTOFU_ONESIDED_FLAG_STRONG_ORDER}) {
                unsigned torn = 0;
                unsigned last_early = 0;
                for (uint64_t round = 1; round <= 200; round++) {
                    const uint64_t value = round * 0x0101010101010101u;
                    const uint64_t former = target[0];
                    for (auto& word : source) {
                        word = value;
                    }
                    ASSERT_EQ(posted([&] {
                                  return utofu_put(own.vcq, own.id, from, to, sizeof source, 0, strong | local_notice,
                                                   nullptr);
                              }),
                              UTOFU_SUCCESS);
                    utofu_mrq_notice notice;
                    while (utofu_poll_mrq(own.vcq, 0, &notice) == UTOFU_ERR_NOT_FOUND) {
                        const uint64_t last = target[2 * size - 1]; // its thread goes on between these looks
                        ASSERT_TRUE(last == value || last == former);
                        unsigned there = 0;
                        for (unsigned i = size; i < 2 * size - 1; i++) {
                            there += target[i] == value ? 1 : 0;
                        }
                        torn += there != 0 && target[size] != value ? 1 : 0;
                        last_early += last == value && there != size - 1 ? 1 : 0;
                    }
                    for (const auto& word : target) {
                        ASSERT_EQ(word, value);
                    }
                }
                EXPECT_EQ(torn > 0, may) << strong << ' ' << freedoms;
                EXPECT_EQ(last_early > 0, may && strong == 0) << strong << ' ' << freedoms;
            }
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimChaos, ::testing::Values("0", "1", "20261121"));

} // namespace
} // namespace tofu::sim::test
