// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Each thing that can be waited for, with each wait object and each call that waits, and with each kind of progress: a
// thread that waits for this one object alone is woken, whatever makes the event, and the wait makes the progress that
// the event needs.
#include <gtest/gtest.h>

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <rdma/fi_collective.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_trigger.h>

#include "prov/lib/objects.h"

// fi_av_bind, wait sets and poll sets: deprecated since libfabric 2, and still there.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

using namespace tofu::test;

constexpr int patience = 10000; ///< milliseconds

enum class Kind : std::uint8_t { queue, counter, events };

// --- how the thread waits

enum class Call : std::uint8_t { blocking, descriptor, condition, set, poll };
struct Way {
    const char* name;
    fi_wait_obj object;
    fi_wait_obj of_set; ///< FI_WAIT_NONE: it is in no wait set
    Call call;
};
void PrintTo(const Way& way, std::ostream* out)
{
    *out << way.name;
}
constexpr Way ways[] = {
    {"Unspec", FI_WAIT_UNSPEC, FI_WAIT_NONE, Call::blocking},
    {"Yield", FI_WAIT_YIELD, FI_WAIT_NONE, Call::blocking},
    {"Descriptor", FI_WAIT_FD, FI_WAIT_NONE, Call::blocking},
    {"DescriptorByPoll", FI_WAIT_FD, FI_WAIT_NONE, Call::descriptor},
    {"Condition", FI_WAIT_MUTEX_COND, FI_WAIT_NONE, Call::blocking},
    {"ConditionByItself", FI_WAIT_MUTEX_COND, FI_WAIT_NONE, Call::condition},
    {"SetUnspec", FI_WAIT_SET, FI_WAIT_UNSPEC, Call::set},
    {"SetYield", FI_WAIT_SET, FI_WAIT_YIELD, Call::set},
    {"SetDescriptor", FI_WAIT_SET, FI_WAIT_FD, Call::set},
    {"SetDescriptorByPoll", FI_WAIT_SET, FI_WAIT_FD, Call::descriptor},
    {"SetCondition", FI_WAIT_SET, FI_WAIT_MUTEX_COND, Call::set},
    {"SetConditionByItself", FI_WAIT_SET, FI_WAIT_MUTEX_COND, Call::condition},
    {"PollSet", FI_WAIT_NONE, FI_WAIT_NONE, Call::poll},
};

struct Model {
    const char* name;
    fi_threading threading;
    fi_progress data;
    fi_progress control;
};
void PrintTo(const Model& model, std::ostream* out)
{
    *out << model.name;
}
constexpr Model models[] = {
    {"Manual", FI_THREAD_SAFE, FI_PROGRESS_MANUAL, FI_PROGRESS_MANUAL},
    {"ManualSerial", FI_THREAD_DOMAIN, FI_PROGRESS_MANUAL, FI_PROGRESS_MANUAL},
    {"Auto", FI_THREAD_SAFE, FI_PROGRESS_AUTO, FI_PROGRESS_AUTO},
    {"AutoControl", FI_THREAD_SAFE, FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO},
};

Wishes wishes_of(const Model& model)
{
    Wishes wishes;
    wishes.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_RMA_EVENT | FI_TRIGGER | FI_COLLECTIVE;
    wishes.threading = model.threading;
    wishes.progress = model.data;
    wishes.control = model.control;
    wishes.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    return wishes;
}

// --- the two sides

