// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The VCQ layer over a scripted library: each test sets the content of the queues and checks the notified handlers.
// Run by make check.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "utofu/vcq.h"

namespace {

using namespace tofu::vcq;

/// What the scripted library was asked, and what its queues hold.
struct Script {
    struct Posted {
        std::uint64_t edata;
        unsigned long flags;
        void* cbdata;
        utofu_vcq_id_t peer;
    };
    std::vector<Posted> posted;
    std::deque<std::pair<int, void*>> tcq;
    std::deque<std::pair<int, utofu_mrq_notice>> mrq;
    std::set<unsigned> full_tnis;
    unsigned cqs = 100; ///< that the process has; exclusive VCQs take one each, the others one together
    std::map<utofu_vcq_hdl_t, unsigned long> vcqs; ///< and their flags
    std::vector<unsigned> tried_tnis;
    unsigned long vcq_flags = 0;
    int answer = UTOFU_SUCCESS;                        ///< of the next posts
    bool answers = false;                              ///< a notice comes for each post that asks for one
    std::chrono::steady_clock::time_point flood_end{}; ///< a peer's notices come until then

    /// With one more VCQ.
    [[nodiscard]] unsigned cqs_taken(bool alone) const
    {
        unsigned exclusive = alone, shared = !alone;
        for (const auto& [handle, flags] : vcqs)
            ((flags & UTOFU_VCQ_FLAG_EXCLUSIVE) != 0 ? exclusive : shared)++;
        return exclusive + (shared != 0);
    }
};
Script script;
constexpr utofu_vcq_id_t nowhere = 666; ///< no VCQ of this machine

int post(utofu_vcq_id_t peer, std::uint64_t edata, unsigned long flags, void* cbdata)
{
    if (script.answer == UTOFU_SUCCESS)
        script.posted.push_back({edata, flags, cbdata, peer});
    if (script.answers && script.answer == UTOFU_SUCCESS && (flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) != 0) {
        utofu_mrq_notice n{};
        n.notice_type = UTOFU_MRQ_TYPE_LCL_ARMW;
        n.edata = edata;
        n.vcq_id = peer;
        script.mrq.push_back({UTOFU_SUCCESS, n});
    }
    return script.answer;
}

Functions own_functions()
{
    Functions f{};
    f.create_vcq = [](utofu_tni_id_t tni, unsigned long flags, utofu_vcq_hdl_t* handle) -> int {
        script.tried_tnis.push_back(tni);
        script.vcq_flags = flags;
        if (script.full_tnis.count(tni))
            return UTOFU_ERR_FULL;
        const bool alone = (flags & UTOFU_VCQ_FLAG_EXCLUSIVE) != 0;
        if (script.cqs_taken(alone) > script.cqs)
            return UTOFU_ERR_FULL;
        static utofu_vcq_hdl_t last = 0x1000;
        script.vcqs[*handle = last++] = flags;
        return UTOFU_SUCCESS;
    };
    f.free_vcq = [](utofu_vcq_hdl_t handle) -> int {
        EXPECT_EQ(script.vcqs.erase(handle), 1u);
        return UTOFU_SUCCESS;
    };
    f.query_vcq_id = [](utofu_vcq_hdl_t, utofu_vcq_id_t* id) -> int { return *id = 77, UTOFU_SUCCESS; };
    f.put = [](utofu_vcq_hdl_t, utofu_vcq_id_t peer, utofu_stadd_t, utofu_stadd_t, std::size_t, std::uint64_t edata,
               unsigned long flags, void* cbdata) -> int { return post(peer, edata, flags, cbdata); };
    f.put_piggyback = [](utofu_vcq_hdl_t, utofu_vcq_id_t peer, void*, utofu_stadd_t, std::size_t, std::uint64_t edata,
                         unsigned long flags, void* cbdata) -> int { return post(peer, edata, flags, cbdata); };
    f.armw8 = [](utofu_vcq_hdl_t, utofu_vcq_id_t peer, utofu_armw_op, std::uint64_t, utofu_stadd_t, std::uint64_t edata,
                 unsigned long flags, void* cbdata) -> int { return post(peer, edata, flags, cbdata); };
    f.query_stadd = [](utofu_vcq_id_t vcq, unsigned, utofu_stadd_t* stadd) -> int {
        return *stadd = 0x100000, vcq == nowhere ? UTOFU_ERR_INVALID_VCQ_ID : UTOFU_SUCCESS;
    };
    f.poll_tcq = [](utofu_vcq_hdl_t, unsigned long, void** cbdata) -> int {
        if (script.tcq.empty())
            return UTOFU_ERR_NOT_FOUND;
        auto [code, data] = script.tcq.front();
        script.tcq.pop_front();
        return *cbdata = data, code;
    };
    f.poll_mrq = [](utofu_vcq_hdl_t, unsigned long, utofu_mrq_notice* notice) -> int {
        if (std::chrono::steady_clock::now() < script.flood_end)
            return *notice = {}, notice->notice_type = UTOFU_MRQ_TYPE_RMT_GET, UTOFU_SUCCESS;
        if (script.mrq.empty())
            return UTOFU_ERR_NOT_FOUND;
        auto [code, value] = script.mrq.front();
        script.mrq.pop_front();
        return *notice = value, code;
    };
    return f;
}

struct Told : CompletionHandler {
    std::vector<Notice> notices;
    Told()
    {
        notify = [](CompletionHandler* self, Notice notice) noexcept {
            static_cast<Told*>(self)->notices.push_back(notice);
        };
    }
};

utofu_mrq_notice notice(std::uint8_t type, std::uint64_t edata, std::uint64_t value = 0)
{
    utofu_mrq_notice n{};
    n.notice_type = type;
    n.edata = edata;
    n.rmt_value = value;
    n.vcq_id = 5;
    n.rmt_stadd = 0x500;
    return n;
}

struct VcqTest : testing::Test {
    // A TCQ without a waiter is polled once in tcq_interval polls.
    void poll_thoroughly()
    {
        for (unsigned i = 0; i < Vcq::tcq_interval; i++)
            vcq.poll();
    }
    static utofu_onesided_caps caps()
    {
        utofu_onesided_caps c{};
        c.max_piggyback_size = 32;
        return c;
    }
    VcqTest()
    {
        script = Script{};
        Vcq::patience = std::chrono::milliseconds(100);
        Sink sink{this,
                  [](void* self, const RemoteNotice& n) noexcept { static_cast<VcqTest*>(self)->remote.push_back(n); },
                  [](void* self, int code, Unsignaled kind, utofu_vcq_id_t) noexcept {
                      static_cast<VcqTest*>(self)->unsignaled_errors.push_back({code, kind});
                  }};
        EXPECT_EQ(vcq.open(backend, 1, true, sink), 0);
    }
    ~VcqTest() override
    {
        script.answers = true; // the fences of what a test has left
        vcq.close();
    }
    Post put(Told& who, CompletionLevel level = CompletionLevel::delivered)
    {
        return vcq.put(5, 0x10, 0x20, 100, {level, false, false, level == CompletionLevel::never ? nullptr : &who});
    }
    Backend backend{own_functions(), caps(), 4};
    std::vector<RemoteNotice> remote;
    std::vector<std::pair<int, Unsignaled>> unsignaled_errors;
    Vcq vcq;
};

TEST_F(VcqTest, OpenTakesTheNextTniWithRoom)
{
    script.tried_tnis.clear();
    script.full_tnis = {2, 3};
    Vcq other;
    ASSERT_EQ(other.open(backend, 6, false, {}), 0);
    EXPECT_EQ(script.tried_tnis, (std::vector<unsigned>{2, 3, 0}));
    EXPECT_EQ(script.vcq_flags, 0u);
    EXPECT_EQ(other.id(), 77u);
}

TEST_F(VcqTest, OpenWithoutAnyRoomIsNoSpace)
{
    script.full_tnis = {0, 1, 2, 3};
    Vcq other;
    EXPECT_EQ(other.open(backend, 0, true, {}), -FI_ENOSPC);
    EXPECT_FALSE(other.is_open());
    // Two of the fixture, one of them for a moment; here each TNI twice: for a CQ of its own, then for a place on a
    // shared one.
    EXPECT_EQ(script.tried_tnis.size(), 10u);
}

TEST_F(VcqTest, TheLastCqIsNotTakenByOneAlone)
{
    // The fixture's VCQ has a CQ of its own.
    EXPECT_EQ(script.vcqs.begin()->second, UTOFU_VCQ_FLAG_EXCLUSIVE);
    script.cqs = 3;
    Vcq alone, shared, another;
    ASSERT_EQ(alone.open(backend, 0, true, {}), 0);
    ASSERT_EQ(shared.open(backend, 1, true, {}), 0);
    ASSERT_EQ(another.open(backend, 2, true, {}), 0);
    EXPECT_EQ(script.vcqs[alone.handle()], UTOFU_VCQ_FLAG_EXCLUSIVE);
    EXPECT_EQ(script.vcqs[shared.handle()], UTOFU_VCQ_FLAG_THREAD_SAFE);
    EXPECT_EQ(script.vcqs[another.handle()], UTOFU_VCQ_FLAG_THREAD_SAFE);
    EXPECT_EQ(script.vcqs.size(), 4u); // nothing else is left of the attempts
}

TEST_F(VcqTest, FlagsFollowHow)
{
    Told who;
    ASSERT_EQ(put(who, CompletionLevel::never), Post::done);
    ASSERT_EQ(put(who, CompletionLevel::sent), Post::done);
    ASSERT_EQ(vcq.put(5, 1, 2, 3, {CompletionLevel::delivered, true, true, &who}), Post::done);
    EXPECT_EQ(script.posted[0].flags, 0u);
    EXPECT_EQ(script.posted[0].edata, 0u);
    EXPECT_EQ(script.posted[0].cbdata, nullptr);
    EXPECT_EQ(script.posted[1].flags, UTOFU_ONESIDED_FLAG_TCQ_NOTICE);
    EXPECT_EQ(script.posted[2].flags, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                          UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE);
    EXPECT_NE(script.posted[2].edata, 0u);
    script.tcq.push_back({UTOFU_SUCCESS, script.posted[1].cbdata});
    script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_LCL_PUT, script.posted[2].edata)});
    vcq.poll();
    EXPECT_EQ(who.notices.size(), 2u);
    EXPECT_TRUE(vcq.idle());
}

