// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What comes in the middle of fi_trywait is heard, by whichever object and in whichever order they are looked at
// (cq/poll_set.cc); and a member of a wait set is closed in the middle of a wait. The provider is linked in: its wait
// objects here belong to owners that let things come when they are looked at. Run by make check; wake_flag_test.cc has
// all orders of the steps.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>

#include <poll.h>

#include "cq/domain_base.h"
#include "cq/poll_set.h"
#include "cq/wait.h"
#include "prov/lib/linked.h"
#include "prov/lib/objects.h"

// Wait sets: deprecated since libfabric 2, and still there.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

using namespace tofu::test;

/// A queue of no domain. While it is looked at something may come for another one.
struct Member {
    explicit Member(fid_wait* set) { Objects::must(wait.open({this, ready, nullptr, nullptr}, FI_WAIT_SET, set)); }
    void arrive()
    {
        unread++;
        wait.signal();
    }
    static bool ready(void* self) noexcept
    {
        auto& m = *static_cast<Member*>(self);
        const bool some = m.unread != 0;
        if (m.meanwhile != nullptr)
            std::exchange(m.meanwhile, nullptr)->arrive();
        return some;
    }
    tofu::WaitObject wait;
    unsigned unread = 0;
    Member* meanwhile = nullptr;
};

fid_wait* open_set(const Objects& objects)
{
    fi_wait_attr attr{};
    attr.wait_obj = FI_WAIT_FD;
    fid_wait* set = nullptr;
    Objects::must(fi_wait_open(objects.fabric, &attr, &set));
    return set;
}

struct Set {
    Set() : set(open_set(objects)) { Objects::must(fi_control(&set->fid, FI_GETWAIT, &fd)); }
    ~Set() { EXPECT_EQ(fi_close(&set->fid), 0); }
    int try_wait()
    {
        struct fid* fids[] = {&set->fid};
        return fi_trywait(objects.fabric, fids, 1);
    }
    bool readable() const
    {
        pollfd p{fd, POLLIN, 0};
        return poll(&p, 1, 0) == 1;
    }
    Objects objects;
    fid_wait* set = nullptr;
    int fd = -1;
};

TEST(TryWait, HearsAMemberThatWasLookedAtAlready)
{
    Set s;
    Member first(s.set), second(s.set), third(s.set);
    second.meanwhile = &first;
    EXPECT_TRUE(s.try_wait() == -FI_EAGAIN || s.readable());
}

/// Another thread may sleep on the descriptor for what this one finds and leaves alone.
TEST(TryWait, LeavesTheDescriptorReadableWhereItFindsSomething)
{
    Set s;
    Member first(s.set), second(s.set);
    EXPECT_EQ(s.try_wait(), 0);
    EXPECT_FALSE(s.readable());
    first.arrive();
    EXPECT_TRUE(s.readable());
    EXPECT_EQ(s.try_wait(), -FI_EAGAIN);
    EXPECT_TRUE(s.readable());
    first.unread = 0;
    EXPECT_EQ(s.try_wait(), 0);
    EXPECT_FALSE(s.readable());
}

/// A wait asks its source for VCQs before it sleeps.
struct Source : tofu::ProgressSource {
    bool run(bool) noexcept override { return false; }
    std::size_t vcqs(utofu_vcq_hdl_t*, std::size_t) noexcept override
    {
        EXPECT_FALSE(gone) << "a member that was closed is asked";
        if (asked != nullptr)
            asked->store(true);
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        while (other != nullptr && !other->gone && std::chrono::steady_clock::now() < end)
            std::this_thread::yield();
        return 0;
    }
    std::atomic<bool> gone{false};
    std::atomic<bool>* asked = nullptr;
    Source* other = nullptr; ///< is given time to go
};

/// Another thread may close one member while a thread waits for the others.
TEST(WaitSet, AMemberGoesWhileAThreadWaits)
{
    Set s;
    Source sources[2];
    std::atomic<bool> asked{false};
    sources[0].asked = &asked;
    sources[0].other = &sources[1];
    std::optional<tofu::WaitObject> members[2];
    const auto never = [](void*) noexcept { return false; };
    for (unsigned i = 0; i < 2; i++)
        ASSERT_EQ(members[i].emplace().open({nullptr, never, &sources[i], nullptr}, FI_WAIT_SET, s.set), 0);
    std::thread closer([&] {
        while (!asked)
            std::this_thread::yield();
        members[1].reset();
        sources[1].gone = true;
    });
    EXPECT_EQ(fi_wait(s.set, 500), -FI_ETIMEDOUT);
    closer.join();
    members[0].reset();
}

std::ptrdiff_t threads_of_process()
{
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// Once a member is closed, another thread may close the set: from then on the domain's thread does not know its
/// signal.
TEST(WaitSet, CannotBeClosedBeforeTheThreadHasForgottenItsSignal)
{
    Objects o;
    fid_wait* const set = open_set(o);
    const auto threads_before = threads_of_process();
    fi_cntr_attr in_set{};
    in_set.wait_obj = FI_WAIT_SET;
    in_set.wait_set = set;
    fid_cntr* counter = nullptr;
    std::thread closer;
    int closed = -FI_EBUSY;
    bool over = false; // the domain's thread
    {
        // The thread waits for the lock in its first poll, unless it is slow to begin. The close of its last user waits
        // for its end.
        std::lock_guard guard(tofu::DomainBase::of(o.domain).target_lock());
        ASSERT_EQ(fi_cntr_open(o.domain, &in_set, &counter, nullptr), 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        closer = std::thread([&] { EXPECT_EQ(fi_close(&counter->fid), 0); });
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        while (closed == -FI_EBUSY && std::chrono::steady_clock::now() < end)
            closed = fi_close(&set->fid);
        while (closed == 0 && !over && std::chrono::steady_clock::now() < end)
            over = threads_of_process() <= threads_before + 1; // the closer
    }
    closer.join();
    if (closed != 0)
        EXPECT_EQ(fi_close(&set->fid), 0);
    else
        EXPECT_TRUE(over);
}

/// The members themselves in place of their set: one look is a look at all that ring the descriptor.
TEST(TryWait, OfOneMemberHearsTheOthers)
{
    Objects o;
    fid_wait* const set = open_set(o);
    o.others.push_back(&set->fid);
    int fd = -1;
    ASSERT_EQ(fi_control(&set->fid, FI_GETWAIT, &fd), 0);
    fid_cntr* one = o.open_counter(FI_WAIT_SET, set);
    fid_cntr* other = o.open_counter(FI_WAIT_SET, set);
    std::swap(o.others.front(), o.others.back()); // the set is closed last
    ASSERT_EQ(fi_cntr_add(one, 1), 0);
    struct fid* fids[] = {&other->fid};
    EXPECT_EQ(fi_trywait(o.fabric, fids, 1), -FI_EAGAIN);
    pollfd p{fd, POLLIN, 0};
    EXPECT_EQ(poll(&p, 1, 0), 1);
    EXPECT_EQ(fi_cntr_read(one), 1u);
    EXPECT_EQ(fi_trywait(o.fabric, fids, 1), 0);
}

/// Nothing is cleared by a call that is refused.
TEST(TryWait, RefusesBeforeItSilences)
{
    Set s;
    Member member(s.set);
    member.arrive();
    struct fid* fids[] = {&s.set->fid, nullptr};
    EXPECT_EQ(fi_trywait(s.objects.fabric, fids, 2), -FI_EINVAL);
    EXPECT_TRUE(s.readable());
}

} // namespace
