// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counters that regions are bound to, and what of remote access they count (fi_mr_bind(3)), between processes over the
// simulator.
#include <malloc.h>

#include <array>
#include <cstdlib>
#include <initializer_list>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;
using tofu::sim::test::wait_until;

TEST(Mr, CountersOfARegionCountItsEvents)
{
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_RMA_EVENT;
        Session s(rank, options);
        fid_cntr* counter = nullptr;
        fi_cntr_attr attr{};
        ASSERT_EQ(fi_cntr_open(s.domain, &attr, &counter, nullptr), 0);
        std::uint64_t counted[16] = {}, other[16] = {};
        auto peers = s.share(counted, sizeof(counted));
        ASSERT_EQ(fi_mr_bind(s.regions.back(), &counter->fid, FI_REMOTE_WRITE), 0);
        EXPECT_EQ(fi_close(&counter->fid), -FI_EBUSY);
        ASSERT_EQ(fi_mr_enable(s.regions.back()), 0);
        auto others = s.share(other, sizeof(other));
        const unsigned peer = 1 - rank.number;
        std::uint64_t value = 1;
        for (unsigned i = 0; i < 10; i++)
            for (const Window& w : {peers[peer], others[peer]}) {
                ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, peer, w.base, w.key, &s); }), 0);
                s.expect(&s, FI_WRITE);
            }
        EXPECT_TRUE(wait_until([&] { return fi_cntr_read(counter) == 10; }));
        s.barrier();
        EXPECT_EQ(fi_cntr_read(counter), 10u);
        s.barrier();
        ASSERT_EQ(fi_close(&s.regions.front()->fid), 0);
        s.regions.erase(s.regions.begin());
        ASSERT_EQ(fi_close(&counter->fid), 0);
    });
}

/// A region may lie within another one: what is written behind it is an event of the outer one alone.
TEST(Mr, CountersOfARegionCountAroundARegionWithinIt)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_RMA_EVENT;
        Session s(rank, options);
        fid_cntr* counter[2] = {};
        fi_cntr_attr attr{};
        std::uint64_t memory[512] = {};
        auto outer = s.share(memory, sizeof(memory));
        s.reg(memory + 64, 64);
        for (unsigned i = 0; i < 2; i++) {
            ASSERT_EQ(fi_cntr_open(s.domain, &attr, &counter[i], nullptr), 0);
            ASSERT_EQ(fi_mr_bind(s.regions[i], &counter[i]->fid, FI_REMOTE_WRITE), 0);
        }
        std::uint64_t value = 1;
        for (unsigned word : {0, 63, 72, 500}) {
            ASSERT_EQ(s.post([&] {
                return fi_write(s.ep, &value, 8, nullptr, 0, outer[0].base + word * 8, outer[0].key, &s);
            }),
                      0);
            s.expect(&s, FI_WRITE);
        }
        EXPECT_TRUE(wait_until([&] { return fi_cntr_read(counter[0]) == 4; }));
        EXPECT_EQ(fi_cntr_read(counter[1]), 0u);
        for (unsigned i = 0; i < 2; i++) {
            ASSERT_EQ(fi_close(&s.regions[i]->fid), 0);
            ASSERT_EQ(fi_close(&counter[i]->fid), 0);
        }
        s.regions.clear();
    });
}

