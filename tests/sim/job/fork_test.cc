// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A child of fork that calls uTofu, whatever its parent did before: a new process of the job.
#include "lib/harness.h"

#include <gtest/gtest.h>
#include <tofu_sim.h>

#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace tofu::sim::test {
namespace {

constexpr unsigned long all_notices =
    UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

alignas(256) volatile uint64_t words[32];

// A put, a get and an atomic operation of a VCQ on itself, with every notice.
void use_vcq(utofu_vcq_hdl_t vcq, utofu_vcq_hdl_t poster, uint64_t value)
{
    utofu_vcq_id_t id = 0;
    utofu_stadd_t stadd = 0;
    ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_reg_mem(vcq, const_cast<uint64_t*>(words), sizeof words, 0, &stadd), UTOFU_SUCCESS);
    words[0] = 0;
    utofu_mrq_notice notice{};
    void* cbdata = nullptr;
    ASSERT_EQ(posted([&] { return utofu_put_piggyback8(poster, id, value, stadd, 8, 0, all_notices, nullptr); }),
              UTOFU_SUCCESS);
    EXPECT_EQ(wait_tcq(poster, &cbdata), UTOFU_SUCCESS);
    EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
    EXPECT_EQ(wait_mrq(poster, &notice), UTOFU_SUCCESS);
    EXPECT_TRUE(wait_until([&] { return words[0] == value; }));
    ASSERT_EQ(posted([&] {
                  return utofu_armw8(poster, id, UTOFU_ARMW_OP_ADD, 1, stadd, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                     nullptr);
              }),
              UTOFU_SUCCESS);
    EXPECT_EQ(wait_mrq(poster, &notice), UTOFU_SUCCESS);
    EXPECT_EQ(notice.rmt_value, value);
    EXPECT_EQ(words[0], value + 1);
}

// What a process can have of uTofu, kept until it ends: VCQs of each kind on each TNI, STADDs, gates, statistics.
void use_everything(unsigned generation)
{
    ASSERT_NE(tofu_sim_job(), nullptr);
    utofu_tni_id_t* tnis = nullptr;
    size_t count = 0;
    ASSERT_EQ(utofu_get_onesided_tnis(&tnis, &count), UTOFU_SUCCESS);
    for (size_t i = 0; i < count; i++) {
        utofu_vcq_hdl_t vcq = 0;
        utofu_vcq_hdl_t alone = 0;
        utofu_vcq_hdl_t session = 0;
        ASSERT_EQ(utofu_create_vcq(tnis[i], 0, &vcq), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_create_vcq(tnis[i], UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_THREAD_SAFE, &alone),
                  UTOFU_SUCCESS);
        ASSERT_NO_FATAL_FAILURE(use_vcq(vcq, vcq, 10 * generation + i));
        ASSERT_NO_FATAL_FAILURE(use_vcq(vcq, alone, 11 * generation + i));
        if (generation < 2) { // a node has few
            ASSERT_EQ(utofu_create_vcq(tnis[i], UTOFU_VCQ_FLAG_SESSION_MODE, &session), UTOFU_SUCCESS);
            ASSERT_NO_FATAL_FAILURE(use_vcq(session, vcq, 12 * generation + i));
        }
        tofu_sim_tni_statistics statistics{};
        EXPECT_EQ(tofu_sim_query_statistics(tnis[i], &statistics), UTOFU_SUCCESS);
        EXPECT_GE(statistics.operations, 4u);
        EXPECT_LE(statistics.operations, 6u); // none of the parent's
        utofu_vbg_id_t gates[2];
        if (utofu_alloc_vbg(tnis[i], 2, 0, gates) == UTOFU_SUCCESS) // not each TNI has gates
            EXPECT_EQ(utofu_free_vbg(gates, 2), UTOFU_SUCCESS);
    }
    std::free(tnis);
}

// Each generation is the child of the one before, which still has everything.
bool descend(unsigned generation, unsigned last)
{
    use_everything(generation);
    if (::testing::Test::HasFailure()) {
        ADD_FAILURE() << "in generation " << generation;
        return false;
    }
    if (generation == last)
        return true;
    const pid_t child = ::fork();
    if (child == 0)
        std::exit(descend(generation + 1, last) ? 0 : 1);
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return status == 0;
}

struct Setting {
    const char* variable;
    const char* value;
};

class SimFork : public ::testing::TestWithParam<Setting> {};

TEST_P(SimFork, AChildUsesWhatItsParentUses)
{
    expect_processes(1, [](const Rank&) {
        if (std::string(GetParam().variable) != "TOFU_SIM_RANK")
            ::unsetenv("TOFU_SIM_RANK"); // each has a node of its own, and the same queues there
        ::setenv(GetParam().variable, GetParam().value, 1);
        char directory[] = "/tmp/tofu-sim-fork-XXXXXX";
        ASSERT_NE(::mkdtemp(directory), nullptr);
        ASSERT_EQ(::chdir(directory), 0); // for traces
        EXPECT_TRUE(descend(0, 2));
        ASSERT_EQ(::chdir("/"), 0);
        ASSERT_EQ(std::system(("rm -r " + std::string(directory)).c_str()), 0);
    });
}

INSTANTIATE_TEST_SUITE_P(Settings, SimFork,
                         ::testing::Values(Setting{"TOFU_SIM_RANK", "0"}, Setting{"TOFU_SIM_CPU", "0"},
                                           Setting{"TOFU_SIM_CHAOS", "3"}, Setting{"TOFU_SIM_CLOCK", "tofud"},
                                           Setting{"TOFU_SIM_TRACE", "trace.%p"}),
                         [](const auto& info) { return std::string(info.param.variable + 9); });

} // namespace
} // namespace tofu::sim::test
