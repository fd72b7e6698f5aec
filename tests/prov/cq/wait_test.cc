// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Waiting: blocking reads, descriptors, mutex and condition, wait sets, poll sets, fi_trywait, automatic progress; and
// that a waiter uses no CPU (fi_cq(3), fi_cntr(3), fi_poll(3)).
#include <gtest/gtest.h>

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <rdma/fi_collective.h>

#include "prov/lib/objects.h"

// fi_av_bind, wait sets and poll sets: deprecated since libfabric 2, and still there.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

using namespace tofu::test;
using Clock = std::chrono::steady_clock;

/// Endpoint 0 sends with a queue of its own, endpoint 1 receives into `rx`.
struct Waiting : Objects {
    explicit Waiting(fi_wait_obj wait, const Wishes& wishes = {}, fid_wait* set = nullptr) : Objects(wishes)
    {
        tx = open_queue();
        rx = open_queue(wait, FI_CQ_FORMAT_TAGGED, 0, set);
        received = open_counter(wait == FI_WAIT_NONE ? FI_WAIT_UNSPEC : wait, set);
        a = add(tx, tx);
        b = add(rx, rx, received);
    }
    void expect_message(std::uint64_t tag = 1)
    {
        post(rx, [&] { return fi_trecv(b, in, sizeof(in), nullptr, FI_ADDR_UNSPEC, tag, 0, in); });
    }
    /// From any thread: only endpoint 0 and its queue are used.
    void send(std::uint64_t tag = 1)
    {
        post(tx, [&] { return fi_tsend(a, out, 32, nullptr, 1, tag, out); });
        fi_cq_tagged_entry entry;
        EXPECT_TRUE(eventually([&] { return fi_cq_read(tx, &entry, 1) == 1; }));
    }
    fid_cq* tx = nullptr;
    fid_cq* rx = nullptr;
    fid_cntr* received = nullptr;
    fid_ep* a = nullptr;
    fid_ep* b = nullptr;
    char in[64] = {};
    char out[64] = {};
};

TEST(Wait, ABlockingReadEndsWithItsTimeout)
{
    for (fi_wait_obj wait : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD}) {
        Waiting w(wait);
        fi_cq_tagged_entry entry;
        const auto begin = Clock::now();
        EXPECT_EQ(fi_cq_sread(w.rx, &entry, 1, nullptr, 50), -FI_EAGAIN);
        EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(49));
        EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
        EXPECT_EQ(fi_cntr_wait(w.received, 1, 20), -FI_ETIMEDOUT);
    }
}

TEST(Wait, ABlockedReaderIsWokenByAMessage)
{
    for (fi_wait_obj wait : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD}) {
        Waiting w(wait);
        w.expect_message();
        std::thread sender([&] { w.send(); });
        fi_cq_tagged_entry entry{};
        EXPECT_EQ(fi_cq_sread(w.rx, &entry, 1, nullptr, 10000), 1);
        EXPECT_EQ(entry.op_context, w.in);
        EXPECT_EQ(fi_cntr_wait(w.received, 1, 10000), 0);
        sender.join();
    }
}

/// A caller that reads no entries learns at once that there are some, and waits no longer than its limit if there are
/// none.
TEST(Wait, ABlockingReadOfNoEntriesEnds)
{
    Waiting w(FI_WAIT_UNSPEC);
    EXPECT_EQ(fi_cq_sread(w.rx, nullptr, 0, nullptr, 20), -FI_EAGAIN);
    w.expect_message();
    w.send();
    EXPECT_EQ(fi_cntr_wait(w.received, 1, 10000), 0);
    std::atomic<bool> ended{false};
    std::thread reader([&] {
        EXPECT_EQ(fi_cq_sread(w.rx, nullptr, 0, nullptr, 20), -FI_EAGAIN);
        ended = true;
    });
    EXPECT_TRUE(eventually([&] { return ended.load(); }));
    fi_cq_tagged_entry entry{};
    EXPECT_EQ(fi_cq_read(w.rx, &entry, 1), 1);
    reader.join();
}