/// What is closed behind the domain.
struct Lasting {
    Lasting(const Way* way, Kind waited)
    {
        fi_info* const info = must_find([](fi_info&) {});
        Objects::must(fi_fabric(info->fabric_attr, &fabric, nullptr));
        fi_freeinfo(info);
        if (way != nullptr && way->of_set != FI_WAIT_NONE) {
            fi_wait_attr attr{};
            attr.wait_obj = way->of_set;
            Objects::must(fi_wait_open(fabric, &attr, &set));
        }
        fi_eq_attr attr{};
        attr.flags = FI_WRITE;
        attr.wait_obj = way != nullptr && waited == Kind::events ? way->object : FI_WAIT_NONE;
        attr.wait_set = attr.wait_obj == FI_WAIT_SET ? set : nullptr;
        Objects::must(fi_eq_open(fabric, &attr, &eq, nullptr));
    }
    Lasting(const Lasting&) = delete;
    ~Lasting()
    {
        EXPECT_EQ(fi_close(&eq->fid), 0);
        if (set != nullptr)
            EXPECT_EQ(fi_close(&set->fid), 0);
        EXPECT_EQ(fi_close(&fabric->fid), 0);
    }
    fid_fabric* fabric = nullptr;
    fid_wait* set = nullptr;
    fid_eq* eq = nullptr;
};

/// A domain with one endpoint, and what it is bound to.
struct Side : Objects {
    Side(const Model& model, const Way* way, Kind waited, const Lasting& lasting)
        : Objects(wishes_of(model), lasting.fabric), set(lasting.set), eq(lasting.eq)
    {
        const auto object_of = [&](Kind kind) { return way != nullptr && kind == waited ? way->object : FI_WAIT_NONE; };
        const auto set_of = [&](Kind kind) { return object_of(kind) == FI_WAIT_SET ? set : nullptr; };
        cq = open_queue(object_of(Kind::queue), FI_CQ_FORMAT_CONTEXT, 0, set_of(Kind::queue));
        counter = open_counter(object_of(Kind::counter), set_of(Kind::counter));
        unwaited = open_counter(FI_WAIT_NONE);
        must(fi_endpoint(domain, info, &ep, nullptr));
        endpoints.push_back(ep);
        must(fi_ep_bind(ep, &av->fid, 0));
        must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
        must(fi_ep_bind(ep, &eq->fid, 0));
    }
    ~Side()
    {
        if (group != nullptr)
            EXPECT_EQ(fi_close(&group->fid), 0);
        for (fid_ep* endpoint : endpoints) // before regions and vectors, which report to the event queue
            EXPECT_EQ(fi_close(&endpoint->fid), 0);
        endpoints.clear();
        for (struct fid* object : first)
            EXPECT_EQ(fi_close(object), 0);
    }
    /// Counts what comes in by `counts`, else by another counter.
    void enable(fid_cntr* counts)
    {
        must(fi_ep_bind(ep, &counts->fid, FI_RECV | FI_REMOTE_WRITE));
        must(fi_enable(ep));
    }
    void know(Side& a, Side& b)
    {
        for (Side* side : {&a, &b}) {
            char name[64];
            std::size_t length = sizeof(name);
            must(fi_getname(&side->ep->fid, name, &length));
            EXPECT_EQ(fi_av_insert(av, name, 1, nullptr, 0, nullptr), 1);
        }
    }
    void join()
    {
        fi_av_set_attr attr{};
        attr.end_addr = 1;
        attr.stride = 1;
        attr.count = 2;
        fid_av_set* members = nullptr;
        must(fi_av_set(av, &attr, &members, nullptr));
        fi_addr_t address = FI_ADDR_NOTAVAIL;
        must(fi_av_set_addr(members, &address));
        must(fi_join_collective(ep, address, members, 0, &group, nullptr));
        must(fi_close(&members->fid));
    }
    [[nodiscard]] bool joined() const
    {
        std::uint32_t event = 0;
        fi_eq_entry entry{};
        return fi_eq_read(eq, &event, &entry, sizeof(entry), 0) > 0 && event == FI_JOIN_COMPLETE;
    }
    [[nodiscard]] bool has_entry() const
    {
        fi_cq_entry entry{};
        return fi_cq_read(cq, &entry, 1) == 1;
    }

    fid_wait* const set;
    fid_eq* const eq;
    fid_cq* cq = nullptr;
    fid_cntr* counter = nullptr; ///< the one that may be waited for
    fid_cntr* unwaited = nullptr;
    fid_ep* ep = nullptr;
    fid_mc* group = nullptr;
    std::vector<struct fid*> first; ///< closed behind the endpoint and before all others
    std::array<char, 200000> bytes{};
};

