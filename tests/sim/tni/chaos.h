// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes of the adversarial mode by seed and freedom, and VCQs with memory of their own.
#pragma once

#include "lib/harness.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace tofu::sim::test {

inline constexpr unsigned long tcq_notice = UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
inline constexpr unsigned long local_notice = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
inline constexpr unsigned long remote_notice = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

inline constexpr const char* chaos_seeds[] = {"0", "1", "20261121"};

/// A suite for each freedom derives from it; its parameter is the seed.
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
        ::unsetenv("TOFU_SIM_CLOCK");
        ::unsetenv("TOFU_SIM_SIZE");
        if (outer_.empty())
            ::unsetenv("TOFU_SIM_CHAOS");
        else
            ::setenv("TOFU_SIM_CHAOS", outer_.c_str(), 1);
    }
    // Processes started from now on: these freedoms alone, or for "" those of a seed alone.
    static void take(const char* relaxations)
    {
        const std::string text = std::string(GetParam()) + (*relaxations != '\0' ? ":" : "") + relaxations;
        ::setenv("TOFU_SIM_CHAOS", text.c_str(), 1);
    }

    // A process that is started from now on has exact mode: a seed is one order of events, so few rounds show as much
    // as many do elsewhere, and a failure repeats.
    static void take_exact_alone()
    {
        ::setenv("TOFU_SIM_CLOCK", "exact", 1);
        ::setenv("TOFU_SIM_SIZE", "1", 1);
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

} // namespace tofu::sim::test
