// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes killed at any instant while put, get, ARMW, registration, barriers and creation of VCQs go on (issue: dead
// and dying processes). TOFU_TEST_KILLS sets how many (default 150).
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

constexpr unsigned workers = 3;
constexpr size_t bytes = 20'000;

unsigned number_of_kills()
{
    const char* const text = std::getenv("TOFU_TEST_KILLS");
    return text != nullptr ? static_cast<unsigned>(std::atoi(text)) : 150;
}

struct Endpoint {
    utofu_vcq_hdl_t vcq = 0;
    utofu_stadd_t stadd = 0;
    uint64_t completions = 0;

    bool open(const Rank& rank, unsigned slot, void* buffer)
    {
        utofu_vcq_id_t id = 0;
        if (utofu_create_vcq(static_cast<utofu_tni_id_t>(slot), 0, &vcq) != UTOFU_SUCCESS ||
            utofu_query_vcq_id(vcq, &id) != UTOFU_SUCCESS ||
            utofu_reg_mem(vcq, buffer, bytes, 0, &stadd) != UTOFU_SUCCESS)
            return false;
        rank.set(10 + 2 * slot + 1, stadd);
        rank.set(10 + 2 * slot, id);
        return true;
    }

    // One operation towards `slot`; false if what came back is none of the answers there can be.
    bool operate(const Rank& rank, unsigned slot, uint32_t dice)
    {
        const utofu_vcq_id_t to = rank.get(10 + 2 * slot);
        const utofu_stadd_t at = rank.get(10 + 2 * slot + 1);
        if (to == 0)
            return true; // has not come up yet
        constexpr unsigned long notice = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
        // Remote notices now and then only: a process that gets no turn for a while must not overflow.
        const unsigned long both = notice | (dice % 64 == 0 ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0);
        int rc = UTOFU_ERR_BUSY;
        switch (dice % 5) {
        case 0: rc = utofu_put(vcq, to, stadd, at, dice % bytes, 0, both, nullptr); break;
        case 1: rc = utofu_get(vcq, to, stadd, at, dice % bytes, 0, notice, nullptr); break;
        case 2: rc = utofu_armw8(vcq, to, UTOFU_ARMW_OP_ADD, 1, at, 0, both, nullptr); break;
        case 3: rc = utofu_put_piggyback8(vcq, to, dice, at + 8, 8, 0, both, nullptr); break;
        default: rc = utofu_cswap4(vcq, to, 0, 1, at + 16, 0, notice, nullptr); break;
        }
        void* cbdata = nullptr;
        int tcq = UTOFU_SUCCESS;
        while ((tcq = utofu_poll_tcq(vcq, 0, &cbdata)) == UTOFU_SUCCESS) {
        }
        if ((rc == UTOFU_SUCCESS || rc == UTOFU_ERR_BUSY) && tcq == UTOFU_ERR_NOT_FOUND)
            return drain();
        ADD_FAILURE() << "operation " << dice % 5 << " gave " << rc << ", its TCQ " << tcq;
        return false;
    }

    bool drain()
    {
        utofu_mrq_notice notice;
        for (;;) {
            switch (utofu_poll_mrq(vcq, 0, &notice)) {
            case UTOFU_ERR_NOT_FOUND: return true;
            case UTOFU_SUCCESS: completions++; break;
            case UTOFU_ERR_MRQ_PEER:      // it is dead
            case UTOFU_ERR_MRQ_RMT_STADD: // its successor has other STADDs
            case UTOFU_ERR_MRQ_RMT_LENGTH:
            case UTOFU_ERR_MRQ_RMT_MEMORY: break;
            default: ADD_FAILURE() << "notice of type " << int(notice.notice_type); return false;
            }
        }
    }
};

// A circuit of two: the survivor has a start/end gate and a relay on TNI `slot`, the worker a start/end gate
// there. What they tell each other on the board, by slot: both gates, and the worker's pid when its gate is set, then
// when the other's are too.
struct Circuit {
    static constexpr unsigned relay_word = 100;
    static constexpr unsigned worker_word = 110;
    static constexpr unsigned set_word = 120;
    static constexpr unsigned ready_word = 130;

    utofu_vbg_id_t gates[2] = {};
    uint64_t partner = 0; // pid of the worker that the gates are set for
    bool under_way = false;
    bool broken = false;
    uint64_t sums = 0;
    uint64_t breaks = 0;

