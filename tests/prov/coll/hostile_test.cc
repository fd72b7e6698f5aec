// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A member that writes whatever it likes into the memory of another, as fast as that one reads; gates that are not what
// they should be.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "coll/group.h"
#include "prov/coll/circle.h"
#include "prov/lib/library.h"
#include "prov/lib/statistics.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

/// Of a group of two: lane 0 upwards, lane 1 downwards.
coll::LaneArea* slab = nullptr;
std::uint32_t next = 0; ///< message that the hostile member writes
std::uint32_t left = 0; ///< that it will still write

/// One more message of an operation that ended long ago.
void write_stale()
{
    coll::Tail& tail = slab[1].slot[next % coll::slots].tail;
    tail.op = 0;
    tail.length = 0;
    std::atomic_ref(tail.number).store(next, std::memory_order_release);
    next++;
    left--;
}

void feed_as_fast_as_it_is_taken()
{
    auto& functions = library_functions();
    constexpr auto seen = [](auto go_on, utofu_vcq_hdl_t vcq, void* address, std::size_t size, auto... rest) {
        if (size == coll::SlabStore::head_size + 2 * sizeof(coll::LaneArea))
            slab = reinterpret_cast<coll::LaneArea*>(static_cast<std::byte*>(address) + coll::SlabStore::head_size);
        return go_on(vcq, address, size, rest...);
    };
    surround<seen, &vcq::Functions::reg_mem_with_stag>(functions);
    constexpr auto answered = [](auto go_on, utofu_vcq_hdl_t vcq, auto... rest) {
        for (unsigned i = 0; i < coll::slots / 2 && left != 0; i++)
            write_stale();
        return go_on(vcq, rest...);
    };
    surround<answered, &vcq::Functions::put_piggyback>(functions);
}