/// The endpoint that a region is bound to may go first, and an endpoint that it cannot be bound to does not count it.
TEST(Mr, ARegionMayOutliveItsEndpoint)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_RMA_EVENT;
        options.counters = true;
        Session s(rank, options);
        std::uint64_t memory[2][8] = {};
        auto left = s.share(memory[0], sizeof(memory[0]));
        auto refused = s.share(memory[1], sizeof(memory[1]));
        fid_domain* elsewhere = nullptr;
        fid_ep *ep = nullptr, *stranger = nullptr;
        ASSERT_EQ(fi_domain(s.fabric, s.info, &elsewhere, nullptr), 0);
        ASSERT_EQ(fi_endpoint(elsewhere, s.info, &stranger, nullptr), 0);
        EXPECT_EQ(fi_mr_bind(s.regions[1], &stranger->fid, 0), -FI_EINVAL);
        fid_cntr* foreign = nullptr;
        fi_cntr_attr attr{};
        ASSERT_EQ(fi_cntr_open(elsewhere, &attr, &foreign, nullptr), 0);
        EXPECT_EQ(fi_mr_bind(s.regions[1], &foreign->fid, FI_REMOTE_WRITE), -FI_EDOMAIN);
        ASSERT_EQ(fi_close(&foreign->fid), 0);
        ASSERT_EQ(fi_endpoint(s.domain, s.info, &ep, nullptr), 0);
        ASSERT_EQ(fi_mr_bind(s.regions[0], &ep->fid, 0), 0);
        mallopt(M_PERTURB, 0x5a); // what has been freed shows
        ASSERT_EQ(fi_close(&ep->fid), 0);
        std::uint64_t value = 1;
        for (const Window& w : {left[0], refused[0]}) {
            ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 0, w.base, w.key, &s); }), 0);
            s.expect(&s, FI_WRITE);
        }
        // Only the one that is bound to none counts for the endpoints of the domain.
        EXPECT_TRUE(wait_until([&] { return fi_cntr_read(s.counter[remote_write_counter]) == 1; }));
        ASSERT_EQ(fi_close(&stranger->fid), 0);
        ASSERT_EQ(fi_close(&elsewhere->fid), 0);
    });
}

constexpr std::uint64_t writes = 5, fetches = 5;

/// `writes` operations that count as writes, `fetches` atomics that count as reads and modify, and two reads.
void access_once(Session& s, const Window& there)
{
    static std::uint64_t memory[64] = {};
    std::uint64_t one = 1, old = 0;
    float number = 1, found = 0;
    const auto ends = [&](int posted) {
        ASSERT_EQ(posted, 0);
        s.expect(&s, 0);
    };
    ends(s.post([&] { return fi_write(s.ep, &one, 8, nullptr, 0, there.base, there.key, &s); }));
    ends(s.post([&] { return fi_write(s.ep, memory, 500, nullptr, 0, there.base, there.key, &s); }));
    ASSERT_EQ(s.post([&] { return fi_inject_write(s.ep, &one, 8, 0, there.base, there.key); }), 0);
    ends(s.post([&] { return fi_atomic(s.ep, &one, 1, nullptr, 0, there.base, there.key, FI_UINT64, FI_SUM, &s); }));
    ASSERT_EQ(s.post([&] { return fi_inject_atomic(s.ep, &one, 1, 0, there.base, there.key, FI_UINT64, FI_SUM); }), 0);
    for (fi_op op : {FI_SUM, FI_ATOMIC_WRITE, FI_MAX})
        ends(s.post([&] {
            return fi_fetch_atomic(s.ep, &one, 1, nullptr, &old, nullptr, 0, there.base, there.key, FI_UINT64, op, &s);
        }));
    ends(s.post([&] {
        return fi_compare_atomic(s.ep, &one, 1, nullptr, &one, nullptr, &old, nullptr, 0, there.base, there.key,
                                 FI_UINT64, FI_CSWAP, &s);
    }));
    ends(s.post([&] {
        return fi_fetch_atomic(s.ep, &number, 1, nullptr, &found, nullptr, 0, there.base + 8, there.key, FI_FLOAT,
                               FI_SUM, &s);
    }));
    ends(s.post([&] {
        return fi_fetch_atomic(s.ep, nullptr, 1, nullptr, &old, nullptr, 0, there.base, there.key, FI_UINT64,
                               FI_ATOMIC_READ, &s);
    }));
    ends(s.post([&] { return fi_read(s.ep, &old, 8, nullptr, 0, there.base, there.key, &s); }));
}

