// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A peer that is stopped (SIGSTOP) holds up what goes to it, in its order, and nothing that goes to others: writes with
// CQ data, events that wait for credits, atomics behind a lock that is not given back, messages.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include <unistd.h>

#include "atomic/wide.h"
#include "mem/mr_directory.h"
#include "prov/lib/raw.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::wait_until;

enum : unsigned { pid_word = 700, posted_word, done_word, ready_word, second_base_word };

/// Rank 1: has no processor until the others let it go on.
void stop_here(const Rank& rank)
{
    rank.set(pid_word, static_cast<std::uint64_t>(getpid()));
    raise(SIGSTOP);
}

/// For the others, from when rank 1 has stopped until it goes on.
class Stopped {
  public:
    explicit Stopped(const Rank& rank)
    {
        EXPECT_TRUE(wait_until([&] {
            pid_ = static_cast<pid_t>(rank.get(pid_word));
            std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
            std::string number, name, state;
            stat >> number >> name >> state;
            return pid_ != 0 && state == "T";
        }));
    }
    Stopped(const Stopped&) = delete;
    Stopped& operator=(const Stopped&) = delete;
    ~Stopped() { go_on(); }
    void go_on()
    {
        if (pid_ != 0)
            kill(pid_, SIGCONT);
        pid_ = 0;
    }

  private:
    pid_t pid_ = 0;
};

/// Rank 0: posts, and knows operation and peer by the context.
struct Talker {
    explicit Talker(Session& session) : s(session) {}

    void take()
    {
        fi_cq_data_entry entry[16];
        const ssize_t n = fi_cq_read(s.cq, entry, 16);
        ASSERT_TRUE(n >= 0 || n == -FI_EAGAIN) << n;
        for (ssize_t i = 0; i < n; i++)
            ended.insert(entry[i].op_context);
    }
    std::size_t count(const void* context) const { return ended.count(const_cast<void*>(context)); }
    /// To a running peer: it is accepted, and ends.
    template <class Call>
    void expect_through(const char* what, Call&& call, bool silent = false)
    {
        SCOPED_TRACE(what);
        char context = 0;
        ssize_t ret = -FI_EAGAIN;
        ASSERT_TRUE(wait_until([&] { return ret = call(&context), take(), ret != -FI_EAGAIN; })) << "refused";
        ASSERT_EQ(ret, 0);
        ASSERT_TRUE(silent || wait_until([&] { return take(), count(&context) == 1; })) << "does not end";
        ended.erase(&context);
    }
    /// How many are accepted until none is any more.
    template <class Call>
    std::uint64_t until_refused(Call&& call, std::uint64_t most)
    {
        std::uint64_t accepted = 0;
        for (unsigned refused = 0; refused < 200 && accepted < most;) {
            const ssize_t ret = call(accepted);
            EXPECT_TRUE(ret == 0 || ret == -FI_EAGAIN) << fi_strerror(static_cast<int>(-ret));
            if (ret == 0) {
                accepted++;
                refused = 0;
            } else {
                refused++;
            }
            take();
        }
        EXPECT_LT(accepted, most);
        return accepted;
    }

    Session& s;
    std::multiset<void*> ended;
};

fi_msg_rma message_of(const iovec& local, const fi_rma_iov& remote, fi_addr_t to, void* context)
{
    return {&local, nullptr, 1, to, &remote, 1, context, 0};
}

/// Every way of RMA and an atomic, to rank 2.
void reach_others(Talker& x, const Window& there)
{
    static std::uint8_t bytes[1 << 20];
    fid_ep* const ep = x.s.ep;
    const std::uint64_t at = there.base, key = there.key;
    std::uint64_t one = 1;
    x.expect_through(
        "inject_write", [&](void*) { return fi_inject_write(ep, bytes, 8, 2, at, key); }, true);
    x.expect_through("write", [&](void* c) { return fi_write(ep, bytes, 8, nullptr, 2, at, key, c); });
    x.expect_through("long write", [&](void* c) { return fi_write(ep, bytes, sizeof bytes, nullptr, 2, at, key, c); });
    x.expect_through("read", [&](void* c) { return fi_read(ep, bytes, 8, nullptr, 2, at, key, c); });
    x.expect_through("long read", [&](void* c) { return fi_read(ep, bytes, 65536, nullptr, 2, at, key, c); });
    x.expect_through("writedata", [&](void* c) { return fi_writedata(ep, bytes, 8, nullptr, 7, 2, at, key, c); });
    x.expect_through(
        "inject_writedata", [&](void*) { return fi_inject_writedata(ep, bytes, 8, 8, 2, at, key); }, true);
    for (std::uint64_t flags : {FI_FENCE, FI_MORE, FI_DELIVERY_COMPLETE, FI_INJECT_COMPLETE}) {
        const iovec local{bytes, 300};
        const fi_rma_iov remote{at, 300, key};
        x.expect_through("writemsg", [&](void* c) {
            const fi_msg_rma msg = message_of(local, remote, 2, c);
            return fi_writemsg(ep, &msg, flags | FI_COMPLETION);
        });
    }
    x.expect_through("atomic",
                     [&](void* c) { return fi_atomic(ep, &one, 1, nullptr, 2, at, key, FI_UINT64, FI_SUM, c); });
    x.expect_through("loop",
                     [&](void* c) { return fi_atomic(ep, &one, 1, nullptr, 2, at, key, FI_UINT64, FI_MIN, c); });
}