TEST(Wait, AWaitingThreadUsesNoCpu)
{
    Waiting w(FI_WAIT_UNSPEC);
    fi_cq_tagged_entry entry;
    fi_cq_sread(w.rx, &entry, 1, nullptr, 20); // past the first, busy looks
    const double before = cpu_seconds();
    EXPECT_EQ(fi_cq_sread(w.rx, &entry, 1, nullptr, 500), -FI_EAGAIN);
    EXPECT_LT(cpu_seconds() - before, 0.1);
}

TEST(Wait, TheThreadBehindADescriptorUsesNoCpuWhenIdle)
{
    Waiting w(FI_WAIT_FD);
    int fd = -1;
    ASSERT_EQ(fi_control(&w.rx->fid, FI_GETWAIT, &fd), 0);
    pollfd p{fd, POLLIN, 0};
    poll(&p, 1, 20);
    const double before = cpu_seconds();
    poll(&p, 1, 500);
    EXPECT_LT(cpu_seconds() - before, 0.1);
}

TEST(Wait, ASignalEndsABlockingRead)
{
    Waiting w(FI_WAIT_UNSPEC);
    const auto begin = Clock::now();
    std::thread other([&] { fi_cq_signal(w.rx); });
    fi_cq_tagged_entry entry;
    const ssize_t got = fi_cq_sread(w.rx, &entry, 1, nullptr, 60000);
    EXPECT_TRUE(got == -FI_EAGAIN || got == -FI_ECANCELED);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
    other.join();
}

/// Whether a thread of this process sleeps in the kernel.
bool is_asleep(pid_t thread)
{
    char path[64], line[512] = {};
    std::snprintf(path, sizeof(path), "/proc/self/task/%d/stat", static_cast<int>(thread));
    std::FILE* file = std::fopen(path, "r");
    if (file == nullptr)
        return false;
    const bool read = std::fgets(line, sizeof(line), file) != nullptr;
    std::fclose(file);
    const char* name_end = read ? std::strrchr(line, ')') : nullptr;
    return name_end != nullptr && name_end[1] == ' ' && name_end[2] == 'S';
}

/// How often a thread of this process has fallen asleep.
long sleeps_of(pid_t thread)
{
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/status");
    std::string word;
    long count = -1;
    while (file >> word && word != "voluntary_ctxt_switches:") {
    }
    file >> count;
    return count;
}

/// `wake` ends the sleep of another thread in `block`. That thread looks by itself every 10 ms, so it is woken as it
/// has just fallen asleep: a thread that is up before its own next poll was woken. A machine that does other things can
/// be late with that, but not always.
template <class Block, class Wake>
void expect_woken_at_once(Block&& block, Wake&& wake)
{
    using std::chrono::milliseconds;
    for (int i = 0; i < 100; i++) {
        std::atomic<pid_t> id{0};
        std::thread sleeper([&] {
            id = gettid();
            block();
        });
        std::this_thread::sleep_for(milliseconds(30)); // past the first looks, which come one upon another
        EXPECT_TRUE(eventually([&] { return id != 0; }));
        const long before = sleeps_of(id);
        auto awake = Clock::now();
        EXPECT_TRUE(eventually([&] {
            const auto now = Clock::now();
            const bool asleep_again = sleeps_of(id) != before;
            awake = asleep_again ? awake : now;
            return asleep_again;
        }));
        wake();
        sleeper.join();
        if (Clock::now() - awake < milliseconds(8))
            return;
    }
    ADD_FAILURE() << "the sleeper finds it by its own next poll";
}

TEST(Wait, AnotherThreadWakesASleeperAtOnce)
{
    Waiting w(FI_WAIT_UNSPEC);
    fi_cq_tagged_entry entry;
    expect_woken_at_once([&] { EXPECT_EQ(fi_cq_sread(w.rx, &entry, 1, nullptr, 10000), -FI_EAGAIN); },
                         [&] { fi_cq_signal(w.rx); });
    expect_woken_at_once([&] { EXPECT_EQ(fi_cntr_wait(w.received, fi_cntr_read(w.received) + 1, 10000), 0); },
                         [&] { fi_cntr_add(w.received, 1); });
}