/// `a` waits; `b` is driven by another thread.
struct World {
    World(const Way& way, const Model& model, Kind kind)
        : way(way), kind(kind), lasting_a(&way, kind), lasting_b(nullptr, kind), a(model, &way, kind, lasting_a),
          b(models[0], nullptr, kind, lasting_b)
    {
    }
    void open(fid_cntr* counts = nullptr)
    {
        a.enable(counts != nullptr ? counts : a.counter);
        b.enable(b.counter);
        a.know(a, b);
        b.know(a, b);
    }
    void form_group()
    {
        a.join();
        b.join();
        bool there[2] = {};
        EXPECT_TRUE(eventually([&] {
            there[0] = there[0] || a.joined();
            there[1] = there[1] || b.joined();
            return there[0] && there[1];
        }));
    }
    /// The other thread goes on with what its side owes.
    void drive_b(bool (*ended)(World&))
    {
        EXPECT_TRUE(eventually([&] { return over || ended(*this); }));
    }

    const Way& way;
    const Kind kind;
    const Lasting lasting_a, lasting_b;
    Side a, b;
    std::atomic<bool> over{false}; ///< the waiter has got what it waits for
    std::uint64_t word = 0, value = 7;
    fid_mr* region = nullptr;
    fi_op_cntr addition{};
    fi_deferred_work work{};
};

// --- what happens

struct Happening {
    const char* name;
    Kind kind;
    bool alone; ///< the other thread makes no call for the waiter's domain
    void (*prepare)(World&);
    void (*happen)(World&); ///< in the other thread, when the waiter sleeps or is about to
    bool (*seen)(World&);   ///< takes it
};

bool entry_of_a(World& w)
{
    return w.a.has_entry();
}
bool counted_by_a(World& w)
{
    return fi_cntr_read(w.a.counter) != 0;
}
bool event_of_a(World& w)
{
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    return fi_eq_read(w.a.eq, &event, &entry, sizeof(entry), 0) > 0;
}
bool error_of_a(World& w)
{
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    fi_eq_err_entry error{};
    return fi_eq_read(w.a.eq, &event, &entry, sizeof(entry), 0) == -FI_EAVAIL && fi_eq_readerr(w.a.eq, &error, 0) > 0;
}