constexpr unsigned tags = CompletionTable::size - 1;

TEST_F(VcqTest, NoticesOfDifferentPeersInAnyOrder)
{
    Told who[tags];
    for (Told& w : who)
        ASSERT_EQ(vcq.armw(8, 5, UTOFU_ARMW_OP_ADD, 1, 8, {CompletionLevel::delivered, false, false, &w}), Post::done);
    EXPECT_EQ(vcq.completions().free(), 0u);
    for (unsigned i = tags; i-- > 0;)
        script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_LCL_ARMW, script.posted[(i * 101) % tags].edata,
                                                    1000 + (i * 101) % tags)});
    while (vcq.poll() != 0) {
    }
    for (unsigned i = 0; i < tags; i++) {
        ASSERT_EQ(who[i].notices.size(), 1u);
        EXPECT_EQ(who[i].notices[0].value, 1000u + i);
    }
    EXPECT_EQ(vcq.completions().free(), tags);
}

TEST_F(VcqTest, AFullCompletionTableIsBusyAndHasNoEffect)
{
    Told who;
    for (unsigned i = 0; i < tags; i++)
        ASSERT_EQ(put(who), Post::done);
    EXPECT_EQ(put(who), Post::busy);
    EXPECT_EQ(script.posted.size(), tags);
    EXPECT_EQ(put(who, CompletionLevel::never), Post::done); // needs no place
    script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_LCL_PUT, 17)});
    vcq.poll();
    EXPECT_EQ(put(who), Post::done);
    EXPECT_EQ(script.posted.back().edata, 17u);
    for (std::uint64_t e = 1; e <= tags; e++)
        script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_LCL_PUT, e)});
    while (vcq.poll() != 0) {
    }
    EXPECT_EQ(who.notices.size(), tags + 1);
}

