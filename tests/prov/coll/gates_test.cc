// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Groups over barrier gates: how many operations went which way, gates that run out and come back, sums of numbers that
// depend on their order.
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <utofu.h>

#include "prov/coll/circle.h"
#include "prov/lib/statistics.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

/// The library that the provider has loaded.
template <class F>
F library(const char* name)
{
    static void* const handle = dlopen(std::getenv("FI_TOFU_BACKEND"), RTLD_NOW);
    return reinterpret_cast<F>(dlsym(handle, name));
}
#define LIBRARY(name) library<decltype(&name)>(#name)

/// All start/end gates of this node but `kept` of TNI 0.
struct Hoard {
    explicit Hoard(unsigned kept)
    {
        for (utofu_tni_id_t tni = 0; tni < 6; tni++)
            while (take(tni)) {
            }
        give(kept);
    }
    bool take(utofu_tni_id_t tni)
    {
        utofu_vbg_id_t id = 0;
        if (LIBRARY(utofu_alloc_vbg)(tni, 1, 0, &id) != UTOFU_SUCCESS)
            return false;
        held.push_back(id);
        return true;
    }
    void give(unsigned some)
    {
        for (; some != 0 && !held.empty(); some--) {
            EXPECT_EQ(LIBRARY(utofu_free_vbg)(&held.front(), 1), UTOFU_SUCCESS);
            held.erase(held.begin());
        }
    }
    std::vector<utofu_vbg_id_t> held;
};

void use(Circle& circle, fid_mc* mc, unsigned members)
{
    std::uint64_t one = 1, sum = 0;
    ASSERT_EQ(
        fi_allreduce(circle.session.ep, &one, 1, nullptr, &sum, nullptr, fi_mc_addr(mc), FI_UINT64, FI_SUM, 0, mc), 0);
    circle.session.expect(mc, FI_COLLECTIVE);
    EXPECT_EQ(sum, members);
}

/// Collectives that have gone over gates, and by Puts, since the last call.
using Ways = std::pair<std::uint64_t, std::uint64_t>;
Ways ways_since(const Circle& circle, Ways& last)
{
    const Numbers numbers = read_statistics(circle.session.domain);
    const Ways now{numbers.at("collective_gates"), numbers.at("collective_puts")};
    const Ways gone{now.first - last.first, now.second - last.second};
    last = now;
    return gone;
}
const Ways over_gates{1, 0}, by_puts{0, 1};

TEST(GroupsOverGates, GoBySoftwareWhileAMemberHasNoGatesAndComeBackToThem)
{
    expect_processes(3, [](const Rank& rank) {
        setenv("TOFU_SIM_PPN", "1", 1);
        Circle circle(rank);
        Ways last;
        fid_mc* const first = circle.join(circle.all());
        use(circle, first, 3);
        EXPECT_EQ(ways_since(circle, last), over_gates);
        fid_mc* second = nullptr;
        {
            Hoard hoard(rank.number == 1 ? 0 : 1000);
            circle.session.barrier();
            second = circle.join(circle.all());
            use(circle, second, 3);
            EXPECT_EQ(ways_since(circle, last), by_puts);
            circle.session.barrier();
            hoard.give(1000);
            circle.session.barrier();
        }
        fid_mc* const third = circle.join(circle.all());
        use(circle, third, 3);
        EXPECT_EQ(ways_since(circle, last), over_gates);
        for (fid_mc* mc : {first, second, third})
            circle.leave(mc);
    });
}