template <std::size_t size>
void receive(World& w)
{
    w.open();
    Objects::post(w.a.cq, [&] { return fi_recv(w.a.ep, w.a.bytes.data(), size, nullptr, FI_ADDR_UNSPEC, nullptr); });
}
template <std::size_t size>
void send(World& w)
{
    Objects::post(w.b.cq, [&] { return fi_send(w.b.ep, w.b.bytes.data(), size, nullptr, 0, nullptr); });
    w.drive_b([](World& world) { return world.b.has_entry(); });
}
/// The waiter's own send, which ends when the other side has fetched it.
void begin_send(World& w)
{
    w.open();
    Objects::post(w.a.cq, [&] { return fi_send(w.a.ep, w.a.bytes.data(), w.a.bytes.size(), nullptr, 1, nullptr); });
}
void take_it(World& w)
{
    Objects::post(
        w.b.cq, [&] { return fi_recv(w.b.ep, w.b.bytes.data(), w.b.bytes.size(), nullptr, FI_ADDR_UNSPEC, nullptr); });
    w.drive_b([](World& world) { return world.b.has_entry(); });
}
void begin_barrier(World& w)
{
    w.open();
    w.form_group();
    EXPECT_EQ(fi_barrier(w.a.ep, fi_mc_addr(w.a.group), nullptr), 0);
}
void end_barrier(World& w)
{
    EXPECT_EQ(fi_barrier(w.b.ep, fi_mc_addr(w.b.group), nullptr), 0);
    w.drive_b([](World& world) { return world.b.has_entry(); });
}
void register_word(World& w)
{
    w.open();
    Objects::must(fi_mr_reg(w.a.domain, &w.word, sizeof(w.word), FI_REMOTE_WRITE, 0, 0, 0, &w.region, nullptr));
    w.a.first.push_back(&w.region->fid);
}
void write_word(World& w)
{
    const auto address = reinterpret_cast<std::uint64_t>(&w.word);
    Objects::post(w.b.cq, [&] {
        return fi_write(w.b.ep, &w.value, sizeof(w.value), nullptr, 0, address, fi_mr_key(w.region), nullptr);
    });
    w.drive_b([](World& world) { return world.b.has_entry(); });
}
/// The counter is bound to no endpoint: deferred work adds to it when a message has been counted elsewhere.
void defer(World& w)
{
    w.open(w.a.unwaited);
    w.addition = {w.a.counter, 1};
    w.work.threshold = 1;
    w.work.triggering_cntr = w.a.unwaited;
    w.work.op_type = FI_OP_CNTR_ADD;
    w.work.op.cntr = &w.addition;
    Objects::post(w.a.cq, [&] { return fi_recv(w.a.ep, w.a.bytes.data(), 8, nullptr, FI_ADDR_UNSPEC, nullptr); });
    EXPECT_EQ(fi_control(&w.a.domain->fid, FI_QUEUE_WORK, &w.work), 0);
}
void begin_join(World& w)
{
    w.open();
    w.a.join();
}
void end_join(World& w)
{
    w.b.join();
    w.drive_b([](World& world) { return world.b.joined(); });
}
/// The waiter sleeps before there is an endpoint that its queue could poll.
void open_and_join(World& w)
{
    w.open();
    w.a.join();
    end_join(w);
}
void give_up_join(World& w)
{
    w.b.join();
    EXPECT_EQ(fi_close(&w.b.group->fid), 0);
    w.b.group = nullptr;
    w.drive_b([](World& world) { return world.b.joined(); });
}
void open_vector(World& w)
{
    fi_av_attr attr{};
    attr.flags = FI_EVENT;
    fid_av* vector = nullptr;
    Objects::must(fi_av_open(w.a.domain, &attr, &vector, nullptr));
    Objects::must(fi_av_bind(vector, &w.a.eq->fid, 0));
    w.a.first.push_back(&vector->fid);
}
void insert(World& w)
{
    EXPECT_EQ(fi_av_insert(reinterpret_cast<fid_av*>(w.a.first.back()), nullptr, 0, nullptr, 0, nullptr), 0);
}
void add_to_counter(World& w)
{
    fi_cntr_add(w.a.counter, 1);
}
void bind_domain(World& w)
{
    Objects::must(fi_domain_bind(w.a.domain, &w.a.eq->fid, FI_REG_MR));
}

constexpr auto nothing = [](World&) {};
constexpr Happening happenings[] = {
    {"a short message", Kind::queue, true, receive<32>, send<32>, entry_of_a},
    {"a long message", Kind::queue, true, receive<200000>, send<200000>, entry_of_a},
    {"the end of a send", Kind::queue, true, begin_send, take_it, entry_of_a},
    {"a barrier", Kind::queue, true, begin_barrier, end_barrier, entry_of_a},
    {"a counted message", Kind::counter, true, receive<32>, send<32>, counted_by_a},
    {"a counted long message", Kind::counter, true, receive<200000>, send<200000>, counted_by_a},
    {"a remote write", Kind::counter, true, register_word, write_word, counted_by_a},
    {"deferred work", Kind::counter, true, defer, send<8>, counted_by_a},
    {"fi_cntr_add", Kind::counter, false, [](World& w) { w.open(); }, add_to_counter, counted_by_a},
    {"a join", Kind::events, true, begin_join, end_join, event_of_a},
    {"a join that the peer gives up", Kind::events, true, begin_join, give_up_join, error_of_a},
    {"a join of an endpoint that comes later", Kind::events, false, nothing, open_and_join, event_of_a},
    {"FI_AV_COMPLETE", Kind::events, false, open_vector, insert, event_of_a},
    {"FI_MR_COMPLETE", Kind::events, false, bind_domain,
     [](World& w) {
         Objects::must(fi_mr_reg(w.a.domain, &w.word, sizeof(w.word), FI_REMOTE_WRITE, 0, 0, 0, &w.region, nullptr));
         w.a.first.push_back(&w.region->fid);
     },
     event_of_a},
    {"fi_eq_write", Kind::events, false, nothing,
     [](World& w) {
         fi_eq_entry entry{};
         EXPECT_EQ(fi_eq_write(w.a.eq, FI_NOTIFY, &entry, sizeof(entry), 0), static_cast<ssize_t>(sizeof(entry)));
     },
     event_of_a},
};