TEST_F(VcqTest, BusyAndErrorGiveThePlaceBack)
{
    Told who;
    script.answer = UTOFU_ERR_BUSY;
    EXPECT_EQ(put(who), Post::busy);
    EXPECT_EQ(put(who, CompletionLevel::sent), Post::busy);
    script.answer = UTOFU_ERR_INVALID_STADD;
    EXPECT_EQ(put(who), Post::error);
    EXPECT_EQ(vcq.last_error(), UTOFU_ERR_INVALID_STADD);
    EXPECT_TRUE(vcq.idle());
    EXPECT_TRUE(who.notices.empty());
}

TEST_F(VcqTest, AnErrorOfTheTcqEndsAPostThatWaitsForTheMrq)
{
    Told who;
    ASSERT_EQ(put(who), Post::done);
    const auto p = script.posted[0];
    script.tcq.push_back({UTOFU_ERR_TCQ_MEMORY, p.cbdata});
    poll_thoroughly();
    ASSERT_EQ(who.notices.size(), 1u);
    EXPECT_EQ(who.notices[0].code, UTOFU_ERR_TCQ_MEMORY);
    EXPECT_TRUE(vcq.idle());
    // A notice that comes all the same finds no handler; nor does a second error.
    script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_LCL_PUT, p.edata)});
    script.tcq.push_back({UTOFU_ERR_TCQ_MEMORY, p.cbdata});
    poll_thoroughly();
    EXPECT_EQ(who.notices.size(), 1u);
    EXPECT_EQ(vcq.completions().free(), tags);
}