/// fi_cq(3): "This field is ignored if wait_obj is set to FI_WAIT_NONE."
TEST(Wait, NoConditionIsSignaledWithoutAWaiter)
{
    Objects o;
    fi_cq_attr attr{};
    attr.wait_cond = static_cast<fi_cq_wait_cond>(7);
    fid_cq* cq = nullptr;
    ASSERT_EQ(fi_cq_open(o.domain, &attr, &cq, nullptr), 0);
    EXPECT_EQ(fi_close(&cq->fid), 0);
    attr.wait_obj = FI_WAIT_UNSPEC;
    EXPECT_EQ(fi_cq_open(o.domain, &attr, &cq, nullptr), -FI_EINVAL);
}

TEST(Wait, AThresholdGathersEntries)
{
    Objects o;
    fid_cq* tx = o.open_queue();
    fi_cq_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    attr.wait_cond = FI_CQ_COND_THRESHOLD;
    attr.format = FI_CQ_FORMAT_CONTEXT;
    fid_cq* rx = nullptr;
    Objects::must(fi_cq_open(o.domain, &attr, &rx, nullptr));
    o.others.push_back(&rx->fid);
    fid_ep* a = o.add(tx, tx);
    fid_ep* b = o.add(rx, rx);
    char in[4][8], out[8] = {};
    for (auto& buffer : in)
        Objects::post(rx, [&] { return fi_trecv(b, buffer, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, buffer); });
    std::thread sender([&] {
        for (int i = 0; i < 4; i++)
            Objects::post(tx, [&] { return fi_tinject(a, out, 8, 1, 1); });
    });
    fi_cq_entry entries[8];
    EXPECT_EQ(fi_cq_sread(rx, entries, 8, reinterpret_cast<void*>(4), 10000), 4);
    sender.join();
}

TEST(Wait, ACounterIsWokenByCountsAndByErrors)
{
    Waiting w(FI_WAIT_UNSPEC);
    std::thread adder([&] { fi_cntr_add(w.received, 7); });
    EXPECT_EQ(fi_cntr_wait(w.received, 7, 10000), 0);
    adder.join();
    std::thread failer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30)); // the wait should have begun, or times out
        fi_cntr_adderr(w.received, 1);
    });
    EXPECT_EQ(fi_cntr_wait(w.received, 100, 10000), -FI_EAVAIL);
    failer.join();
    EXPECT_EQ(fi_cntr_readerr(w.received), 1u);
}

TEST(Wait, ADescriptorBecomesReadableWithoutCallsOfOurs)
{
    for (fi_threading threading : {FI_THREAD_SAFE, FI_THREAD_DOMAIN}) {
        Wishes wishes;
        wishes.threading = threading;
        Waiting w(FI_WAIT_FD, wishes);
        int fd = -1;
        ASSERT_EQ(fi_control(&w.rx->fid, FI_GETWAIT, &fd), 0);
        for (int round = 0; round < 20; round++) {
            w.expect_message();
            w.send();
            pollfd p{fd, POLLIN, 0};
            struct fid* fids[] = {&w.rx->fid};
            const int safe = fi_trywait(w.fabric, fids, 1);
            if (safe == 0)
                ASSERT_EQ(poll(&p, 1, 10000), 1) << "round " << round;
            else
                ASSERT_EQ(safe, -FI_EAGAIN);
            fi_cq_tagged_entry entry;
            ASSERT_TRUE(eventually([&] { return fi_cq_read(w.rx, &entry, 1) == 1; }));
        }
        struct fid* fids[] = {&w.rx->fid};
        EXPECT_EQ(fi_trywait(w.fabric, fids, 1), 0);
        pollfd p{fd, POLLIN, 0};
        EXPECT_EQ(poll(&p, 1, 0), 0); // cleared
    }
}

TEST(Wait, TryWaitRefusesWhileEntriesWait)
{
    Waiting w(FI_WAIT_FD);
    w.expect_message();
    w.send();
    struct fid* fids[] = {&w.rx->fid};
    EXPECT_TRUE(eventually([&] { return fi_trywait(w.fabric, fids, 1) == -FI_EAGAIN; }));
    EXPECT_EQ(fi_trywait(w.fabric, fids, 1), -FI_EAGAIN);
}