// --- the wait

struct fid* waited_object(World& w)
{
    switch (w.kind) {
    case Kind::queue: return &w.a.cq->fid;
    case Kind::counter: return &w.a.counter->fid;
    case Kind::events: break;
    }
    return &w.a.eq->fid;
}

/// A blocking call; it takes nothing. True: the object has something.
bool block(World& w)
{
    switch (w.kind) {
    case Kind::queue: {
        // No room for an entry: the call makes progress and ends when there is one, which stays.
        const ssize_t got = fi_cq_sread(w.a.cq, nullptr, 0, nullptr, patience);
        return got == -FI_EAGAIN || got == 0;
    }
    case Kind::counter: return fi_cntr_wait(w.a.counter, 1, patience) == 0;
    case Kind::events: break;
    }
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    const ssize_t got = fi_eq_sread(w.a.eq, &event, &entry, sizeof(entry), patience, FI_PEEK);
    return got > 0 || got == -FI_EAVAIL;
}

/// As fi_poll(3) has it: it looks (fi_trywait), and sleeps where that is safe. False: nothing has woken it in time.
bool look_and_sleep(World& w, struct fid* waited)
{
    if (w.way.call == Call::descriptor) {
        int descriptor = -1;
        EXPECT_EQ(fi_control(waited, FI_GETWAIT, &descriptor), 0);
        pollfd p{descriptor, POLLIN, 0};
        return fi_trywait(w.a.fabric, &waited, 1) != 0 || poll(&p, 1, patience) == 1;
    }
    fi_mutex_cond pair{};
    EXPECT_EQ(fi_control(waited, FI_GETWAIT, &pair), 0);
    timespec end{};
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += patience / 1000;
    pthread_mutex_lock(pair.mutex);
    const bool woken =
        fi_trywait(w.a.fabric, &waited, 1) != 0 || pthread_cond_timedwait(pair.cond, pair.mutex, &end) == 0;
    pthread_mutex_unlock(pair.mutex);
    return woken;
}

bool wait_once(World& w)
{
    switch (w.way.call) {
    case Call::blocking: return block(w);
    case Call::set: return fi_wait(w.a.set, patience) == 0;
    case Call::descriptor:
    case Call::condition: return look_and_sleep(w, w.a.set != nullptr ? &w.a.set->fid : waited_object(w));
    case Call::poll: break;
    }
    fi_poll_attr attr{};
    fid_poll* set = nullptr;
    Objects::must(fi_poll_open(w.a.domain, &attr, &set));
    Objects::must(fi_poll_add(set, waited_object(w), 0));
    void* context = nullptr;
    const bool came = eventually([&] { return fi_poll(set, &context, 1) == 1; });
    Objects::must(fi_poll_del(set, waited_object(w), 0));
    Objects::must(fi_close(&set->fid));
    return came;
}

/// Whether a thread of this process sleeps in the kernel.
bool sleeps(pid_t thread)
{
    char path[64], line[512] = {};
    std::snprintf(path, sizeof(path), "/proc/self/task/%d/stat", static_cast<int>(thread));
    std::FILE* const file = std::fopen(path, "r");
    if (file == nullptr)
        return false;
    const bool read = std::fgets(line, sizeof(line), file) != nullptr;
    std::fclose(file);
    const char* const name_end = read ? std::strrchr(line, ')') : nullptr;
    return name_end != nullptr && name_end[1] == ' ' && name_end[2] == 'S';
}