TEST(HostileMember, MessagesOfEndedOperationsKeepNoMemberInACall)
{
    expect_processes(2, [](const Rank& rank) {
        setenv("FI_TOFU_GATES", "off", 1);
        feed_as_fast_as_it_is_taken();
        Circle circle(rank);
        fid_mc* const mc = circle.join(circle.all());
        circle.barrier(mc);
        circle.session.barrier();
        if (rank.number == 0) {
            ASSERT_NE(slab, nullptr);
            for (const coll::Slot& slot : slab[1].slot)
                next = std::max(next, slot.tail.number + 1);
            ASSERT_EQ(fi_barrier(circle.session.ep, fi_mc_addr(mc), mc), 0);
            left = 1'000'000;
            for (unsigned i = 0; i < coll::slots / 2; i++)
                write_stale();
            for (int i = 0; i < 3; i++) {
                const std::uint32_t before = left;
                ASSERT_EQ(fi_cq_read(circle.session.cq, nullptr, 0), -FI_EAGAIN);
                EXPECT_LT(before - left, 200u) << "messages in one call";
            }
            EXPECT_LT(left, 999'990u) << "no message was taken: the test has sent nothing";
            left = 0;
            circle.leave(mc);
            EXPECT_EQ(circle.error_of(mc), FI_ECANCELED);
        }
        circle.session.barrier();
    });
}

/// Whether a group's operation goes over gates; it ends well either way.
std::uint64_t over_gates(const Rank& rank)
{
    Circle circle(rank);
    circle.barrier(circle.join(circle.all()));
    return counted(circle.session.domain, "collective_gates");
}

TEST(HostileMember, ACircuitThatOneCannotWireIsNotUsed)
{
    expect_processes(3, [](const Rank& rank) {
        if (rank.number == 1)
            library_functions().set_vbg = [](utofu_vbg_setting*, std::size_t) -> int {
                return UTOFU_ERR_INVALID_VBG_ID;
            };
        EXPECT_EQ(over_gates(rank), 0u);
    });
}

decltype(vcq::Functions::query_vbg_info) true_info;

TEST(HostileMember, GatesOfAnotherNodeAreNotBelieved)
{
    expect_processes(3, [](const Rank& rank) {
        setenv("TOFU_SIM_PPN", "1", 1);
        if (rank.number == 1) { // this rank claims a gate on another node
            auto& functions = library_functions();
            true_info = functions.query_vbg_info;
            functions.query_vbg_info = [](utofu_vbg_id_t id, std::uint8_t* coords, utofu_tni_id_t* tni,
                                          utofu_bg_id_t* bg, std::uint16_t* extra) -> int {
                const int code = true_info(id, coords, tni, bg, extra);
                coords[3] ^= 1;
                return code;
            };
        }
        EXPECT_EQ(over_gates(rank), 0u);
    });
}

TEST(HostileMember, ALibraryWithoutGatesDoesWithout)
{
    expect_processes(3, [](const Rank& rank) {
        EXPECT_EQ(over_gates(rank), 1u); // the others below have them
        if (rank.number == 2)
            library_functions().alloc_vbg = nullptr;
        EXPECT_EQ(over_gates(rank), 0u);
    });
}

/// From the moment on that a gate has taken a packet of another round, each round ends with the result of the one
/// before.
bool behind_by_one = false;
std::uint64_t last_result[vcq::GateData::words];

void remember_results()
{
    constexpr auto poll = [](auto go_on, utofu_vbg_id_t gate, unsigned long flags, std::uint64_t* data) {
        const int code = go_on(gate, flags, data);
        for (unsigned i = 0; code == UTOFU_SUCCESS && i < vcq::GateData::words; i++) {
            std::swap(data[i], last_result[i]);
            if (!behind_by_one)
                data[i] = last_result[i];
        }
        return code;
    };
    surround<poll, &vcq::Functions::poll_reduce_uint64>(library_functions());
}

/// The sum of `value` over three members, or 0 after an error.
std::uint64_t sum_of(Circle& circle, fid_mc* mc, std::uint64_t value)
{
    std::uint64_t sum = 0;
    EXPECT_EQ(fi_allreduce(circle.session.ep, &value, 1, nullptr, &sum, nullptr, fi_mc_addr(mc), FI_UINT64, FI_SUM, 0,
                           &circle),
              0);
    fi_cq_data_entry entry{};
    ssize_t got = -FI_EAGAIN;
    EXPECT_TRUE(wait_until([&] { return (got = fi_cq_read(circle.session.cq, &entry, 1)) != -FI_EAGAIN; }));
    fi_cq_err_entry error{};
    EXPECT_EQ(got == 1 ? 1 : fi_cq_readerr(circle.session.cq, &error, 0), 1);
    return got == 1 ? sum : 0;
}

TEST(StrayPacket, OneOfAnEarlierGroupOfTheSameMembersLeavesTheGroupWithoutGates)
{
    expect_processes(3, [](const Rank& rank) {
        remember_results();
        Circle circle(rank);
        fid_mc* const earlier = circle.join(circle.all());
        EXPECT_EQ(sum_of(circle, earlier, 10), 30u);
        EXPECT_EQ(counted(circle.session.domain, "collective_gates"), 1u);
        behind_by_one = rank.number == 1;
        fid_mc* const group = circle.join(circle.all());
        EXPECT_EQ(sum_of(circle, group, 1), 3u);
        EXPECT_EQ(sum_of(circle, group, 2), 6u);
        EXPECT_EQ(counted(circle.session.domain, "collective_gates"), 1u);
        circle.leave(group);
        circle.leave(earlier);
    });
}

TEST(StrayPacket, OneThatComesLateIsAnErrorAndNoWrongResult)
{
    expect_processes(3, [](const Rank& rank) {
        remember_results();
        Circle circle(rank);
        fid_mc* const group = circle.join(circle.all());
        EXPECT_EQ(sum_of(circle, group, 10), 30u);
        behind_by_one = rank.number == 1;
        const std::uint64_t struck = sum_of(circle, group, 1);
        EXPECT_EQ(struck, rank.number == 1 ? 0u : 3u);
        EXPECT_EQ(sum_of(circle, group, 2), 0u); // the gates are given up
        EXPECT_EQ(sum_of(circle, group, 3), 9u);
        EXPECT_EQ(sum_of(circle, group, 4), 12u);
    });
}

} // namespace
} // namespace tofu::test