    bool open(unsigned slot, size_t count)
    {
        return utofu_alloc_vbg(static_cast<utofu_tni_id_t>(slot), count, 0, gates) == UTOFU_SUCCESS;
    }
    [[nodiscard]] static utofu_vbg_setting setting(utofu_vbg_id_t gate, utofu_vbg_id_t signals, utofu_vbg_id_t packets)
    {
        return {gate, signals, packets, signals, packets, {UTOFU_PATH_COORD_NULL, 0, 0}};
    }
    // False: not what can be while the partner lives, or may have been killed.
    [[nodiscard]] bool go_on(bool partner_may_die)
    {
        uint64_t value = 1;
        if (!under_way) {
            under_way = utofu_reduce_uint64(gates[0], UTOFU_REDUCE_OP_SUM, &value, 1, 0) == UTOFU_SUCCESS;
            return under_way;
        }
        switch (utofu_poll_reduce_uint64(gates[0], 0, &value)) {
        case UTOFU_ERR_NOT_COMPLETED: return true;
        case UTOFU_SUCCESS:
            under_way = false;
            sums++;
            return value == 2;
        case UTOFU_ERR_BARRIER_OTHER:
            under_way = false;
            broken = true;
            breaks++;
            return partner_may_die;
        default: return false;
        }
    }
    // The survivor: a new worker, or another round with the current one.
    [[nodiscard]] bool live(const Rank& rank, unsigned slot)
    {
        const uint64_t pid = rank.get(set_word + slot);
        if (pid != partner) {
            const utofu_vbg_id_t other = rank.get(worker_word + slot);
            utofu_vbg_setting both[2] = {setting(gates[0], gates[1], UTOFU_VBG_ID_NULL),
                                         setting(gates[1], gates[0], other)};
            if (utofu_set_vbg(both, 2) != UTOFU_SUCCESS)
                return false;
            partner = pid;
            under_way = broken = false;
            rank.set(ready_word + slot, pid);
        }
        return partner == 0 || broken || go_on(true);
    }
    // The worker's side.
    [[nodiscard]] bool work(const Rank& rank, unsigned slot)
    {
        const auto own = static_cast<uint64_t>(::getpid());
        if (gates[0] == 0) {
            const utofu_vbg_id_t relay = rank.get(relay_word + slot);
            if (relay == 0)
                return true; // the other has not come up yet
            utofu_vbg_setting one = setting(0, UTOFU_VBG_ID_NULL, relay);
            if (!open(slot, 1) || (one.vbg_id = gates[0], utofu_set_vbg(&one, 1)) != UTOFU_SUCCESS)
                return false;
            rank.set(worker_word + slot, gates[0]);
            rank.set(set_word + slot, own);
        }
        return rank.get(ready_word + slot) != own || go_on(false);
    }
};