TEST(Wait, AMutexAndConditionWakeTheApplication)
{
    Waiting w(FI_WAIT_MUTEX_COND);
    fi_mutex_cond pair{};
    ASSERT_EQ(fi_control(&w.rx->fid, FI_GETWAIT, &pair), 0);
    w.expect_message();
    std::thread sender([&] { w.send(); });
    fi_cq_tagged_entry entry{};
    struct fid* fids[] = {&w.rx->fid};
    ssize_t got = 0;
    while ((got = fi_cq_read(w.rx, &entry, 1)) == -FI_EAGAIN) {
        pthread_mutex_lock(pair.mutex);
        timespec end{};
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += 10;
        int timed_out = 0;
        if (fi_trywait(w.fabric, fids, 1) == 0)
            timed_out = pthread_cond_timedwait(pair.cond, pair.mutex, &end);
        pthread_mutex_unlock(pair.mutex);
        ASSERT_EQ(timed_out, 0);
    }
    EXPECT_EQ(got, 1);
    sender.join();
}

TEST(Wait, AutomaticProgressNeedsNoCallsOfTheReceiver)
{
    Wishes wishes;
    wishes.progress = FI_PROGRESS_AUTO;
    Waiting w(FI_WAIT_NONE, wishes);
    static char big_in[200000], big_out[200000];
    std::memset(big_out, 9, sizeof(big_out));
    ASSERT_EQ(fi_trecv(w.b, big_in, sizeof(big_in), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    ASSERT_EQ(fi_tsend(w.a, big_out, sizeof(big_out), nullptr, 1, 1, nullptr), 0);
    // No thread reads a queue: the bytes arrive all the same.
    EXPECT_TRUE(
        eventually([&] { return std::atomic_ref(big_in[sizeof(big_in) - 1]).load(std::memory_order_acquire) == 9; }));
}

struct Set {
    explicit Set(fid_fabric* fabric, fi_wait_obj wait)
    {
        fi_wait_attr attr{};
        attr.wait_obj = wait;
        Objects::must(fi_wait_open(fabric, &attr, &set));
    }
    fid_wait* set = nullptr;
};

TEST(WaitSet, IsWokenByEachMember)
{
    for (fi_wait_obj wait : {FI_WAIT_UNSPEC, FI_WAIT_FD}) {
        Objects o;
        Set s(o.fabric, wait);
        fid_cq* tx = o.open_queue();
        fid_cq* rx = o.open_queue(FI_WAIT_SET, FI_CQ_FORMAT_CONTEXT, 0, s.set);
        fid_cntr* counter = o.open_counter(FI_WAIT_SET, s.set);
        fid_ep* a = o.add(tx, tx);
        fid_ep* b = o.add(rx, rx);
        EXPECT_EQ(fi_wait(s.set, 10), -FI_ETIMEDOUT);
        EXPECT_EQ(fi_close(&s.set->fid), -FI_EBUSY);
        fi_cntr_add(counter, 1);
        EXPECT_EQ(fi_wait(s.set, 10000), 0);
        EXPECT_EQ(fi_cntr_read(counter), 1u);
        EXPECT_EQ(fi_wait(s.set, 10), -FI_ETIMEDOUT);
        char in[8], out[8] = {};
        Objects::post(rx, [&] { return fi_trecv(b, in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, in); });
        std::thread sender([&] { Objects::post(tx, [&] { return fi_tinject(a, out, 8, 1, 1); }); });
        EXPECT_EQ(fi_wait(s.set, 10000), 0);
        sender.join();
        fi_cq_entry entry;
        EXPECT_EQ(fi_cq_read(rx, &entry, 1), 1);
        if (wait == FI_WAIT_FD) {
            int fd = -1;
            ASSERT_EQ(fi_control(&s.set->fid, FI_GETWAIT, &fd), 0);
            struct fid* fids[] = {&s.set->fid};
            EXPECT_EQ(fi_trywait(o.fabric, fids, 1), 0);
            fi_cntr_add(counter, 1);
            pollfd p{fd, POLLIN, 0};
            EXPECT_EQ(poll(&p, 1, 10000), 1);
        }
        // The set goes last of all but the fabric: close its members first.
        for (fid_ep* ep : o.endpoints)
            EXPECT_EQ(fi_close(&ep->fid), 0);
        o.endpoints.clear();
        for (struct fid* object : o.others)
            EXPECT_EQ(fi_close(object), 0);
        o.others.clear();
        EXPECT_EQ(fi_close(&s.set->fid), 0);
    }
}

enum class When { before, between, after };
enum class Entrance { sread, cntr_wait, wait, trywait, trywait_set };

/// Combinations that the interface has and that differ: fi_cq_sread is not for wait sets (fi_cq(3)), and only the
/// application can be between its look and its sleep.
bool applies(fi_wait_obj kind, When when, Entrance way)
{
    switch (way) {
    case Entrance::sread: return kind != FI_WAIT_SET && when != When::between;
    case Entrance::cntr_wait: return when != When::between;
    case Entrance::wait: return kind == FI_WAIT_SET && when != When::between;
    case Entrance::trywait: return kind == FI_WAIT_FD;
    case Entrance::trywait_set: return kind == FI_WAIT_SET;
    }
    return false;
}

/// Waits as fi_poll(3) describes it, for as long as there is nothing. `between` runs after the first look.
template <class Between>
void poll_descriptor(fid_fabric* fabric, struct fid* fid, int patience, Between&& between)
{
    int fd = -1;
    ASSERT_EQ(fi_control(fid, FI_GETWAIT, &fd), 0);
    bool found = false;
    for (bool first = true; !found; first = false) {
        found = fi_trywait(fabric, &fid, 1) == -FI_EAGAIN;
        if (first)
            between();
        pollfd p{fd, POLLIN, 0};
        if (!found)
            ASSERT_EQ(poll(&p, 1, patience), 1);
    }
}

/// A message before, within or after the beginning of the wait ends it. `set`: of `fabric`, or null.
void expect_end_of_wait(fi_wait_obj kind, When when, Entrance way, fid_wait* set, fid_fabric* fabric)
{
    constexpr int patience = 10000;
    Waiting w(kind, {}, set);
    w.expect_message();
    std::atomic<pid_t> waiter{0};
    std::thread sender;
    if (when == When::before)
        w.send();
    if (when == When::after)
        sender = std::thread([&] {
            EXPECT_TRUE(eventually([&] { return waiter != 0 && is_asleep(waiter); }));
            w.send();
        });
    fi_cq_tagged_entry entry{};
    waiter = gettid();
    switch (way) {
    case Entrance::sread: EXPECT_EQ(fi_cq_sread(w.rx, &entry, 1, nullptr, patience), 1); break;
    case Entrance::cntr_wait: EXPECT_EQ(fi_cntr_wait(w.received, 1, patience), 0); break;
    case Entrance::wait: EXPECT_EQ(fi_wait(set, patience), 0); break;
    case Entrance::trywait:
    case Entrance::trywait_set:
        poll_descriptor(set != nullptr ? fabric : w.fabric, set != nullptr ? &set->fid : &w.rx->fid, patience, [&] {
            if (when == When::between)
                w.send();
        });
    }
    if (sender.joinable())
        sender.join();
    if (way != Entrance::sread)
        EXPECT_EQ(fi_cq_read(w.rx, &entry, 1), 1);
    EXPECT_EQ(entry.op_context, w.in);
}

/// Every way to wait, and something that comes before the wait, between its look and its sleep, and in its sleep.
TEST(Wait, WhateverComesWheneverItComesEndsEveryKindOfWait)
{
    for (fi_wait_obj kind : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_SET})
        for (When when : {When::before, When::between, When::after})
            for (Entrance way :
                 {Entrance::sread, Entrance::cntr_wait, Entrance::wait, Entrance::trywait, Entrance::trywait_set}) {
                if (!applies(kind, when, way))
                    continue;
                SCOPED_TRACE(testing::Message() << "kind " << kind << " when " << int(when) << " way " << int(way));
                Objects base;
                fid_wait* set = nullptr;
                if (kind == FI_WAIT_SET) {
                    fi_wait_attr attr{};
                    attr.wait_obj = FI_WAIT_FD;
                    ASSERT_EQ(fi_wait_open(base.fabric, &attr, &set), 0);
                }
                expect_end_of_wait(kind, when, way, set, base.fabric);
                if (set != nullptr)
                    EXPECT_EQ(fi_close(&set->fid), 0);
            }
}

/// As with a provider whose reads sleep in poll(2): a thread that blocks can be cancelled, and what it has used can be
/// closed.
TEST(Wait, AThreadThatBlocksMayBeCancelled)
{
    Waiting w(FI_WAIT_UNSPEC);
    fi_eq_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    fid_eq* eq = nullptr;
    fid_wait* set = nullptr;
    ASSERT_EQ(fi_eq_open(w.fabric, &attr, &eq, nullptr), 0);
    ASSERT_EQ(fi_wait_open(w.fabric, nullptr, &set), 0);
    const std::function<void()> blocks[] = {
        [&] { fi_cq_sread(w.rx, w.in, 1, nullptr, -1); },
        [&] { fi_cntr_wait(w.received, 1, -1); },
        [&] { fi_eq_sread(eq, nullptr, nullptr, 0, -1, 0); },
        [&] { fi_wait(set, -1); },
    };
    for (const auto& block : blocks) {
        std::atomic<pid_t> id{0};
        std::thread blocked([&] {
            id = gettid();
            block();
        });
        EXPECT_TRUE(eventually([&] { return id != 0 && sleeps(id); }));
        EXPECT_EQ(pthread_cancel(blocked.native_handle()), 0);
        blocked.join();
    }
    EXPECT_EQ(fi_close(&set->fid), 0);
    EXPECT_EQ(fi_close(&eq->fid), 0);
    w.expect_message(); // no lock was left behind
    w.send();
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_sread(w.rx, &entry, 1, nullptr, 10000), 1);
}