/// Within a time in which nothing of these tests can be under way any more.
template <class Done>
bool polled_until(Vcq& vcq, Done&& done)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < end)
        vcq.poll();
    return done();
}
struct LostTest : VcqTest {
    LostTest() { Vcq::lost_after = std::chrono::milliseconds(20); }
    ~LostTest() override { Vcq::lost_after = before; }
    std::chrono::milliseconds before = Vcq::lost_after;
};

TEST_F(LostTest, WhatNeverEndsIsTakenAsFailed)
{
    Told lost;
    ASSERT_EQ(put(lost), Post::done);
    ASSERT_TRUE(polled_until(vcq, [&] { return !lost.notices.empty(); }));
    EXPECT_EQ(lost.notices[0].code, tofu::never_notified);
    EXPECT_TRUE(vcq.idle());
    EXPECT_EQ(vcq.completions().free(), tags - 1); // its notice may still come, and is not another's
    Told next;
    ASSERT_EQ(put(next), Post::done);
    ASSERT_NE(script.posted[0].edata, script.posted[1].edata);
    script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_LCL_PUT, script.posted[1].edata)});
    script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_LCL_PUT, script.posted[0].edata)});
    poll_thoroughly();
    ASSERT_EQ(next.notices.size(), 1u);
    EXPECT_EQ(next.notices[0].code, UTOFU_SUCCESS);
    EXPECT_EQ(lost.notices.size(), 1u);
    vcq.poll();
    EXPECT_EQ(vcq.completions().free(), tags);
}

TEST_F(LostTest, PlacesOfTheLostAreUsedAgainWhenThereIsNoOther)
{
    std::vector<Told> lost(tags);
    for (Told& who : lost)
        ASSERT_EQ(put(who), Post::done);
    ASSERT_TRUE(polled_until(vcq, [&] { return lost.back().notices.size() == 1; }));
    EXPECT_TRUE(vcq.idle());
    ASSERT_TRUE(polled_until(vcq, [&] { return vcq.completions().free() == tags; }));
    for (const Told& who : lost)
        EXPECT_EQ(who.notices.size(), 1u);
}