// Lives until it is killed: makes and frees VCQs and registrations, and communicates with all processes.
[[noreturn]] void work(const Rank& rank, unsigned slot, uint32_t seed)
{
    static uint64_t words[bytes / 8];
    Endpoint own;
    if (!own.open(rank, slot, words))
        ::_exit(2);
    Circuit circuit;
    for (;;) {
        seed = seed * 1664525 + 1013904223;
        if (!own.operate(rank, seed >> 8 & 3, seed >> 12))
            ::_exit(3);
        if (!circuit.work(rank, slot))
            ::_exit(4);
        if (seed >> 24 == 0) {
            utofu_vcq_hdl_t more = 0;
            if (utofu_create_vcq(5, UTOFU_VCQ_FLAG_EXCLUSIVE, &more) == UTOFU_SUCCESS) {
                utofu_stadd_t stadd = 0;
                void* const memory = std::malloc(100'000);
                if (utofu_reg_mem(more, memory, 100'000, 0, &stadd) == UTOFU_SUCCESS)
                    (void)utofu_dereg_mem(more, stadd, 0);
                (void)utofu_free_vcq(more);
                std::free(memory);
            }
        }
    }
}

size_t count_mappings()
{
    std::ifstream maps("/proc/self/maps");
    size_t lines = 0;
    for (std::string line; std::getline(maps, line);)
        lines++;
    return lines;
}

// Rank 1: never calls uTofu; starts workers, and kills them at random instants.
void kill_workers(const Rank& rank, unsigned kills)
{
    pid_t pids[workers + 1] = {};
    uint32_t seed = 2463534242;
    const auto start = [&](unsigned slot) {
        pids[slot] = ::fork();
        if (pids[slot] == 0) {
            ::setenv("TOFU_SIM_RANK", std::to_string(slot).c_str(), 1);
            work(rank, slot, seed);
        }
    };
    for (unsigned slot = 1; slot <= workers; slot++)
        start(slot);
    for (unsigned kill = 0; kill < kills; kill++) {
        seed = seed * 1664525 + 1013904223;
        ::usleep(seed >> 16 & 0x3fff); // a random instant: 0 to 16 ms
        const unsigned slot = 1 + (seed >> 10) % workers;
        ::kill(pids[slot], SIGKILL);
        int status = 0;
        ::waitpid(pids[slot], &status, 0);
        EXPECT_TRUE(WIFSIGNALED(status)) << "worker ended by itself: " << WEXITSTATUS(status);
        start(slot);
    }
    for (unsigned slot = 1; slot <= workers; slot++) {
        ::kill(pids[slot], SIGKILL);
        ::waitpid(pids[slot], nullptr, 0);
    }
    rank.set(1, 1);
}

// Afterwards: operations with dead workers fail, those with this process succeed.
void expect_answers(const Rank& rank, const Endpoint& own)
{
    for (unsigned slot = 0; slot <= workers; slot++) {
        ASSERT_EQ(posted([&] {
                      return utofu_put_piggyback8(own.vcq, rank.get(10 + 2 * slot), 1, own.stadd, 8, 200 + slot,
                                                  UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                  }),
                  UTOFU_SUCCESS);
        utofu_mrq_notice notice{};
        int rc = UTOFU_SUCCESS;
        do { // behind what is still in the queue
            rc = wait_mrq(own.vcq, &notice);
        } while (rc != UTOFU_ERR_NOT_FOUND && notice.edata != 200 + slot);
        EXPECT_EQ(rc, slot == 0 ? UTOFU_SUCCESS : UTOFU_ERR_MRQ_PEER);
    }
}

// Rank 0: operations and barriers with all workers, whichever of them were killed meanwhile.
void survive(const Rank& rank, unsigned kills)
{
    static uint64_t words[bytes / 8];
    Endpoint own;
    ASSERT_TRUE(own.open(rank, 0, words));
    Circuit circuits[workers + 1];
    for (unsigned slot = 1; slot <= workers; slot++) {
        ASSERT_TRUE(circuits[slot].open(slot, 2));
        rank.set(Circuit::relay_word + slot, circuits[slot].gates[1]);
    }
    uint32_t seed = 88172645;
    uint64_t rounds = 0;
    while (rank.get(1) == 0) {
        seed = seed * 1664525 + 1013904223;
        ASSERT_TRUE(own.operate(rank, seed >> 8 & 3, seed >> 12));
        for (unsigned slot = 1; slot <= workers; slot++)
            ASSERT_TRUE(circuits[slot].live(rank, slot)) << "the circuit with worker " << slot;
        rounds++;
    }
    EXPECT_GT(rounds, kills);
    EXPECT_GT(own.completions, kills);
    uint64_t sums = 0;
    uint64_t breaks = 0;
    for (const Circuit& circuit : circuits) {
        sums += circuit.sums;
        breaks += circuit.breaks;
    }
    EXPECT_GT(sums, kills);
    std::printf("%llu rounds of operations, %llu sums, %llu broken\n", static_cast<unsigned long long>(rounds),
                static_cast<unsigned long long>(sums), static_cast<unsigned long long>(breaks));
    expect_answers(rank, own);
    // The segment of a peer is some mappings, open where VCQs are: about 2,900 after 600 kills, 3,100 after 3,000.
    EXPECT_LT(count_mappings(), 4500u);
}

TEST(SimSoak, TheLivingGoOn)
{
    const unsigned kills = number_of_kills();
    ::setenv("TOFU_SIM_PPN", "4", 1);
    const auto exits = run_processes(2, [kills](const Rank& rank) {
        if (rank.number == 1)
            kill_workers(rank, kills);
        else
            survive(rank, kills);
    });
    ::unsetenv("TOFU_SIM_PPN");
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_TRUE(exits[1].success()) << exits[1].errors;
    EXPECT_EQ(exits[0].errors, "");
    EXPECT_FALSE(job_is_left());
}

} // namespace
} // namespace tofu::sim::test