TEST(GroupsOverGates, GatesOfClosedGroupsAreThereForTheNext)
{
    expect_processes(3, [](const Rank& rank) {
        setenv("TOFU_SIM_PPN", "1", 1);
        Circle circle(rank);
        Ways last;
        Hoard hoard(1); // enough for one group at a time
        for (int i = 0; i < 4; i++) {
            circle.session.barrier();
            fid_mc* const mc = circle.join(circle.all());
            use(circle, mc, 3);
            EXPECT_EQ(ways_since(circle, last), over_gates) << "group " << i;
            circle.leave(mc);
            // The gates are freed when all have left and have notified each other.
            unsigned found = 0;
            EXPECT_TRUE(wait_until([&] {
                (void)fi_cq_read(circle.session.cq, nullptr, 0);
                for (utofu_tni_id_t tni = 0; tni < 6 && found == 0; tni++)
                    found = hoard.take(tni);
                return found != 0 && (rank.set(700 + rank.number, i + 1), rank.get(700) > unsigned(i)) &&
                       rank.get(701) > unsigned(i) && rank.get(702) > unsigned(i);
            }));
            hoard.give(found);
        }
        hoard.give(1000);
    });
}

/// Gates compare their own operation alone (guide 3.8): other differences are detected by the words that the data leave
/// free.
TEST(GroupsOverGates, MembersThatCallDifferentThingsAllGetOneError)
{
    struct Pair {
        Case one, other;
    };
    const Case u64{FI_ALLREDUCE, FI_UINT64, FI_SUM, 2, 0, 4, 0};
    const auto with = [](Case c, fi_datatype type, fi_op op, std::size_t count) {
        c.type = type;
        c.op = op;
        c.count = count;
        return c;
    };
    Case broadcast = u64, reduce = with(u64, FI_DOUBLE, FI_MIN, 2);
    broadcast.coll = FI_BROADCAST;
    reduce.coll = FI_REDUCE;
    Case broadcast_of_1 = broadcast, reduce_to_1 = reduce;
    broadcast_of_1.root = reduce_to_1.root = 1;
    const std::vector<Pair> pairs = {
        {u64, broadcast},
        {broadcast, broadcast_of_1},
        {reduce, reduce_to_1},
        {reduce, with(u64, FI_DOUBLE, FI_MIN, 2)},
        {with(u64, FI_UINT64, FI_MIN, 4), with(u64, FI_UINT64, FI_MAX, 4)},
        {with(u64, FI_INT32, FI_MAX, 1), with(u64, FI_INT64, FI_MAX, 1)},
        {with(u64, FI_UINT64, FI_BAND, 1), with(u64, FI_UINT8, FI_LAND, 1)},
        {with(u64, FI_UINT64, FI_BOR, 1), with(u64, FI_UINT8, FI_BOR, 8)},
        {with(u64, FI_DOUBLE, FI_SUM, 2), with(u64, FI_FLOAT, FI_SUM, 2)},
        {with(u64, FI_DOUBLE, FI_SUM, 2), with(u64, FI_DOUBLE_COMPLEX, FI_SUM, 1)},
        {with(u64, FI_UINT64, FI_SUM, 1), with(u64, FI_UINT64, FI_BXOR, 1)}, // this one the gates find
    };
    expect_processes(4, [&](const Rank& rank) {
        Circle circle(rank);
        Ways last;
        for (std::size_t i = 0; i < pairs.size(); i++) {
            fid_mc* const mc = circle.join(circle.all());
            use(circle, mc, rank.size);
            EXPECT_EQ(ways_since(circle, last), over_gates);
            // One of them, or two and two.
            const bool other = i % 2 == 0 ? rank.number == i % 4 : rank.number % 2 != 0;
            std::uint64_t in[8] = {}, out[8] = {};
            ASSERT_EQ(circle.call(other ? pairs[i].other : pairs[i].one, mc, in, out, &circle), 0);
            EXPECT_EQ(circle.error_of(&circle), FI_EINVAL) << "pair " << i;
            circle.session.barrier();
            circle.barrier(mc); // the group lives on, without gates
            EXPECT_EQ(ways_since(circle, last), by_puts);
            circle.session.expect_silence();
            circle.leave(mc);
        }
    });
}

