// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whatever peers write over the STag table in our segment, our own transfers stay in what we registered.
#include "harness.h"
#include "job/process.h"
#include "topology/ids.h"

namespace tofu::sim::test {
namespace {

constexpr size_t bytes = 4096;

// One process that registers `open` and not `closed`, and the table that says so, as its peers can write it.
struct Victim {
    Node node;
    alignas(65536) std::byte open[bytes] = {};
    alignas(65536) std::byte closed[bytes] = {};
    utofu_stadd_t stadd = node.add(open, bytes);
    StagTable* table = nullptr;

    Victim()
    {
        const VcqAddress a = decode_vcq_id(node.id);
        OwnSegment& segment = Process::self().segment();
        table = stag_table(segment.base, vcq_index(a.tni, a.cq, a.component), segment.mrq_entries);
    }
    [[nodiscard]] StagEntry& entry() const
    {
        return table->entries[slot_of_stag(uint32_t(stadd >> stadd_offset_bits))];
    }

    // As a hostile peer would: everything reachable, at another place.
    void deface() const
    {
        entry().page_base = reinterpret_cast<uint64_t>(closed);
        entry().limit = uint64_t{1} << 39;
        entry().flags = 0;
    }
    int put_from(uint64_t offset, size_t length) const
    {
        void* cbdata = nullptr;
        EXPECT_EQ(posted([&] {
                      return utofu_put(node.vcq, node.id, stadd + offset, stadd + bytes / 2, length, 0,
                                       UTOFU_ONESIDED_FLAG_TCQ_NOTICE, nullptr);
                  }),
                  UTOFU_SUCCESS);
        return wait_tcq(node.vcq, &cbdata);
    }
};

TEST(MemoryOwn, TransfersOfOurOwnGoWhereWeRegistered)
{
    expect_processes(1, [](const Rank&) {
        const auto victim = std::make_unique<Victim>();
        Victim& v = *victim;
        std::memset(v.open, 1, 64);
        v.deface();
        EXPECT_EQ(v.node.put8(v.node.id, v.stadd + 8, 0x2222), UTOFU_SUCCESS);
        uint64_t word = 0;
        EXPECT_EQ(v.node.get8(v.node.id, v.stadd, &word), UTOFU_SUCCESS);
        EXPECT_EQ(word, 0x0101010101010101u);
        EXPECT_EQ(v.node.add8(v.node.id, v.stadd + 8, 1, &word), UTOFU_SUCCESS);
        EXPECT_EQ(word, 0x2222u);
        EXPECT_EQ(v.put_from(16, 8), UTOFU_SUCCESS);
        EXPECT_EQ(v.open[bytes / 2], std::byte{1});
        for (const std::byte b : v.closed)
            ASSERT_EQ(b, std::byte{0});
    });
}

TEST(MemoryOwn, BoundsAndRightsAreOurs)
{
    expect_processes(1, [](const Rank&) {
        const auto victim = std::make_unique<Victim>();
        Victim& v = *victim;
        v.deface();
        uint64_t word = 0;
        EXPECT_EQ(v.put_from(bytes - 4, 8), UTOFU_ERR_TCQ_LENGTH);
        EXPECT_EQ(v.put_from(bytes, 8), UTOFU_ERR_TCQ_STADD);
        EXPECT_EQ(v.node.put8(v.node.id, v.stadd + bytes - 4, 1), UTOFU_ERR_MRQ_RMT_LENGTH);
        EXPECT_EQ(v.node.get8(v.node.id, v.stadd + bytes, &word), UTOFU_ERR_MRQ_RMT_STADD);

        v.node.remove(v.stadd);
        v.stadd = v.node.add(v.open, bytes, UTOFU_REG_MEM_FLAG_READ_ONLY);
        v.deface();
        EXPECT_EQ(v.node.put8(v.node.id, v.stadd, 1), UTOFU_ERR_MRQ_RMT_MEMORY);
    });
}

TEST(MemoryOwn, NothingComesBackThatWasDeregistered)
{
    expect_processes(1, [](const Rank&) {
        const auto victim = std::make_unique<Victim>();
        Victim& v = *victim;
        uint64_t word = 0;
        EXPECT_EQ(v.node.get8(v.node.id, v.stadd, &word), UTOFU_SUCCESS);
        StagEntry before;
        std::memcpy(static_cast<void*>(&before), &v.entry(), sizeof before);
        v.node.remove(v.stadd);
        std::memcpy(static_cast<void*>(&v.entry()), &before, sizeof before);
        EXPECT_EQ(v.node.get8(v.node.id, v.stadd, &word), UTOFU_ERR_MRQ_RMT_STADD);
        EXPECT_EQ(v.node.add8(v.node.id, v.stadd, 1), UTOFU_ERR_MRQ_RMT_STADD);
        EXPECT_EQ(v.put_from(0, 8), UTOFU_ERR_TCQ_STADD);
    });
}

} // namespace
} // namespace tofu::sim::test