TEST(Wait, AQueueWithoutAWaitObjectHasNothingToSignal)
{
    Waiting none(FI_WAIT_NONE);
    EXPECT_EQ(fi_cq_signal(none.rx), -FI_ENOSYS);
    Waiting some(FI_WAIT_UNSPEC);
    EXPECT_EQ(fi_cq_signal(some.rx), 0);
}

TEST(Wait, NothingMaySleepForNothing)
{
    Waiting w(FI_WAIT_NONE);
    EXPECT_EQ(fi_trywait(w.fabric, nullptr, 0), 0);
    EXPECT_EQ(fi_trywait(w.fabric, nullptr, 1), -FI_EINVAL);
    EXPECT_EQ(fi_trywait(w.fabric, nullptr, -1), -FI_EINVAL);
}

unsigned progress_threads()
{
    unsigned count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        count += name == "tofu-progress";
    }
    return count;
}

/// A descriptor of an event queue needs a thread for the joins of its endpoints, and no longer than these live.
TEST(Wait, TheThreadBehindJoinsEndsWithTheirEndpoint)
{
    Wishes wishes;
    wishes.caps |= FI_COLLECTIVE;
    Objects o(wishes);
    fid_cq* const cq = o.open_queue();
    fi_eq_attr attr{};
    attr.wait_obj = FI_WAIT_FD;
    fid_eq* eq = nullptr;
    ASSERT_EQ(fi_eq_open(o.fabric, &attr, &eq, nullptr), 0);
    fid_ep* ep = nullptr;
    Objects::must(fi_endpoint(o.domain, o.info, &ep, nullptr));
    for (struct fid* const bound : {&o.av->fid, &eq->fid})
        Objects::must(fi_ep_bind(ep, bound, 0));
    Objects::must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    Objects::must(fi_enable(ep));
    char name[64];
    std::size_t length = sizeof name;
    Objects::must(fi_getname(&ep->fid, name, &length));
    ASSERT_EQ(fi_av_insert(o.av, name, 1, nullptr, 0, nullptr), 1);
    EXPECT_EQ(progress_threads(), 0u);
    for (unsigned round = 0; round < 2; round++) {
        fi_av_set_attr range{};
        range.stride = 1;
        fid_av_set* members = nullptr;
        Objects::must(fi_av_set(o.av, &range, &members, nullptr));
        fid_mc* group = nullptr;
        Objects::must(fi_join_collective(ep, FI_ADDR_NOTAVAIL, members, 0, &group, nullptr));
        std::uint32_t event = 0;
        fi_eq_entry entry{};
        EXPECT_EQ(fi_eq_sread(eq, &event, &entry, sizeof entry, 10000, 0), static_cast<ssize_t>(sizeof entry));
        EXPECT_EQ(progress_threads(), 1u);
        Objects::must(fi_close(&group->fid));
        Objects::must(fi_close(&members->fid));
    }
    EXPECT_EQ(fi_close(&ep->fid), 0);
    EXPECT_EQ(progress_threads(), 0u);
    EXPECT_EQ(fi_close(&eq->fid), 0);
}