/// The same bits for all members and each time; what they are where the numbers leave no choice.
void sums_of_numbers(const Rank& rank, bool gates)
{
    using L = std::numeric_limits<double>;
    Circle circle(rank);
    fid_mc* const mc = circle.join(circle.all());
    const auto sum = [&](double value, fi_op op = FI_SUM) {
        double result = 0;
        EXPECT_EQ(
            fi_allreduce(circle.session.ep, &value, 1, nullptr, &result, nullptr, fi_mc_addr(mc), FI_DOUBLE, op, 0, mc),
            0);
        circle.session.expect(mc, FI_COLLECTIVE);
        return result;
    };
    const unsigned me = rank.number;
    std::uint64_t bits[2];
    for (int time = 0; time < 2; time++) {
        const double values[] = {1e16, 1.0, -1e16, 0.1, 3e-300};
        const double result = sum(values[me]);
        std::memcpy(&bits[time], &result, 8);
        rank.set(700 + me, bits[time]);
        circle.session.barrier();
        for (unsigned r = 0; r < rank.size; r++)
            EXPECT_EQ(rank.get(700 + r), bits[time]);
        circle.session.barrier();
    }
    EXPECT_EQ(bits[0], bits[1]);
    const auto expect_nan = [&](double value) { EXPECT_TRUE(std::isnan(sum(value))); };
    expect_nan(me == 3 ? L::quiet_NaN() : 1);
    expect_nan(me == 0 ? L::infinity() : me == 4 ? -L::infinity() : 1);
    EXPECT_EQ(sum(me == 2 ? -L::infinity() : 1e300), -L::infinity());
    EXPECT_TRUE(std::signbit(sum(-0.0)));
    EXPECT_FALSE(std::signbit(sum(me == 1 ? 0.0 : -0.0)));
    EXPECT_EQ(sum(L::denorm_min()), 5 * L::denorm_min());
    EXPECT_EQ(sum(me == 0 ? L::min() : me == 1 ? -L::denorm_min() : 0), L::min() - L::denorm_min());
    EXPECT_EQ(sum(L::max()), L::infinity());
    EXPECT_EQ(sum(me == 4 ? -L::infinity() : double(me), FI_MIN), -L::infinity());
    EXPECT_EQ(sum(me == 4 ? L::denorm_min() : -0.0, FI_MAX), L::denorm_min());
    for (unsigned none = 0; none < rank.size; none++) { // whichever it is
        const double least = sum(me == none ? L::quiet_NaN() : me + 1.0, FI_MIN);
        const double most = sum(me == none ? -L::quiet_NaN() : me + 1.0, FI_MAX);
        rank.set(700 + me, std::bit_cast<std::uint64_t>(least));
        circle.session.barrier();
        for (unsigned r = 0; r < rank.size; r++)
            EXPECT_EQ(rank.get(700 + r), rank.get(700));
        circle.session.barrier();
        if (gates) { // fi_tofu(7): by Puts no comparison with it holds, and the result depends on its member
            EXPECT_EQ(least, none == 0 ? 2 : 1);
            EXPECT_EQ(most, none == 4 ? 4 : 5);
        }
    }
    EXPECT_TRUE(std::isnan(sum(L::quiet_NaN(), FI_MIN)));
    EXPECT_TRUE(!gates || std::signbit(sum(me == 3 ? -0.0 : 0.0, FI_MIN)));
    EXPECT_FALSE(gates && std::signbit(sum(me == 3 ? 0.0 : -0.0, FI_MAX)));
}

TEST(GroupsOverGates, SumsHaveTheSameBitsForAllAndEachTime)
{
    expect_processes(5, [](const Rank& rank) { sums_of_numbers(rank, true); });
}

TEST(GroupsByPuts, SumsHaveTheSameBitsForAllAndEachTime)
{
    expect_processes(5, [](const Rank& rank) {
        setenv("FI_TOFU_GATES", "off", 1);
        sums_of_numbers(rank, false);
    });
}

} // namespace
} // namespace tofu::test