TEST_F(VcqTest, ErrorsOfUnsignaledPostsReachTheSink)
{
    ASSERT_EQ(vcq.put_inline(5, "", 0x20, 1, UnsignaledArgs{Unsignaled::message, 0}), Post::done);
    ASSERT_EQ(vcq.put_inline(5, "", 0x20, 1, UnsignaledArgs{Unsignaled::write, 0}), Post::done);
    ASSERT_EQ(vcq.armw(8, 5, UTOFU_ARMW_OP_ADD, 1, 0x20, UnsignaledArgs{Unsignaled::armw, 0}), Post::done);
    ASSERT_EQ(vcq.put(5, 0x10, 0x20, 100, {.kind = Unsignaled::write}), Post::done);
    std::vector<std::pair<int, Unsignaled>> expected;
    const Unsignaled kinds[] = {Unsignaled::message, Unsignaled::write, Unsignaled::armw, Unsignaled::write};
    for (unsigned i = 0; i < 4; i++) {
        const auto& posted = script.posted[i];
        script.tcq.push_back({UTOFU_ERR_TCQ_STADD, posted.cbdata});
        script.mrq.push_back(
            {UTOFU_ERR_MRQ_RMT_STADD, notice(i == 2 ? UTOFU_MRQ_TYPE_LCL_ARMW : UTOFU_MRQ_TYPE_LCL_PUT, posted.edata)});
        expected.push_back({UTOFU_ERR_TCQ_STADD, kinds[i]});
        expected.push_back({UTOFU_ERR_MRQ_RMT_STADD, kinds[i]});
    }
    poll_thoroughly();
    std::sort(unsignaled_errors.begin(), unsignaled_errors.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(unsignaled_errors, expected);
}

TEST_F(VcqTest, NothingAPeerWritesNamesOurPlaces)
{
    Told who;
    ASSERT_EQ(put(who), Post::done);
    const auto edata = script.posted[0].edata;
    for (std::uint64_t e : {edata, std::uint64_t{0}, std::uint64_t{256}, ~std::uint64_t{0}})
        script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_RMT_PUT, e)});
    script.mrq.push_back({UTOFU_ERR_MRQ_OTHER, notice(UTOFU_MRQ_TYPE_RMT_PUT, edata)});
    script.mrq.push_back({UTOFU_SUCCESS, notice(200, edata)}); // no such type
    vcq.poll();
    EXPECT_TRUE(who.notices.empty());
    EXPECT_EQ(remote.size(), 4u); // a failed one is dropped
    EXPECT_EQ(remote[0].stadd, 0x500u);
    EXPECT_EQ(remote[0].peer, 5u);
    script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_LCL_PUT, edata)});
    vcq.poll();
    EXPECT_EQ(who.notices.size(), 1u);
}

TEST_F(VcqTest, APollIsBounded)
{
    for (int i = 0; i < 100; i++)
        script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_RMT_PUT, 0)});
    EXPECT_EQ(vcq.poll(10), 10u);
    EXPECT_EQ(script.mrq.size(), 90u);
}

TEST_F(VcqTest, AFailingPollEndsTheRound)
{
    for (int i = 0; i < 5; i++)
        script.mrq.push_back({UTOFU_ERR_FATAL, notice(UTOFU_MRQ_TYPE_LCL_PUT, 0)});
    EXPECT_EQ(vcq.poll(10), 0u);
    EXPECT_EQ(vcq.last_error(), UTOFU_ERR_FATAL);
    EXPECT_TRUE(unsignaled_errors.empty());
}

TEST_F(VcqTest, AWaiterMayPostAgain)
{
    struct Chain : CompletionHandler {
        Vcq* vcq;
        int left = 300;
    } chain;
    chain.vcq = &vcq;
    chain.notify = [](CompletionHandler* self, Notice) noexcept {
        auto& c = *static_cast<Chain*>(self);
        if (--c.left > 0)
            EXPECT_EQ(c.vcq->put(5, 1, 2, 3, {CompletionLevel::delivered, false, false, &c}), Post::done);
    };
    ASSERT_EQ(vcq.put(5, 1, 2, 3, {CompletionLevel::delivered, false, false, &chain}), Post::done);
    for (int i = 0; i < 300; i++) {
        script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_LCL_PUT, script.posted.back().edata)});
        vcq.poll();
    }
    EXPECT_EQ(chain.left, 0);
    EXPECT_TRUE(vcq.idle());
}

/// Peers in the order of their fences.
std::vector<utofu_vcq_id_t> fences()
{
    std::vector<utofu_vcq_id_t> to;
    for (const Script::Posted& p : script.posted)
        if (p.flags == (UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_STRONG_ORDER))
            to.push_back(p.peer);
    std::sort(to.begin(), to.end());
    return to;
}

TEST_F(VcqTest, ClosingFencesEachPeerThatPostsWentToWithoutNotice)
{
    script.answers = true;
    Told told;
    constexpr unsigned peers = 2000; // more than the completion table and the cache have entries
    const std::uint64_t word = 0;
    for (unsigned round = 0; round < 2; round++)
        for (utofu_vcq_id_t peer = 1000; peer < 1000 + peers; peer++)
            ASSERT_EQ(vcq.put_inline(peer, &word, 0x20, 8, UnsignaledArgs{Unsignaled::message, 0}), Post::done);
    ASSERT_EQ(vcq.put(3, 0x10, 0x20, 100, {CompletionLevel::sent, false, false, &told}), Post::done);
    script.tcq.push_back({UTOFU_SUCCESS, script.posted.back().cbdata});
    ASSERT_EQ(vcq.put(4, 0x10, 0x20, 100, {CompletionLevel::delivered, false, false, &told}), Post::done); // needs none
    ASSERT_EQ(vcq.put_inline(nowhere, &word, 0x20, 8, UnsignaledArgs{Unsignaled::message, 0}), Post::done);
    vcq.close();
    EXPECT_EQ(told.notices.size(), 2u);
    const auto to = fences();
    ASSERT_EQ(to.size(), peers + 1);
    EXPECT_EQ(to[0], 3u);
    for (unsigned i = 0; i < peers; i++)
        ASSERT_EQ(to[i + 1], 1000 + i);
}