void expect_woken(const Happening& what, const Way& way, const Model& model, bool before)
{
    SCOPED_TRACE(testing::Message() << what.name << (before ? ", before the wait" : ", in the wait"));
    const auto w = std::make_unique<World>(way, model, what.kind);
    what.prepare(*w);
    std::atomic<pid_t> waiter{before ? 0 : -1};
    std::thread other([&] {
        // Most waits sleep by then; those that have not yet begun must end as well.
        const bool never_sleeps = way.call == Call::poll || way.object == FI_WAIT_YIELD || way.of_set == FI_WAIT_YIELD;
        for (int i = 0; i < 100 && !(waiter > 0 && (never_sleeps || sleeps(waiter))) && !before; i++)
            sched_yield();
        what.happen(*w);
        waiter = -2;
    });
    if (!before)
        waiter = gettid();
    else if (!what.alone && what.happen != open_and_join) // else it may need polls of ours to get to its end
        EXPECT_TRUE(eventually([&] { return waiter == -2; }));
    bool seen = false;
    for (int i = 0; i < 1000 && !seen; i++) {
        if (!wait_once(*w)) {
            ADD_FAILURE() << "not woken";
            break;
        }
        seen = what.seen(*w);
    }
    EXPECT_TRUE(seen);
    w->over = true;
    other.join();
}

class WaitMatrix : public testing::TestWithParam<std::tuple<Way, Model>> {};

std::string name_of(const testing::TestParamInfo<std::tuple<Way, Model>>& info)
{
    return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}
INSTANTIATE_TEST_SUITE_P(All, WaitMatrix, testing::Combine(testing::ValuesIn(ways), testing::ValuesIn(models)),
                         name_of);

TEST_P(WaitMatrix, WhateverHappensWakesAThreadThatWaitsForItAlone)
{
    const auto& [way, model] = GetParam();
    for (const Happening& what : happenings) {
        if (way.call == Call::poll && (what.kind == Kind::events || what.happen == add_to_counter))
            continue; // fi_poll(3): queues and counters, and changes since the last fi_cntr_add
        if (model.threading == FI_THREAD_DOMAIN && !what.alone)
            continue; // two threads in a domain whose calls come one at a time
        expect_woken(what, way, model, false);
        if (model.threading == FI_THREAD_SAFE && model.data == FI_PROGRESS_MANUAL &&
            model.control == FI_PROGRESS_MANUAL)
            expect_woken(what, way, model, true);
        if (HasFailure())
            return;
    }
}

/// A call that makes an event, while its thread holds the mutex of the wait object.
TEST(Wait, AnEventIsPostedByTheThreadThatHoldsTheMutex)
{
    Objects o;
    fi_eq_attr attr{};
    attr.wait_obj = FI_WAIT_MUTEX_COND;
    attr.flags = FI_WRITE;
    fid_eq* eq = nullptr;
    Objects::must(fi_eq_open(o.fabric, &attr, &eq, nullptr));
    fi_mutex_cond pair{};
    ASSERT_EQ(fi_control(&eq->fid, FI_GETWAIT, &pair), 0);
    std::atomic<bool> holds{false};
    std::thread waiter([&] {
        pthread_mutex_lock(pair.mutex);
        struct fid* fid = &eq->fid;
        EXPECT_EQ(fi_trywait(o.fabric, &fid, 1), 0);
        timespec end{};
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += patience / 1000;
        holds = true;
        EXPECT_EQ(pthread_cond_timedwait(pair.cond, pair.mutex, &end), 0);
        pthread_mutex_unlock(pair.mutex);
    });
    EXPECT_TRUE(eventually([&] { return holds.load(); }));
    pthread_mutex_lock(pair.mutex); // free once the waiter sleeps
    fi_eq_entry entry{};
    EXPECT_EQ(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0), static_cast<ssize_t>(sizeof(entry)));
    pthread_mutex_unlock(pair.mutex);
    waiter.join();
    EXPECT_EQ(fi_close(&eq->fid), 0);
}

} // namespace