/// Rank 1 and 2: takes `count` entries of CQ data, each number from `first` on once (their order is not promised).
void take_data(Session& s, std::uint64_t first, std::uint64_t count)
{
    std::set<std::uint64_t> seen;
    fi_cq_data_entry entry{};
    for (std::uint64_t n = 0; n < count; n++) {
        ASSERT_TRUE(s.next(entry));
        ASSERT_TRUE(entry.data - first < count && seen.insert(entry.data).second) << entry.data;
    }
}

void stop_a_target_of_data(const Rank& rank, std::uint64_t order)
{
    constexpr std::uint64_t before = 150; // more than twice round a ring: all of its memory has been reached
    alignas(65536) static std::uint8_t window[1 << 20];
    Options options;
    options.caps = FI_RMA | FI_ATOMIC;
    options.tx_order = order;
    Session s(rank, options);
    const auto peers = s.share(window, sizeof window);
    if (rank.number != 0) {
        take_data(s, 0, before);
        if (rank.number == 1) {
            stop_here(rank);
            ASSERT_TRUE(wait_until([&] { return rank.get(posted_word) != 0; }));
            take_data(s, 0, rank.get(posted_word));
            s.expect_silence();
        } else {
            take_data(s, 7, 2);
            ASSERT_TRUE(wait_until([&] { return fi_cq_read(s.cq, nullptr, 0), rank.get(done_word) != 0; }));
        }
        return;
    }
    Talker x(s);
    char to_stopped = 0, ignored = 0;
    const std::uint64_t word = 1;
    const auto write_data = [&](fi_addr_t to, std::uint64_t data, void* context) {
        return fi_writedata(s.ep, &word, 8, nullptr, data, to, peers[to].base, peers[to].key, context);
    };
    for (std::uint64_t n = 0; n < before; n++)
        for (fi_addr_t to : {1, 2})
            ASSERT_EQ(s.post([&] { return write_data(to, n, &ignored); }), 0);
    ASSERT_TRUE(wait_until([&] { return x.take(), x.count(&ignored) == 2 * before; }));
    {
        Stopped one(rank);
        const std::uint64_t posted =
            x.until_refused([&](std::uint64_t n) { return write_data(1, n, &to_stopped); }, 2000);
        const auto blocked_at = x.count(&to_stopped);
        EXPECT_LT(blocked_at, posted);
        reach_others(x, peers[2]);
        // What waits for the stopped one has its place: nothing to it goes by.
        EXPECT_EQ(fi_inject_write(s.ep, &word, 8, 1, peers[1].base, peers[1].key), -FI_EAGAIN);
        EXPECT_EQ(fi_read(s.ep, window, 8, nullptr, 1, peers[1].base, peers[1].key, &ignored), -FI_EAGAIN);
        EXPECT_EQ(x.count(&to_stopped), blocked_at);
        rank.set(posted_word, posted);
        one.go_on();
        EXPECT_TRUE(wait_until([&] { return x.take(), x.count(&to_stopped) == posted; })) << x.count(&to_stopped);
    }
    rank.set(done_word, 1);
}

TEST(StoppedPeer, WritesWithDataHoldUpThemselvesAlone)
{
    expect_processes(3, [](const Rank& rank) { stop_a_target_of_data(rank, 0); });
}

TEST(StoppedPeer, AlsoInOrderAndBeforeAnAdversary)
{
    for (const char* seed : {"3", "21"}) {
        setenv("TOFU_SIM_CHAOS", seed, 1);
        expect_processes(3, [](const Rank& rank) {
            stop_a_target_of_data(rank, FI_ORDER_SAS | FI_ORDER_RMA_WAW | FI_ORDER_RMA_RAW | FI_ORDER_ATOMIC_WAW);
        });
    }
    unsetenv("TOFU_SIM_CHAOS");
}

/// The holder of a lock word of rank 1's: never gives it back, and is never taken for dead.
class LockHolder {
  public:
    LockHolder(Session& s, const Window& there) : raw_(s, 1)
    {
        utofu_stadd_t directory = 0, area = 0;
        EXPECT_EQ(utofu_query_stadd(raw_.victim().target_vcq, directory_stag, &directory), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_stadd(raw_.victim().target_vcq, endpoint_stag(raw_.victim().index), &area),
                  UTOFU_SUCCESS);
        at_ = directory - area + directory::locks_offset + locks::index_of(there.base + there.key) * 8;
        EXPECT_EQ(raw_.cswap(at_, 0, token_), 0u);
    }
    /// Another token each time: it goes on working.
    void renew()
    {
        EXPECT_EQ(raw_.cswap(at_, token_, token_ + 2), token_);
        token_ += 2;
    }
    void release() { EXPECT_EQ(raw_.cswap(at_, token_, 0), token_); }