/// The capability is the target's (fi_getinfo(3)); fi_mr_bind(3) counts what modifies the region, fetching or not.
TEST(Mr, CountersOfARegionCountWhateverModifiesItByEndpointsWithoutTheCapability)
{
    for (int mode : {FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, 0})
        expect_processes(2, [mode](const Rank& rank) {
            const bool target = rank.number == 0;
            Options options;
            options.caps = FI_RMA | FI_ATOMIC | (target ? FI_RMA_EVENT : 0);
            options.mr_mode = mode;
            options.counters = target;
            Session s(rank, options);
            alignas(8) std::uint64_t memory[64] = {};
            fid_cntr* counter = nullptr;
            fi_cntr_attr attr{};
            attr.wait_obj = FI_WAIT_UNSPEC;
            const Window there = s.share(memory, sizeof(memory))[0];
            if (target) {
                ASSERT_EQ(fi_cntr_open(s.domain, &attr, &counter, nullptr), 0);
                ASSERT_EQ(fi_mr_bind(s.regions.back(), &counter->fid, FI_REMOTE_WRITE), 0);
            }
            s.barrier();
            constexpr std::uint64_t times = 3;
            if (!target) {
                for (unsigned i = 0; i < times; i++)
                    access_once(s, there);
            } else {
                EXPECT_EQ(fi_cntr_wait(counter, times * (writes + fetches), 10000), 0);
                EXPECT_TRUE(wait_until([&] {
                    return fi_cntr_read(s.counter[remote_write_counter]) == times * writes &&
                           fi_cntr_read(s.counter[remote_read_counter]) == times * (fetches + 2);
                }));
            }
            s.barrier();
            if (target) {
                EXPECT_EQ(fi_cntr_read(counter), times * (writes + fetches));
                ASSERT_EQ(fi_close(&s.regions.front()->fid), 0);
                s.regions.erase(s.regions.begin());
                ASSERT_EQ(fi_close(&counter->fid), 0);
            }
        });
}

/// A rank of a pair: the target has a region with counters of its own, the initiator reaches it.
struct Counted {
    Counted(const Rank& rank, int mr_mode) : s(rank, options_of(rank, mr_mode)), target(rank.number == 0)
    {
        there = s.share(memory, sizeof memory)[0];
        fi_cntr_attr attr{};
        for (unsigned i = 0; i < 2 && target; i++) {
            EXPECT_EQ(fi_cntr_open(s.domain, &attr, &region[i], nullptr), 0);
            EXPECT_EQ(fi_mr_bind(s.regions[0], &region[i]->fid, i == 0 ? FI_REMOTE_READ : FI_REMOTE_WRITE), 0);
        }
        s.barrier();
    }
    ~Counted()
    {
        for (fid_cntr* each : region)
            if (each != nullptr)
                EXPECT_EQ(fi_close(&each->fid), 0);
    }
    static Options options_of(const Rank& rank, int mr_mode)
    {
        Options options;
        options.caps = FI_RMA | FI_ATOMIC | (rank.number == 0 ? FI_RMA_EVENT : 0);
        options.mr_mode = mr_mode;
        options.counters = rank.number == 0;
        return options;
    }
    /// `times` writes, sums and reads, each ended before the next.
    void reach(unsigned times)
    {
        std::uint64_t value = 1;
        for (unsigned i = 0; i < times; i++) {
            ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 0, there.base, there.key, &s); }), 0);
            s.expect(&s, FI_WRITE);
            ASSERT_EQ(s.post([&] {
                return fi_atomic(s.ep, &value, 1, nullptr, 0, there.base + 8, there.key, FI_UINT64, FI_SUM, &s);
            }),
                      0);
            s.expect(&s, FI_WRITE);
            ASSERT_EQ(s.post([&] { return fi_read(s.ep, &value, 8, nullptr, 0, there.base, there.key, &s); }), 0);
            s.expect(&s, FI_READ);
        }
    }
    void close_region()
    {
        ASSERT_EQ(fi_close(&s.regions.front()->fid), 0);
        s.regions.erase(s.regions.begin());
    }
    static bool reads(fid_cntr* counter, std::uint64_t value)
    {
        return wait_until([&] { return fi_cntr_read(counter) == value; });
    }

    Session s;
    bool target;
    alignas(8) std::uint64_t memory[64] = {};
    Window there{};
    fid_cntr* region[2] = {};
};