void expect_poll_set_works(Waiting& w, fid_domain* domain)
{
    fi_poll_attr attr{};
    fid_poll* set = nullptr;
    ASSERT_EQ(fi_poll_open(domain, &attr, &set), 0);
    int queue_context = 0;
    w.rx->fid.context = &queue_context;
    int counter_context = 0;
    w.received->fid.context = &counter_context;
    ASSERT_EQ(fi_poll_add(set, &w.rx->fid, 0), 0);
    ASSERT_EQ(fi_poll_add(set, &w.received->fid, 0), 0);
    EXPECT_EQ(fi_close(&set->fid), -FI_EBUSY);
    void* contexts[2] = {};
    EXPECT_EQ(fi_poll(set, contexts, 2), 0);
    w.expect_message();
    w.send();
    // The message may arrive between the looks at the one and at the other.
    bool told[2] = {};
    EXPECT_TRUE(eventually([&] {
        for (int i = fi_poll(set, contexts, 2); i > 0; i--)
            told[contexts[i - 1] == &counter_context] = true;
        return told[0] && told[1];
    }));
    EXPECT_EQ(fi_poll(set, contexts, 2), 1); // the counter has not changed since
    EXPECT_EQ(contexts[0], &queue_context);
    EXPECT_EQ(fi_poll(set, contexts, 1), 1);
    ASSERT_EQ(fi_poll_del(set, &w.received->fid, 0), 0);
    EXPECT_EQ(fi_poll_del(set, &w.received->fid, 0), -FI_EINVAL);
    ASSERT_EQ(fi_poll_del(set, &w.rx->fid, 0), 0);
    EXPECT_EQ(fi_close(&set->fid), 0);
}

