// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: a member that writes whatever it likes into the memory of another, as fast as that one reads.
// Called by: make check (tests/prov_collective_linked). Calls: circle, the provider linked in, its library surrounded.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "collective/group.h"
#include "prov/collective/circle.h"
#include "prov/lib/library.h"

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
        if (size == 2 * sizeof(coll::LaneArea))
            slab = static_cast<coll::LaneArea*>(address);
        return go_on(vcq, address, size, rest...);
    };
    surround<seen, &vcq::Functions::reg_mem>(functions);
    constexpr auto answered = [](auto go_on, utofu_vcq_hdl_t vcq, auto... rest) {
        for (unsigned i = 0; i < coll::slots / 2 && left != 0; i++)
            write_stale();
        return go_on(vcq, rest...);
    };
    surround<answered, &vcq::Functions::put_piggyback, &vcq::Functions::put_piggyback8>(functions);
}

TEST(HostileMember, MessagesOfEndedOperationsHoldNobodyInACall)
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
            EXPECT_LT(left, 999'990u) << "no message was taken: the test has fed nobody";
            left = 0;
            circle.leave(mc);
            EXPECT_EQ(circle.error_of(mc), FI_ECANCELED);
        }
        circle.session.barrier();
    });
}

} // namespace
} // namespace tofu::test