/// The target polls nothing between the accesses and the close.
void close_before_the_poll(int mr_mode)
{
    expect_processes(2, [mr_mode](const Rank& rank) {
        constexpr std::uint64_t times = 20;
        Counted c(rank, mr_mode);
        if (!c.target)
            c.reach(times);
        c.s.barrier();
        if (!c.target)
            return;
        c.close_region();
        ASSERT_TRUE(c.reads(c.region[0], times));
        ASSERT_TRUE(c.reads(c.region[1], 2 * times));
        ASSERT_TRUE(c.reads(c.s.counter[remote_read_counter], times));
        ASSERT_TRUE(c.reads(c.s.counter[remote_write_counter], 2 * times));
    });
}

TEST(Mr, EventsOfARegionThatIsClosedBeforeTheyArePolledAreCounted)
{
    close_before_the_poll(provider_keys);
    close_before_the_poll(0);
}

/// Polls may find an entry later than it came; a counter may be closed although such an entry is to come.
TEST(Mr, EventsOfAClosedRegionThatComeLateAreCounted)
{
    for (const char* seed : {"1", "2", "3", "4", "5"}) {
        setenv("TOFU_SIM_CHAOS", seed, 1);
        close_before_the_poll(0);
    }
    unsetenv("TOFU_SIM_CHAOS");
}

TEST(Mr, EventsOfAnEndpointThatIsClosedBeforeTheyArePolledAreCounted)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr std::uint64_t times = 20;
        Counted c(rank, provider_keys);
        if (!c.target)
            c.reach(times);
        c.s.barrier();
        if (!c.target)
            return;
        ASSERT_EQ(fi_close(&c.s.ep->fid), 0);
        c.s.ep = nullptr;
        EXPECT_EQ(fi_cntr_read(c.s.counter[remote_read_counter]), times);
        EXPECT_EQ(fi_cntr_read(c.s.counter[remote_write_counter]), 2 * times);
        EXPECT_EQ(fi_cntr_read(c.region[1]), 2 * times);
        c.close_region();
    });
}

/// Neither do counters that are bound afterwards count what was before, nor does an endpoint that has got the number
/// of a closed one count what regions of that one see.
TEST(Mr, CountersCountNothingFromBeforeTheirBinding)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr std::uint64_t times = 5;
        Options options = Counted::options_of(rank, provider_keys);
        options.counters = false;
        Session s(rank, options);
        const bool target = rank.number == 0;
        alignas(8) std::uint64_t memory[64] = {};
        const Window there = s.share(memory, sizeof memory)[0];
        std::uint64_t value = 1;
        const auto write = [&] {
            for (unsigned i = 0; i < times && !target; i++) {
                ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 0, there.base, there.key, &s); }), 0);
                s.expect(&s, FI_WRITE);
            }
            s.barrier();
        };
        write();
        fid_cntr *late[2] = {}, *of_another = nullptr;
        fid_ep *second = nullptr, *third = nullptr;
        if (target) {
            fi_cntr_attr attr{};
            for (fid_cntr** each : {&late[0], &late[1], &of_another})
                ASSERT_EQ(fi_cntr_open(s.domain, &attr, each, nullptr), 0);
            ASSERT_EQ(fi_endpoint(s.domain, s.info, &second, nullptr), 0);
            ASSERT_EQ(fi_ep_bind(second, &late[1]->fid, FI_REMOTE_WRITE), 0);
            ASSERT_EQ(fi_mr_bind(s.regions[0], &late[0]->fid, FI_REMOTE_WRITE), 0);
        }
        s.barrier();
        write();
        if (target) {
            for (fid_cntr* each : late)
                EXPECT_TRUE(Counted::reads(each, times));
            ASSERT_EQ(fi_mr_bind(s.regions[0], &second->fid, 0), 0);
            ASSERT_EQ(fi_close(&second->fid), 0);
            ASSERT_EQ(fi_endpoint(s.domain, s.info, &third, nullptr), 0);
            ASSERT_EQ(fi_ep_bind(third, &of_another->fid, FI_REMOTE_WRITE), 0);
        }
        s.barrier();
        write();
        if (target) {
            EXPECT_TRUE(Counted::reads(late[0], 2 * times));
            EXPECT_EQ(fi_cntr_read(late[1]), times);
            EXPECT_EQ(fi_cntr_read(of_another), 0u);
            ASSERT_EQ(fi_close(&third->fid), 0);
            ASSERT_EQ(fi_close(&s.regions[0]->fid), 0);
            s.regions.clear();
            for (fid_cntr* each : {late[0], late[1], of_another})
                ASSERT_EQ(fi_close(&each->fid), 0);
        }
    });
}