TEST_F(VcqTest, AFenceCoversWhatWasPostedBefore)
{
    script.answers = true;
    Told fence;
    const std::uint64_t word = 0;
    EXPECT_FALSE(vcq.has_unsignaled_to(5));
    ASSERT_EQ(vcq.put_inline(5, &word, 0x20, 8, UnsignaledArgs{Unsignaled::message, 0}), Post::done);
    EXPECT_TRUE(vcq.has_unsignaled_to(5));
    EXPECT_FALSE(vcq.has_unsignaled_to(6));
    script.answer = UTOFU_ERR_BUSY;
    EXPECT_EQ(vcq.fence(5, fence), Post::busy);
    EXPECT_TRUE(vcq.has_unsignaled_to(5));
    script.answer = UTOFU_SUCCESS;
    EXPECT_EQ(vcq.fence(5, fence), Post::done);
    EXPECT_FALSE(vcq.has_unsignaled_to(5));
    ASSERT_EQ(vcq.put_inline(5, &word, 0x20, 8, UnsignaledArgs{Unsignaled::message, 0}), Post::done);
    EXPECT_TRUE(vcq.has_unsignaled_to(5)); // the fence covers nothing behind it
    EXPECT_EQ(vcq.fence(5, fence), Post::done);
    EXPECT_EQ(vcq.fence(nowhere, fence), Post::error);
    vcq.poll();
    EXPECT_EQ(fence.notices.size(), 2u);
    vcq.close();
    EXPECT_EQ(fences(), (std::vector<utofu_vcq_id_t>{5, 5})); // it needed no other
    ASSERT_EQ(vcq.open(backend, 1, true, {}), 0);
    ASSERT_EQ(vcq.armw(8, 5, UTOFU_ARMW_OP_ADD, 1, 8, UnsignaledArgs{Unsignaled::armw, 0}), Post::done);
    EXPECT_TRUE(vcq.has_unsignaled_to(5)); // again
    vcq.close();
    EXPECT_EQ(fences(), (std::vector<utofu_vcq_id_t>{5, 5, 5}));
}

TEST_F(VcqTest, ClosingInformsWaiters)
{
    Told waits, done;
    ASSERT_EQ(put(waits), Post::done);
    ASSERT_EQ(put(done), Post::done);
    script.mrq.push_back({UTOFU_SUCCESS, notice(UTOFU_MRQ_TYPE_LCL_PUT, script.posted[1].edata)});
    EXPECT_FALSE(vcq.drain());
    EXPECT_EQ(put(done), Post::error);
    vcq.close();
    ASSERT_EQ(waits.notices.size(), 1u);
    EXPECT_EQ(waits.notices[0].code, UTOFU_ERR_MRQ_OTHER);
    ASSERT_EQ(done.notices.size(), 1u);
    EXPECT_EQ(done.notices[0].code, UTOFU_SUCCESS);
    EXPECT_TRUE(script.vcqs.empty());
}

TEST_F(VcqTest, APeerThatFloodsUsDoesNotKeepItOpen)
{
    using Clock = std::chrono::steady_clock;
    Vcq flooded;
    ASSERT_EQ(flooded.open(backend, 1, true, {}), 0);
    Told waits;
    ASSERT_EQ(flooded.put(5, 0x10, 0x20, 100, {CompletionLevel::delivered, false, false, &waits}), Post::done);
    script.flood_end = Clock::now() + std::chrono::seconds(10);
    flooded.close();
    EXPECT_LT(Clock::now(), script.flood_end);
    ASSERT_EQ(waits.notices.size(), 1u);
    EXPECT_EQ(waits.notices[0].code, UTOFU_ERR_MRQ_OTHER);
    script.flood_end = {};
}

} // namespace
