// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Groups: joins late and nested, more calls than are under way, members that disagree; bad input.
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <malloc.h>

#include "av/address.h"
#include "prov/coll/circle.h"

namespace tofu::test {
namespace {

using namespace std::chrono_literals;
using sim::test::expect_processes;
using sim::test::run_processes;
using std::chrono::steady_clock;

/// Words of the board above those of sessions, from this one on.
enum : unsigned { turn = 600 };

/// Over gates, and by Puts alone.
struct EitherWay : testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Gates, EitherWay, testing::Values("on", "off"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EitherWay, NoMemberCompletesBeforeAllHaveCalled)
{
    expect_processes(3, [](const Rank& rank) {
        setenv("FI_TOFU_GATES", GetParam(), 1);
        Circle circle(rank);
        fid_mc* const mc = circle.join(circle.all());
        for (unsigned coll = FI_BARRIER; coll <= FI_GATHER; coll++) {
            const Case c{static_cast<fi_collective_op>(coll), FI_UINT64, FI_SUM, 2, 0, 3, coll};
            const Bytes in = input_of(c, rank.number);
            Bytes out = c.coll == FI_BROADCAST && rank.number == 0 ? in : Bytes(out_bytes(c, rank.number));
            circle.session.barrier();
            if (rank.number == 2) { // late: the others have polled without success, once for seconds
                ASSERT_TRUE(
                    wait_until([&] { return rank.get(turn) == coll * 2 + 1 && rank.get(turn + 1) == coll * 2 + 1; }));
                ASSERT_EQ(circle.call(c, mc, in.data(), out.data(), mc), 0);
            } else {
                ASSERT_EQ(circle.call(c, mc, in.data(), out.data(), mc), 0);
                fi_cq_data_entry entry{};
                const auto late = steady_clock::now() + (coll == FI_BARRIER ? 2s : 0s);
                for (int i = 0; i < 500 || steady_clock::now() < late; i++)
                    ASSERT_EQ(fi_cq_read(circle.session.cq, &entry, 1), -FI_EAGAIN) << "collective " << coll;
                rank.set(turn + rank.number, coll * 2 + 1);
            }
            circle.session.expect(mc, FI_COLLECTIVE);
            EXPECT_EQ(out, output_of(c, rank.number));
        }
    });
}

TEST(Groups, JoinsEndWhenTheLastMemberHasCalled)
{
    expect_processes(3, [](const Rank& rank) {
        Circle circle(rank);
        if (rank.number == 1) // late: the others have searched for it without success
            EXPECT_TRUE(wait_until([&] { return rank.get(turn) == 1 && rank.get(turn + 2) == 1; }));
        // fi_cm(3): both directions are what an endpoint has by default.
        fid_mc* const mc = circle.begin_join(circle.all(), FI_ADDR_NOTAVAIL, rank.number == 0 ? 0 : FI_SEND | FI_RECV);
        if (rank.number != 1) {
            std::uint32_t event = 0;
            fi_eq_entry entry{};
            for (int i = 0; i < 5000; i++)
                ASSERT_EQ(fi_eq_read(circle.eq, &event, &entry, sizeof(entry), 0), -FI_EAGAIN);
            EXPECT_EQ(fi_barrier(circle.session.ep, fi_mc_addr(mc), nullptr), -FI_EOPBADSTATE);
            rank.set(turn + rank.number, 1);
        }
        EXPECT_EQ(circle.end_join(mc), 0);
        circle.barrier(mc);
    });
}

TEST(Groups, GroupsWithinGroupsAndTheSameMembersTwice)
{
    expect_processes(4, [](const Rank& rank) {
        Circle circle(rank);
        fid_mc* const world = circle.join(circle.all());
        fid_mc* const again = circle.join(circle.all());
        EXPECT_NE(fi_mc_addr(world), fi_mc_addr(again));
        const fi_addr_t side = rank.number % 2;
        fid_mc* const half = circle.join({side, side + 2}, fi_mc_addr(world));
        std::uint64_t sums[3] = {};
        const std::uint64_t mine = 1u << rank.number;
        int i = 0;
        for (fid_mc* mc : {half, again, world}) // at once, and each in the order of its own
            EXPECT_EQ(fi_allreduce(circle.session.ep, &mine, 1, nullptr, &sums[i++], nullptr, fi_mc_addr(mc), FI_UINT64,
                                   FI_SUM, 0, mc),
                      0);
        fi_cq_data_entry entry{};
        for (i = 0; i < 3; i++)
            ASSERT_TRUE(circle.session.next(entry));
        EXPECT_EQ(sums[0], 5u << side);
        EXPECT_EQ(sums[1], 15u);
        EXPECT_EQ(sums[2], 15u);
        // Not in the parent.
        fid_mc* refused = nullptr;
        fid_av_set* const set = circle.set(circle.all());
        EXPECT_EQ(fi_join_collective(circle.session.ep, fi_mc_addr(half), set, 0, &refused, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_close(&set->fid), 0);
    });
}

TEST(Groups, ManyAtATimeTakeFewNumbersOfEndpoints)
{
    expect_processes(3, [](const Rank& rank) {
        setenv("FI_TOFU_GATES", "off", 1);
        Circle circle(rank);
        constexpr unsigned many = 48;
        for (unsigned i = 0; i < many; i++)
            (void)circle.join(circle.all());
        // Some of them, of all ages, are closed, and others get their memory.
        for (unsigned i = many; i-- != 0;)
            if (i % 3 != 0)
                circle.leave(circle.groups[i]);
        for (unsigned i = 0; i < many; i++)
            (void)circle.join(circle.all());
        for (fid_mc* mc : circle.groups)
            circle.barrier(mc);
        fid_ep* another = nullptr;
        ASSERT_EQ(fi_endpoint(circle.session.domain, circle.session.info, &another, nullptr), 0);
        EndpointAddress address{};
        std::size_t size = sizeof address;
        EXPECT_EQ(fi_getname(&another->fid, &address, &size), 0);
        EXPECT_LT(address.index, 12);
        EXPECT_EQ(fi_close(&another->fid), 0);
    });
}

TEST_P(EitherWay, AsManyCallsAsTheContextHoldsQueueInside)
{
    expect_processes(2, [](const Rank& rank) {
        setenv("FI_TOFU_GATES", GetParam(), 1);
        Circle circle(rank);
        fid_mc* const mc = circle.join(circle.all());
        const std::size_t depth = circle.session.info->tx_attr->size;
        circle.session.barrier();
        if (rank.number == 1) // until the other has filled its queue
            ASSERT_TRUE(wait_until([&] { return rank.get(turn) == 1; }));
        std::vector<std::uint64_t> in(depth), out(depth);
        for (std::size_t i = 0; i < depth; i++) {
            in[i] = i * (rank.number + 1);
            ASSERT_EQ(fi_allreduce(circle.session.ep, &in[i], 1, nullptr, &out[i], nullptr, fi_mc_addr(mc), FI_UINT64,
                                   FI_SUM, 0, &out[i]),
                      0)
                << i;
        }
        if (rank.number == 0) {
            EXPECT_EQ(fi_barrier(circle.session.ep, fi_mc_addr(mc), nullptr), -FI_EAGAIN);
            rank.set(turn, 1);
        }
        for (std::size_t i = 0; i < depth; i++)
            circle.session.expect(&out[i], FI_COLLECTIVE);
        for (std::size_t i = 0; i < depth; i++)
            ASSERT_EQ(out[i], 3 * i);
    });
}

TEST_P(EitherWay, MembersThatCallDifferentThingsAllGetOneError)
{
    expect_processes(4, [](const Rank& rank) {
        setenv("FI_TOFU_GATES", GetParam(), 1);
        Circle circle(rank);
        fid_mc* const mc = circle.join(circle.all());
        std::uint64_t in[512] = {}, out[2048] = {};
        // One calls something else: another collective, count, type, operation or root.
        for (unsigned kind = 0; kind < 6; kind++) {
            Case c{FI_ALLREDUCE, FI_UINT64, FI_SUM, 8, 0, 4, 0};
            if (kind >= 4)
                c.coll = FI_BROADCAST;
            if (rank.number == kind % 4)
                switch (kind) {
                case 0: c.coll = FI_BARRIER; break;
                case 1: c.count = 500; break;
                case 2: c.type = FI_DOUBLE; break;
                case 3: c.op = FI_MAX; break;
                case 4: c.root = 1; break;
                default: c.coll = FI_GATHER; break;
                }
            ASSERT_EQ(circle.call(c, mc, in, out, &circle), 0);
            EXPECT_NE(circle.error_of(&circle), 0) << "kind " << kind;
            circle.session.barrier();
            circle.barrier(mc); // the group lives on
            circle.session.expect_silence();
            circle.session.barrier();
        }
    });
}

TEST(Groups, ClosedAtOnceBehindTheLastOperationHarmNoMember)
{
    // What is registered next may have the tag of what has gone: late words of peers would hit it.
    expect_processes(3, [](const Rank& rank) {
        Circle circle(rank);
        for (int i = 0; i < 40; i++) {
            fid_mc* const mc = circle.join(circle.all());
            const Case c{FI_ALLGATHER, FI_UINT8, FI_SUM, 5000, 0, 3, static_cast<std::uint64_t>(i)};
            const Bytes in = input_of(c, rank.number);
            Bytes out(out_bytes(c, rank.number));
            ASSERT_EQ(circle.call(c, mc, in.data(), out.data(), &out), 0);
            circle.session.expect(&out, FI_COLLECTIVE);
            ASSERT_EQ(out, output_of(c, rank.number));
            circle.leave(mc);
        }
    });
}

/// The groups of the one before are still open at its peers.
TEST(Groups, AnEndpointThatWasOpenedAgainJoinsItsPeers)
{
    expect_processes(3, [](const Rank& rank) {
        Circle circle(rank);
        fid_mc* mc = circle.join(circle.all());
        circle.barrier(mc);
        for (unsigned again = 0; again < 2; again++) {
            circle.session.barrier();
            while (rank.number == again && !circle.groups.empty())
                circle.leave(circle.groups.back());
            circle.replace(again);
            mc = circle.join(circle.all());
            circle.barrier(mc);
            mc = circle.join(circle.all());
            circle.barrier(mc);
            fid_mc* const pair = rank.number < 2 ? circle.join({1, 0}) : nullptr; // a list that is new
            if (pair != nullptr)
                circle.barrier(pair);
        }
    });
}

TEST(Groups, AJoinBehindOneThatAnEndpointGaveUpBeforeItWasOpenedAgain)
{
    expect_processes(2, [](const Rank& rank) {
        Circle circle(rank);
        fid_mc* const first = circle.begin_join(circle.all());
        if (rank.number == 1) {
            circle.leave(first);
        } else {
            EXPECT_EQ(circle.end_join(first), FI_ESHUTDOWN);
            circle.leave(first);
        }
        circle.replace(1);
        circle.barrier(circle.join(circle.all()));
    });
}

/// The next group may lie at the same address: what was not read of the last one does not end its join.
TEST(Groups, EventsOfAClosedGroupGoWithIt)
{
    expect_processes(2, [](const Rank& rank) {
        Circle circle(rank);
        fid_mc* const first = circle.begin_join(circle.all());
        fid_mc* const second = circle.begin_join(circle.all());
        std::uint32_t event = 0;
        fi_eq_entry entry{};
        unsigned came = 0;
        EXPECT_TRUE(wait_until([&] { // both have ended, the event of one is read
            came += fi_eq_read(circle.eq, &event, &entry, sizeof(entry), came == 0 ? 0 : FI_PEEK) > 0;
            return came == 2;
        }));
        circle.session.barrier();
        const fid* const unread = entry.fid;
        EXPECT_TRUE(unread == &first->fid || unread == &second->fid);
        circle.leave(unread == &first->fid ? first : second);
        EXPECT_EQ(fi_eq_read(circle.eq, &event, &entry, sizeof(entry), 0), -FI_EAGAIN);
        circle.barrier(circle.join(circle.all()));
    });
}

/// One thread closes the endpoint as soon as another one lets it, which closes the group.
TEST(Groups, NothingOfAGroupIsUsedWhenItsEndpointCanBeClosed)
{
    expect_processes(1, [](const Rank& rank) {
        mallopt(M_PERTURB, 0x55); // what is freed does not stay as it was
        Circle circle(rank);
        fid_mc* const mc = circle.join(circle.all());
        const fi_eq_entry entry{};
        for (unsigned i = 0; i < 300000; i++) // the close of the group looks through them
            ASSERT_EQ(fi_eq_write(circle.eq, FI_NOTIFY, &entry, sizeof entry, 0), static_cast<ssize_t>(sizeof entry));
        std::thread closer([&] { circle.leave(mc); });
        int result = -FI_EBUSY;
        EXPECT_TRUE(wait_until([&] {
            result = fi_close(&circle.session.ep->fid);
            return result != -FI_EBUSY;
        }));
        closer.join();
        EXPECT_EQ(result, 0);
        circle.session.ep = nullptr;
    });
}

TEST(Groups, BadInputIsRefusedWithoutEffect)
{
    expect_processes(2, [](const Rank& rank) {
        Circle circle(rank);
        fid_ep* const ep = circle.session.ep;
        fid_mc* mc = nullptr;
        fid_av_set* const other = circle.set({1 - rank.number}); // without us
        fid_av_set* const twice = circle.set(circle.all());
        char name[64];
        std::size_t length = sizeof(name);
        fi_addr_t alias = 0;
        EXPECT_EQ(fi_getname(&ep->fid, name, &length), 0);
        EXPECT_EQ(fi_av_insert(circle.session.av, name, 1, &alias, 0, nullptr), 1);
        EXPECT_EQ(fi_av_set_insert(twice, alias), 0);
        EXPECT_EQ(fi_join_collective(ep, FI_ADDR_NOTAVAIL, other, 0, &mc, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_join_collective(ep, FI_ADDR_NOTAVAIL, twice, 0, &mc, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_join_collective(ep, FI_ADDR_NOTAVAIL, nullptr, 0, &mc, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_join_collective(ep, 12345, other, 0, &mc, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_join_collective(ep, FI_ADDR_NOTAVAIL, other, FI_PEEK, &mc, nullptr), -FI_EBADFLAGS);
        EXPECT_EQ(fi_join(ep, name, 0, &mc, nullptr), -FI_ENOSYS); // there is no multicast
        for (std::uint64_t one : {FI_SEND, FI_RECV})               // members do both
            EXPECT_EQ(fi_join_collective(ep, FI_ADDR_NOTAVAIL, other, one, &mc, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_close(&other->fid), 0);
        EXPECT_EQ(fi_close(&twice->fid), 0);

        mc = circle.join(circle.all());
        const fi_addr_t group = fi_mc_addr(mc);
        std::uint64_t word = 0;
        EXPECT_EQ(fi_barrier(ep, group + 1, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_barrier(ep, FI_ADDR_NOTAVAIL, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_barrier2(ep, group, FI_PEEK, nullptr), -FI_EBADFLAGS);
        EXPECT_EQ(fi_broadcast(ep, &word, 1, nullptr, group, 2, FI_UINT64, 0, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_broadcast(ep, &word, 1, nullptr, group, FI_ADDR_NOTAVAIL, FI_UINT64, 0, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_broadcast(ep, nullptr, 1, nullptr, group, 0, FI_UINT64, 0, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_broadcast(ep, &word, 1, nullptr, group, 0, FI_VOID, 0, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_broadcast(ep, &word, SIZE_MAX / 4, nullptr, group, 0, FI_UINT64, 0, nullptr), -FI_EMSGSIZE);
        EXPECT_EQ(fi_allreduce(ep, &word, 1, nullptr, &word, nullptr, group, FI_DOUBLE, FI_BOR, 0, nullptr),
                  -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_allreduce(ep, &word, 1, nullptr, &word, nullptr, group, FI_UINT64, FI_ATOMIC_WRITE, 0, nullptr),
                  -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_close(&ep->fid), -FI_EBUSY);
        circle.session.expect_silence();
        circle.session.barrier();
        circle.barrier(mc);
        // No operand, no result.
        EXPECT_EQ(fi_allreduce(ep, nullptr, 0, nullptr, nullptr, nullptr, group, FI_UINT64, FI_SUM, 0, mc), 0);
        circle.session.expect(mc, FI_COLLECTIVE);
    });
}

} // namespace
} // namespace tofu::test