// --- operations over several regions, or over no bytes

/// What the counters of the target have: writes and reads of the endpoint, of the first region, of the second one.
using Counts = std::array<std::uint64_t, 6>;

/// An operation of the initiator at two regions, and what it adds to the counts.
struct Reach {
    const char* name;
    Counts adds;
    ssize_t (*call)(Session& s, const Window (&at)[2], std::uint64_t* mine);
};

ssize_t transfer(Session& s, std::initializer_list<fi_rma_iov> remote, std::uint64_t* mine, bool read)
{
    std::size_t total = 0;
    for (const fi_rma_iov& each : remote)
        total += each.len;
    const iovec local{mine, total};
    const fi_msg_rma msg{&local, nullptr, 1, 0, remote.begin(), remote.size(), &s, 0};
    return read ? fi_readmsg(s.ep, &msg, FI_COMPLETION) : fi_writemsg(s.ep, &msg, FI_COMPLETION);
}
ssize_t atomic(Session& s, const Window (&at)[2], std::uint64_t* mine, fi_op op, bool fetch, std::size_t n = 1)
{
    const fi_ioc operand{mine, 2 * n};
    fi_ioc result{mine + 2 * n, 2 * n};
    const fi_rma_ioc remote[2] = {{at[0].base, n, at[0].key}, {at[1].base, n, at[1].key}};
    const fi_msg_atomic msg{&operand, nullptr, 1, 0, remote, 2, FI_UINT64, op, &s, 0};
    return fetch ? fi_fetch_atomicmsg(s.ep, &msg, &result, nullptr, 1, FI_COMPLETION)
                 : fi_atomicmsg(s.ep, &msg, FI_COMPLETION);
}

constexpr std::size_t region_words = 64;

const Reach reaches[] = {
    {"write",
     {1, 0, 1, 0, 1, 0},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) {
         return transfer(s, {{at[0].base, 8, at[0].key}, {at[1].base, 8, at[1].key}}, mine, false);
     }},
    {"write, there and back",
     {1, 0, 1, 0, 1, 0},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) {
         return transfer(s, {{at[0].base, 8, at[0].key}, {at[1].base, 100, at[1].key}, {at[0].base + 8, 8, at[0].key}},
                         mine, false);
     }},
    {"write, twice to one",
     {1, 0, 1, 0, 0, 0},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) {
         return transfer(s, {{at[0].base, 8, at[0].key}, {at[0].base + 64, 8, at[0].key}}, mine, false);
     }},
    {"read",
     {0, 1, 0, 1, 0, 1},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) {
         return transfer(s, {{at[1].base, 100, at[1].key}, {at[0].base, 8, at[0].key}}, mine, true);
     }},
    {"sum",
     {1, 0, 1, 0, 1, 0},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) { return atomic(s, at, mine, FI_SUM, false); }},
    {"sum, row",
     {1, 0, 1, 0, 1, 0},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) { return atomic(s, at, mine, FI_SUM, false, 20); }},
    {"loop",
     {1, 0, 1, 0, 1, 0},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) { return atomic(s, at, mine, FI_MAX, false); }},
    {"fetch sum",
     {0, 1, 1, 1, 1, 1},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) { return atomic(s, at, mine, FI_SUM, true); }},
    {"atomic read",
     {0, 1, 0, 1, 0, 1},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) { return atomic(s, at, mine, FI_ATOMIC_READ, true); }},
    {"write of nothing",
     {1, 0, 1, 0, 0, 0},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) {
         return fi_write(s.ep, mine, 0, nullptr, 0, at[0].base, at[0].key, &s);
     }},
    {"read of nothing",
     {0, 1, 0, 0, 0, 1},
     [](Session& s, const Window (&at)[2], std::uint64_t* mine) {
         return fi_read(s.ep, mine, 0, nullptr, 0, at[1].base + 40, at[1].key, &s);
     }},
    {"write of nothing nowhere",
     {1, 0, 0, 0, 0, 0},
     [](Session& s, const Window (&)[2], std::uint64_t* mine) {
         return fi_write(s.ep, mine, 0, nullptr, 0, 0, 0x123456789, &s);
     }},
    {"read of nothing, without a place",
     {0, 1, 0, 0, 0, 0},
     [](Session& s, const Window (&)[2], std::uint64_t*) {
         const fi_msg_rma msg{nullptr, nullptr, 0, 0, nullptr, 0, &s, 0};
         return fi_readmsg(s.ep, &msg, FI_COMPLETION);
     }},
};