  private:
    RawPeer raw_;
    std::uint64_t at_ = 0;
    std::uint64_t token_ = 1;
};

/// A stopped holder of a lock at one peer blocks, for one lease, operations in order to that peer, and these
/// alone.
TEST(StoppedPeer, AtomicsBehindALockHoldUpThemselvesAlone)
{
    expect_processes(3, [](const Rank& rank) {
        alignas(65536) static std::uint8_t window[4096];
        Options options;
        options.caps = FI_RMA | FI_ATOMIC;
        options.tx_order = FI_ORDER_SAS | FI_ORDER_ATOMIC_WAW | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR;
        Session s(rank, options);
        const auto peers = s.share(window, sizeof window);
        if (rank.number != 0)
            return;
        Talker x(s);
        LockHolder holder(s, peers[1]);
        long double wide = 1;
        std::uint64_t one = 1, before = 0;
        char locked = 0, behind = 0;
        const auto sum = [&](fi_addr_t to, void* context) {
            return fi_atomic(s.ep, &one, 1, nullptr, to, peers[to].base + 64, peers[to].key, FI_UINT64, FI_SUM,
                             context);
        };
        ASSERT_EQ(fi_atomic(s.ep, &wide, 1, nullptr, 1, peers[1].base, peers[1].key, FI_LONG_DOUBLE, FI_SUM, &locked),
                  0);
        ASSERT_EQ(sum(1, &behind), 0);
        const auto renewing = [&](auto&& call) { return [&, call](void* c) { return holder.renew(), call(c); }; };
        x.expect_through("atomic", renewing([&](void* c) { return sum(2, c); }));
        x.expect_through("fetch", renewing([&](void* c) {
                             return fi_fetch_atomic(s.ep, &one, 1, nullptr, &before, nullptr, 2, peers[2].base + 64,
                                                    peers[2].key, FI_UINT64, FI_SUM, c);
                         }));
        x.expect_through("wide", renewing([&](void* c) {
                             return fi_atomic(s.ep, &wide, 1, nullptr, 2, peers[2].base, peers[2].key, FI_LONG_DOUBLE,
                                              FI_SUM, c);
                         }));
        EXPECT_EQ(x.count(&locked) + x.count(&behind), 0u);
        holder.release();
        EXPECT_TRUE(wait_until([&] { return x.take(), x.count(&locked) + x.count(&behind) == 2; }));
        EXPECT_EQ(before, 1u);
    });
}

/// Messages wait in a line for each peer, too.
TEST(StoppedPeer, MessagesHoldUpThemselvesAlone)
{
    expect_processes(3, [](const Rank& rank) {
        constexpr std::uint64_t before = 150;
        constexpr std::size_t lengths[] = {8, 200, 3000, 100000};
        static std::uint8_t bytes[100000];
        Options options;
        options.caps = FI_MSG | FI_TAGGED;
        Session s(rank, options);
        const auto receive = [&](std::uint64_t count) {
            for (std::uint64_t n = 0; n < count; n++) {
                ASSERT_EQ(s.post([&] { return fi_recv(s.ep, bytes, sizeof bytes, nullptr, 0, &s); }), 0);
                s.expect(&s, FI_RECV);
            }
        };
        if (rank.number != 0) {
            receive(before);
            if (rank.number == 1) {
                stop_here(rank);
                receive(rank.get(posted_word));
            } else {
                receive(std::size(lengths) + 1);
            }
            ASSERT_TRUE(wait_until([&] { return fi_cq_read(s.cq, nullptr, 0), rank.get(done_word) == 1; }));
            return;
        }
        Talker x(s);
        char to_stopped = 0, ignored = 0;
        for (std::uint64_t n = 0; n < before; n++)
            for (fi_addr_t to : {1, 2})
                ASSERT_EQ(s.post([&] { return fi_send(s.ep, bytes, 8, nullptr, to, &ignored); }), 0);
        ASSERT_TRUE(wait_until([&] { return x.take(), x.count(&ignored) == 2 * before; }));
        {
            Stopped one(rank);
            const std::uint64_t posted = x.until_refused(
                [&](std::uint64_t n) { return fi_send(s.ep, bytes, lengths[n % 4], nullptr, 1, &to_stopped); }, 5000);
            for (std::size_t length : lengths)
                x.expect_through("send", [&](void* c) { return fi_send(s.ep, bytes, length, nullptr, 2, c); });
            x.expect_through(
                "inject", [&](void*) { return fi_inject(s.ep, bytes, 8, 2); }, true);
            rank.set(posted_word, posted);
            one.go_on();
            EXPECT_TRUE(wait_until([&] { return x.take(), x.count(&to_stopped) == posted; })) << x.count(&to_stopped);
        }
        rank.set(done_word, 1);
    });
}

} // namespace
} // namespace tofu::test