TEST(PollSet, TellsWhichHaveSomething)
{
    Waiting w(FI_WAIT_NONE);
    expect_poll_set_works(w, w.domain);
}

/// fi_poll(3) does not restrict the members, and no other provider does.
TEST(PollSet, TakesMembersOfAnotherDomain)
{
    Waiting w(FI_WAIT_NONE);
    fid_domain* other = nullptr;
    ASSERT_EQ(fi_domain(w.fabric, w.info, &other, nullptr), 0);
    expect_poll_set_works(w, other);
    EXPECT_EQ(fi_close(&other->fid), 0);
}

/// "will not return until either an event has been read ... or an error or timeout occurs": each waiter,
/// where none of them takes the event away.
TEST(Wait, AnEventEndsTheWaitOfAllThatPeek)
{
    Objects o;
    fi_eq_attr attr{};
    attr.flags = FI_WRITE;
    attr.wait_obj = FI_WAIT_UNSPEC;
    fid_eq* eq = nullptr;
    ASSERT_EQ(fi_eq_open(o.fabric, &attr, &eq, nullptr), 0);
    std::atomic<int> waiting{0};
    std::atomic<int> in_time{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++)
        threads.emplace_back([&] {
            std::uint32_t event = 0;
            fi_eq_entry entry{};
            waiting++;
            const auto start = Clock::now();
            EXPECT_EQ(fi_eq_sread(eq, &event, &entry, sizeof(entry), 4000, FI_PEEK), sizeof(entry));
            in_time += Clock::now() - start < std::chrono::seconds(3);
        });
    EXPECT_TRUE(eventually([&] { return waiting == 3; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); // asleep by now; none need be
    fi_eq_entry entry{};
    EXPECT_EQ(fi_eq_write(eq, 1, &entry, sizeof(entry), 0), static_cast<ssize_t>(sizeof(entry)));
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(in_time, 3);
    EXPECT_EQ(fi_close(&eq->fid), 0);
}

} // namespace