/// The six counters, and what they must say.
struct TwoRegions {
    TwoRegions(const Rank& rank, int mr_mode) : s(rank, Counted::options_of(rank, mr_mode))
    {
        fi_cntr_attr attr{};
        for (unsigned i = 0; i < 2; i++) {
            at[i] = s.share(memory[i], sizeof memory[i], FI_REMOTE_READ | FI_REMOTE_WRITE, 70 + i)[0];
            for (unsigned right = 0; right < 2 && rank.number == 0; right++) {
                EXPECT_EQ(fi_cntr_open(s.domain, &attr, &counter[2 + 2 * i + right], nullptr), 0);
                EXPECT_EQ(fi_mr_bind(s.regions[i], &counter[2 + 2 * i + right]->fid,
                                     right == 0 ? FI_REMOTE_WRITE : FI_REMOTE_READ),
                          0);
            }
        }
        counter[0] = s.counter[remote_write_counter];
        counter[1] = s.counter[remote_read_counter];
        s.barrier();
    }
    ~TwoRegions()
    {
        s.barrier();
        for (fid_mr* mr : s.regions)
            EXPECT_EQ(fi_close(&mr->fid), 0);
        s.regions.clear();
        for (unsigned i = 2; i < 6; i++)
            if (counter[i] != nullptr)
                EXPECT_EQ(fi_close(&counter[i]->fid), 0);
    }
    void expect(const Counts& added)
    {
        for (unsigned i = 0; i < 6; i++) {
            counts[i] += added[i];
            ASSERT_TRUE(wait_until([&] { return fi_cntr_read(counter[i]) >= counts[i]; })) << i;
        }
        for (unsigned i = 0; i < 6; i++)
            ASSERT_EQ(fi_cntr_read(counter[i]), counts[i]) << i;
    }

    Session s;
    alignas(8) std::uint64_t memory[2][region_words] = {};
    Window at[2];
    fid_cntr* counter[6] = {};
    Counts counts{};
};

TEST(Mr, EachRegionOfAnOperationCountsIt)
{
    for (const int mode : {provider_keys, 0})
        expect_processes(2, [mode](const Rank& rank) {
            TwoRegions two(rank, mode);
            std::uint64_t mine[4 * region_words] = {};
            for (const Reach& reach : reaches) {
                SCOPED_TRACE(reach.name);
                if (rank.number != 0) {
                    ASSERT_EQ(two.s.post([&] { return reach.call(two.s, two.at, mine); }), 0);
                    two.s.expect(&two.s, 0);
                }
                two.s.barrier();
                if (rank.number == 0)
                    two.expect(reach.adds);
                two.s.barrier();
            }
        });
}

/// Bounds are known of keys of the user alone: there also the place behind the last byte belongs to its region.
TEST(Mr, AnOperationOfNoBytesBehindTheLastByteIsOneOfTheRegion)
{
    expect_processes(2, [](const Rank& rank) {
        TwoRegions two(rank, 0);
        if (rank.number != 0) {
            ASSERT_EQ(two.s.post([&] {
                return fi_write(two.s.ep, two.memory, 0, nullptr, 0, sizeof two.memory[0], two.at[0].key, &two.s);
            }),
                      0);
            two.s.expect(&two.s, FI_WRITE);
        }
        two.s.barrier();
        if (rank.number == 0)
            two.expect({1, 0, 1, 0, 0, 0});
    });
}

} // namespace
