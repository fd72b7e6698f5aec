// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Descriptors in memory, the private ring, the ordered copy, numbers of MRQ entries, shares of CQs.
#include "job/environment.h"
#include "job/job.h"
#include "tni/copy.h"
#include "tni/descriptor.h"
#include "tni/private_ring.h"

#include <gtest/gtest.h>
#include <utofu.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace tofu::sim {
namespace {

Descriptor sample(Op op)
{
    Descriptor d;
    d.op = op;
    d.edata = 0xa5;
    d.sps = 7;
    d.path = 13;
    d.flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    d.rmt_vcq_id = 0xad000000db000008;
    d.rmt_stadd = 0x1234567890;
    d.length = op == Op::put_piggyback ? 32 : 0xabcdef;
    d.mtu = 1920;
    d.gap = 255;
    d.lcl_stadd = d.operand = 0x1122334455667788;
    d.compare = 0x99aabbccddeeff00;
    d.armw_op = UTOFU_ARMW_OP_OR;
    std::memset(d.data, 0x3c, sizeof d.data);
    return d;
}

TEST(DescriptorCode, HasTheSizesOfRealSystems)
{
    alignas(8) std::byte memory[64];
    EXPECT_EQ(encode_descriptor(sample(Op::put), memory), 32u);
    EXPECT_EQ(encode_descriptor(sample(Op::get), memory), 32u);
    EXPECT_EQ(encode_descriptor(sample(Op::armw8), memory), 32u);
    EXPECT_EQ(encode_descriptor(sample(Op::cswap4), memory), 32u);
    EXPECT_EQ(encode_descriptor(sample(Op::cswap8), memory), 64u);
    EXPECT_EQ(encode_descriptor(sample(Op::nop), memory), 32u);
    Descriptor piggyback = sample(Op::put_piggyback);
    EXPECT_EQ(encode_descriptor(piggyback, memory), 64u);
    piggyback.length = 8;
    EXPECT_EQ(encode_descriptor(piggyback, memory), 32u);
}

TEST(DescriptorCode, RoundTrips)
{
    for (const Op op : {Op::put, Op::put_piggyback, Op::get, Op::armw4, Op::armw8, Op::cswap4, Op::cswap8, Op::nop}) {
        alignas(8) std::byte memory[64];
        Descriptor d = sample(op);
        Descriptor back;
        const size_t bytes = encode_descriptor(d, memory);
        ASSERT_EQ(decode_descriptor(memory, bytes, back), bytes);
        EXPECT_EQ(back.op, d.op);
        EXPECT_EQ(back.edata, d.edata);
        EXPECT_EQ(back.sps, d.sps);
        EXPECT_EQ(back.path, d.path);
        EXPECT_EQ(back.flags, d.flags);
        EXPECT_EQ(back.rmt_vcq_id, d.rmt_vcq_id);
        EXPECT_EQ(back.rmt_stadd, d.rmt_stadd);
        EXPECT_EQ(back.length, d.length);
        EXPECT_EQ(back.mtu, d.mtu);
        EXPECT_EQ(back.gap, d.gap);
        if (op == Op::put_piggyback) {
            EXPECT_EQ(std::memcmp(back.data, d.data, d.length), 0);
        } else if (op == Op::cswap4) {
            EXPECT_EQ(back.operand, d.operand & 0xffffffff);
            EXPECT_EQ(back.compare, d.compare & 0xffffffff);
        } else if (op == Op::cswap8) {
            EXPECT_EQ(back.operand, d.operand);
            EXPECT_EQ(back.compare, d.compare);
        } else {
            EXPECT_EQ(back.lcl_stadd, d.lcl_stadd);
        }
    }
}

TEST(DescriptorCode, TakesNothingThatIsCutOffOrUnknown)
{
    alignas(8) std::byte memory[64];
    Descriptor back;
    const size_t bytes = encode_descriptor(sample(Op::cswap8), memory);
    for (size_t cut = 0; cut < bytes; cut++)
        EXPECT_FALSE(decode_descriptor(memory, cut, back));
    std::mt19937_64 random(1);
    for (unsigned i = 0; i < 100'000; i++) {
        uint64_t words[8];
        for (uint64_t& word : words)
            word = random();
        words[0] = i % 2 == 0 ? words[0] : (words[0] & 0xffffff0f) % 9 + (words[0] & ~uint64_t{0xff});
        if (const auto used = decode_descriptor(words, sizeof words, back)) {
            EXPECT_TRUE(*used == 32 || *used == 64);
            EXPECT_LE(back.length, back.op == Op::put_piggyback ? max_piggyback : max_transfer);
            EXPECT_GE(static_cast<unsigned>(back.op), 1u);
            EXPECT_LE(static_cast<unsigned>(back.op), 8u);
        }
    }
}

TEST(PrivateRing, StartsOverWhenEmptyAndWraps)
{
    PrivateRing<uint64_t> ring;
    ASSERT_TRUE(ring.open(5));
    uint64_t written = 0;
    uint64_t read = 0;
    for (unsigned round = 0; round < 200; round++) {
        while (!ring.full() && written - read < 1 + round % 5)
            ring.push(written++);
        ASSERT_EQ(ring.front(), read);
        ring.pop();
        read++;
    }
    while (!ring.empty()) {
        ASSERT_EQ(ring.front(), read++);
        ring.pop();
    }
    EXPECT_EQ(read, written);
    ring.close();
}

TEST(CopyOrdered, CopiesAnyLengthAtAnyAlignment)
{
    std::vector<std::byte> from(70'000);
    for (size_t i = 0; i < from.size(); i++)
        from[i] = static_cast<std::byte>(i * 31 + i / 256);
    for (const size_t size : {0ul,  1ul,  2ul,  3ul,   7ul,   8ul,   9ul,   15ul,   16ul,     17ul,     31ul,    33ul,
                              63ul, 64ul, 65ul, 255ul, 256ul, 257ul, 511ul, 4096ul, 65'536ul, 65'537ul, 69'000ul}) {
        for (size_t shift = 0; shift < 17; shift++) {
            std::vector<std::byte> to(size + 64, std::byte{0xee});
            copy_ordered(to.data() + 16 + shift, from.data() + shift * 3, size);
            EXPECT_EQ(std::memcmp(to.data() + 16 + shift, from.data() + shift * 3, size), 0);
            EXPECT_EQ(to[15 + shift], std::byte{0xee});
            EXPECT_EQ(to[16 + shift + size], std::byte{0xee});
        }
    }
}

TEST(Environment, TakesTheNearestNumberOfMrqEntries)
{
    EXPECT_EQ(parse_mrq_entries("2048"), 2048u);
    EXPECT_EQ(parse_mrq_entries("128ki"), 131072u);
    EXPECT_EQ(parse_mrq_entries("2MI"), 2097152u);
    EXPECT_EQ(parse_mrq_entries("1"), 2048u);
    EXPECT_EQ(parse_mrq_entries("5120"), 8192u); // equally near: the higher
    EXPECT_EQ(parse_mrq_entries("5119"), 2048u);
    EXPECT_EQ(parse_mrq_entries("99999999999999999999999"), 2097152u);
    EXPECT_FALSE(parse_mrq_entries(""));
    EXPECT_FALSE(parse_mrq_entries("many"));
    EXPECT_FALSE(parse_mrq_entries("2KB"));
    EXPECT_FALSE(parse_mrq_entries("-1"));
}

/// What the environment says to a process of its own.
struct Said {
    std::string job;
    std::optional<uint32_t> rank, size;
};
Said said_by(const std::map<std::string, std::string>& variables)
{
    static constexpr const char* all[] = {"PMIX_NAMESPACE",
                                          "PMIX_RANK",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "OMPI_MCA_ess_base_jobid",
                                          "TOFU_SIM_JOB",
                                          "PMI_RANK",
                                          "PMI_SIZE",
                                          "SLURM_PROCID",
                                          "SLURM_NTASKS"};
    std::map<std::string, std::string> before;
    for (const char* name : all) {
        if (const char* const text = std::getenv(name))
            before[name] = text;
        ::unsetenv(name);
    }
    for (const auto& [name, text] : variables)
        ::setenv(name.c_str(), text.c_str(), 1);
    Environment environment;
    EXPECT_EQ(environment.read(), UTOFU_SUCCESS);
    for (const char* name : all)
        before.contains(name) ? ::setenv(name, before[name].c_str(), 1) : ::unsetenv(name);
    return {environment.job, environment.rank, environment.size};
}

TEST(Environment, WhatOneLauncherStartsIsOneJob)
{
    const auto of = [](const char* job, const char* name = "PMIX_NAMESPACE") {
        return said_by({{name, job}, {"PMIX_RANK", "1"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
    };
    for (const auto& [first, spawned, other] :
         {std::array{"prterun-host-77@1", "prterun-host-77@2", "prterun-host-78@1"},
          std::array{"891420673", "891420674", "891486209"}}) {
        EXPECT_EQ(of(first).job, of(spawned).job);
        EXPECT_NE(of(first).job, of(other).job);
        EXPECT_EQ(of(first).rank, 1u);
        EXPECT_EQ(of(first).size, 2u);
        EXPECT_FALSE(of(spawned).rank) << "those of the first have these numbers";
        EXPECT_FALSE(of(spawned).size);
    }
    EXPECT_EQ(of("891420673", "OMPI_MCA_ess_base_jobid").job, of("891420674", "OMPI_MCA_ess_base_jobid").job);
    // Names that tell of no family are names of jobs.
    for (const auto& [one, another] : {std::array{"prte-host-77@1", "prte-host-77@2"}, std::array{"1", "2"},
                                       std::array{"slurm.pmix.70001.0", "slurm.pmix.70001.1"},
                                       std::array{"prterun-host-77@1", "prterun-host-77@x"}}) {
        EXPECT_NE(of(one).job, of(another).job);
        EXPECT_EQ(of(another).rank, 1u);
    }
    EXPECT_NE(said_by({{"PMIX_NAMESPACE", "891420673"}}).job, said_by({{"PMIX_NAMESPACE", "891420674"}}).job)
        << "numbers of a launcher that is not Open MPI's";
    EXPECT_EQ(said_by({{"PMIX_NAMESPACE", "891420674"}, {"TOFU_SIM_JOB", "mine"}}).job, "mine");
}

TEST(Environment, TakesRankAndSizeOfOneLauncher)
{
    const auto says = [](const std::map<std::string, std::string>& variables, std::optional<uint32_t> rank,
                         std::optional<uint32_t> size) {
        const Said said = said_by(variables);
        EXPECT_EQ(said.rank, rank);
        EXPECT_EQ(said.size, size);
    };
    const std::map<std::string, std::string> slurm{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};
    const auto with = [&](std::map<std::string, std::string> more) {
        more.insert(slurm.begin(), slurm.end());
        return more;
    };
    says(slurm, 1, 2);
    says(with({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}), 3, 4);
    says(with({{"PMIX_RANK", "3"}}), 3, {});                     // prterun in a step of Slurm
    says(with({{"PMIX_RANK", "1"}}), 1, 2);                      // srun --mpi=pmix
    says({{"SLURM_NTASKS", "2"}}, {}, {});                       // a shell of salloc: one process
    says({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "2"}}, 5, {}); // a heterogeneous job
    says({{"PMI_RANK", "x"}, {"PMI_SIZE", "4"}}, {}, {});
}

TEST(Placement, SharesTheCqsOfANodeWithoutOverlap)
{
    for (uint32_t ppn = 1; ppn <= cqs_per_node; ppn++) {
        uint64_t taken = 0;
        for (uint32_t local = 0; local < ppn; local++) {
            const uint64_t share = share_of_cqs(ppn, local);
            EXPECT_NE(share, 0u);
            EXPECT_EQ(share & taken, 0u) << ppn;
            EXPECT_LT(share, uint64_t{1} << cqs_per_node);
            taken |= share;
        }
    }
    EXPECT_EQ(std::popcount(share_of_cqs(1, 0)), 54);
    EXPECT_EQ(std::popcount(share_of_cqs(4, 3)), 12); // two of each TNI
    EXPECT_EQ(std::popcount(share_of_cqs(48, 47)), 1);
}

TEST(Placement, FillsNodesByRank)
{
    Environment environment;
    EXPECT_EQ(place_process(environment, 3)->node, 3u);
    EXPECT_EQ(place_process(environment, 12)->node, 0u); // all nodes taken: once more
    environment.ppn = 4;
    EXPECT_EQ(place_process(environment, 47)->node, 11u);
    EXPECT_EQ(place_process(environment, 47)->local_rank, 3u);
    EXPECT_FALSE(place_process(environment, 48));
    environment.ppn = 0;
    environment.size = 24; // the launcher says: two per node
    EXPECT_EQ(place_process(environment, 23)->node, 11u);
    EXPECT_EQ(place_process(environment, 1)->node, 0u);
}

TEST(OwnerWord, RoundTrips)
{
    const OwnerWord word{4095, 0xbeef, CqMode::session, 0x81, true};
    const OwnerWord back = OwnerWord::decode(word.encode());
    EXPECT_EQ(back.process, 4095u);
    EXPECT_EQ(back.incarnation, 0xbeefu);
    EXPECT_EQ(back.mode, CqMode::session);
    EXPECT_EQ(back.components, 0x81);
    EXPECT_TRUE(back.taken);
    EXPECT_FALSE(OwnerWord::decode(0).taken);
}

} // namespace
} // namespace tofu::sim
