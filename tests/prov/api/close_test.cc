// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_close right behind a post (fi_endpoint(3)): what was injected, or reported as sent, arrives; memory stays
// registered until no transfer can reach it. The provider is linked in, over a library that carries out what is posted
// later, while the program polls, and never what a VCQ that is freed still has (guide 3.3.1.3 promises nothing else).
// Run by make check, over the simulator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "cq/domain_base.h"
#include "msg/copies.h"
#include "prov/lib/library.h"
#include "prov/lib/objects.h"
#include "utofu/vcq.h"

namespace {

using namespace tofu::test;
using tofu::vcq::Functions;

/// What the library does with posts.
struct Late {
    struct Post {
        utofu_vcq_hdl_t vcq;
        std::function<int()> carry_out;
    };
    bool on = false;          ///< posts are carried out later
    bool never = false;       ///< or not at all
    unsigned refuse = 0;      ///< so many short Puts find the TOQ full
    unsigned accept = ~0u;    ///< and all behind so many more
    std::int64_t credits = 0; ///< of events: what ARMWs have put into pools, or taken
    std::deque<Post> posts;
    std::size_t lost = 0;               ///< that a freed VCQ still had
    std::size_t deregistered_early = 0; ///< while the VCQ had some
    std::function<void()> at_free;      ///< called before a VCQ is freed that has some

    [[nodiscard]] bool has(utofu_vcq_hdl_t vcq) const
    {
        return std::any_of(posts.begin(), posts.end(), [vcq](const Post& p) { return p.vcq == vcq; });
    }
    void carry_out_one()
    {
        if (!never && !posts.empty() && posts.front().carry_out() != UTOFU_ERR_BUSY)
            posts.pop_front();
    }
};
Late late;

Functions library; ///< as it is

int put_piggyback(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, void* data, utofu_stadd_t remote, std::size_t length,
                  std::uint64_t edata, unsigned long flags, void* cbdata)
{
    if (late.refuse != 0) {
        late.refuse--;
        return UTOFU_ERR_BUSY;
    }
    if (late.accept != ~0u && late.accept-- == 0) {
        late.accept = 0;
        return UTOFU_ERR_BUSY;
    }
    if (!late.on)
        return library.put_piggyback(vcq, peer, data, remote, length, edata, flags, cbdata);
    std::vector<char> bytes(static_cast<char*>(data), static_cast<char*>(data) + length);
    late.posts.push_back({vcq, [=]() mutable {
                              return library.put_piggyback(vcq, peer, bytes.data(), remote, length, edata, flags,
                                                           cbdata);
                          }});
    return UTOFU_SUCCESS;
}

int poll_mrq(utofu_vcq_hdl_t vcq, unsigned long flags, utofu_mrq_notice* notice)
{
    late.carry_out_one();
    return library.poll_mrq(vcq, flags, notice);
}

int free_vcq(utofu_vcq_hdl_t vcq)
{
    if (late.at_free && late.has(vcq))
        late.at_free();
    late.lost += std::erase_if(late.posts, [vcq](const Late::Post& p) { return p.vcq == vcq; });
    return library.free_vcq(vcq);
}

int dereg_mem(utofu_vcq_hdl_t vcq, utofu_stadd_t stadd, unsigned long flags)
{
    late.deregistered_early += late.has(vcq);
    return library.dereg_mem(vcq, stadd, flags);
}

struct LateLibrary : testing::Environment {
    void SetUp() override
    {
        tofu::vcq::Vcq::patience = std::chrono::milliseconds(200);
        auto& functions = library_functions();
        library = functions;
        constexpr auto delayed = [](auto next, utofu_vcq_hdl_t vcq, auto... rest) -> int {
            if (!late.on)
                return next(vcq, rest...);
            late.posts.push_back({vcq, [=] { return next(vcq, rest...); }});
            return UTOFU_SUCCESS;
        };
        surround<delayed, &Functions::put, &Functions::get, &Functions::armw4, &Functions::armw8, &Functions::cswap4,
                 &Functions::cswap8>(functions);
        constexpr auto counted = [](auto next, utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_armw_op op,
                                    std::uint64_t operand, auto... rest) -> int {
            const int ret = next(vcq, peer, op, operand, rest...);
            if (ret == UTOFU_SUCCESS && op == UTOFU_ARMW_OP_ADD)
                late.credits += static_cast<std::int64_t>(operand);
            return ret;
        };
        surround<counted, &Functions::armw8>(functions);
        functions.put_piggyback = put_piggyback;
        functions.poll_mrq = poll_mrq;
        functions.free_vcq = free_vcq;
        functions.dereg_mem = dereg_mem;
    }
};
const testing::Environment* const late_library = testing::AddGlobalTestEnvironment(new LateLibrary);

constexpr std::size_t most = 1 << 20;

/// A sender, which is closed, a receiver, and memory of theirs.
struct Close : testing::Test {
    explicit Close(std::uint64_t more_caps = 0)
        : o(wishes(more_caps)), tx(o.open_queue()), rx(o.open_queue()), in(most), out(most, 'x'), memory(most)
    {
        late = {};
        receiver = o.add(rx, rx);
        Objects::must(
            fi_mr_reg(o.domain, window, sizeof window, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 0, 0, &region, nullptr));
        base = reinterpret_cast<std::uintptr_t>(window);
        Objects::must(
            fi_mr_reg(o.domain, memory.data(), most, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 0, 0, &large, nullptr));
        large_base = reinterpret_cast<std::uintptr_t>(memory.data());
    }
    ~Close() override
    {
        late = {};
        EXPECT_EQ(fi_close(&region->fid), 0);
        EXPECT_EQ(fi_close(&large->fid), 0);
    }
    static Wishes wishes(std::uint64_t more_caps)
    {
        Wishes w;
        w.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | more_caps;
        w.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        return w;
    }
    fid_ep* open_sender()
    {
        fid_ep* const ep = o.add(tx, tx);
        greet(ep);
        return ep;
    }
    /// Talks until it has a ring, so that what is posted next needs no answer of the library first.
    void greet(fid_ep* ep)
    {
        const std::uint64_t rings = o.counted("ring_granted");
        for (unsigned messages = 0; o.counted("ring_granted") == rings; messages++) {
            ASSERT_LT(messages, 1000u) << "no ring";
            Objects::post(rx, [&] { return fi_trecv(receiver, in.data(), most, nullptr, FI_ADDR_UNSPEC, 0, 0, &in); });
            Objects::post(tx, [&] { return fi_tinject(ep, out.data(), 8, 0, 0); });
            expect(rx, &in);
        }
    }
    void expect(fid_cq* cq, void* context)
    {
        fi_cq_tagged_entry entry{};
        ssize_t got = -FI_EAGAIN;
        ASSERT_TRUE(eventually([&] {
            fi_cq_read(cq == rx ? tx : rx, nullptr, 0);
            return got = fi_cq_read(cq, &entry, 1), got != -FI_EAGAIN;
        })) << "does not arrive";
        ASSERT_EQ(got, 1);
        EXPECT_EQ(entry.op_context, context);
    }
    void close(fid_ep* ep)
    {
        ASSERT_EQ(fi_close(&ep->fid), 0);
        std::erase(o.endpoints, ep);
    }
    /// Posts while the library is late, and closes the endpoint at once.
    template <class Post>
    void close_behind(const char* what, Post&& call)
    {
        SCOPED_TRACE(what);
        fid_ep* const ep = open_sender();
        late.on = late.never = true; // whatever the call tries by itself
        ASSERT_EQ(call(ep), 0);
        EXPECT_FALSE(late.posts.empty());
        late.never = false;
        close(ep);
        late.on = false;
        EXPECT_EQ(late.lost, 0u);
        EXPECT_EQ(late.deregistered_early, 0u);
    }
    void expect_message(std::size_t size, std::uint64_t tag, bool tagged)
    {
        std::memset(in.data(), 0, size);
        Objects::post(rx, [&] {
            return tagged ? fi_trecv(receiver, in.data(), most, nullptr, FI_ADDR_UNSPEC, tag, 0, &in)
                          : fi_recv(receiver, in.data(), most, nullptr, FI_ADDR_UNSPEC, &in);
        });
        expect(rx, &in);
        EXPECT_EQ(std::memcmp(in.data(), out.data(), size), 0);
    }

    /// Sends a message that its receiver has to fetch, tag 5; its entry is read.
    void send_copy(fid_ep* ep, fi_addr_t to, std::size_t size)
    {
        Objects::post(tx, [&] { return fi_tsend(ep, out.data(), size, nullptr, to, 5, &out); });
        fi_cq_tagged_entry entry{};
        ASSERT_TRUE(eventually([&] { return fi_cq_read(tx, &entry, 1) == 1; }));
        EXPECT_EQ(entry.op_context, &out);
    }
    tofu::proto::OrphanedCopies& orphaned_copies() { return tofu::DomainBase::of(o.domain).orphaned_copies(); }
    bool eventually_settled()
    {
        return eventually([&] { return fi_cq_read(tx, nullptr, 0), !orphaned_copies().any(); });
    }

    Objects o;
    fid_cq* tx;
    fid_cq* rx;
    fid_ep* receiver = nullptr;
    fid_mr* region = nullptr;
    fid_mr* large = nullptr;
    std::uint64_t base = 0, large_base = 0;
    std::vector<char> in, out, memory;
    alignas(65536) std::uint64_t window[8192 / 8] = {};
};

TEST_F(Close, InjectedMessagesArrive)
{
    for (std::size_t size : {0, 8, 24, 100, 192}) {
        close_behind("fi_tinject", [&](fid_ep* ep) { return fi_tinject(ep, out.data(), size, 0, size); });
        expect_message(size, size, true);
        close_behind("fi_inject", [&](fid_ep* ep) { return fi_inject(ep, out.data(), size, 0); });
        expect_message(size, 0, false);
    }
}

/// A sender without a ring that closes as soon as its packet is posted: the packet arrives, whenever the library
/// executes it.
TEST_F(Close, AnonymousPacketsArrive)
{
    for (std::size_t size : {0, 8, 192}) {
        fid_ep* const ep = o.add(tx, tx);
        late.on = true;
        Objects::post(tx, [&] { return fi_tinject(ep, out.data(), size, 0, 5); });
        EXPECT_FALSE(late.posts.empty());
        close(ep);
        late.on = false;
        EXPECT_EQ(late.lost, 0u);
        EXPECT_EQ(late.deregistered_early, 0u);
        expect_message(size, 5, true);
    }
    EXPECT_EQ(o.counted("ring_granted"), 0u);
    EXPECT_EQ(o.counted("send_anonymous"), 3u);
}

/// No slot is ever granted: an inject returns -FI_EAGAIN, and the close ends.
TEST_F(Close, AnAnonymousPacketWithoutAnAnswerBlocksNoOther)
{
    fid_ep* const ep = o.add(tx, tx);
    late.on = late.never = true;
    EXPECT_EQ(fi_tinject(ep, out.data(), 8, 0, 5), -FI_EAGAIN);
    EXPECT_EQ(fi_tinject(ep, out.data(), 8, 1, 5), -FI_EAGAIN) << "to another one";
    close(ep);
    EXPECT_EQ(late.deregistered_early, 0u);
}

TEST_F(Close, SendsThatWereReportedArrive)
{
    fi_cq_tagged_entry entry{};
    for (std::size_t size : {8, 64, 200, 1000, 4000}) {
        close_behind("fi_tsend", [&](fid_ep* ep) {
            const ssize_t ret = fi_tsend(ep, out.data(), size, nullptr, 0, size, &out);
            EXPECT_EQ(fi_cq_read(tx, &entry, 1), 1) << size;
            return ret;
        });
        expect_message(size, size, true);
    }
}

/// The payload is out, and the TOQ full: the send is reported when its header is out.
TEST_F(Close, AHeaderThatHasToWaitIsNotReported)
{
    fid_ep* const ep = open_sender();
    late.refuse = 10;
    ASSERT_EQ(fi_tsend(ep, out.data(), 3000, nullptr, 0, 3, &out), 0);
    fi_cq_tagged_entry entry{};
    while (late.refuse > 2) {
        const unsigned before = late.refuse;
        ASSERT_EQ(fi_cq_read(tx, &entry, 1), -FI_EAGAIN);
        ASSERT_LE(before - late.refuse, 2u);
    }
    expect(tx, &out);
    EXPECT_EQ(late.refuse, 0u);
    expect_message(3000, 3, true);
}
TEST_F(Close, AHeaderThatHasToWaitIsNotLeftBehind)
{
    fid_ep* const ep = open_sender();
    late.refuse = 10;
    ASSERT_EQ(fi_tsend(ep, out.data(), 3000, nullptr, 0, 3, &out), 0);
    EXPECT_NE(late.refuse, 0u);
    close(ep);
    EXPECT_EQ(late.refuse, 0u);
    expect_message(3000, 3, true);
}

// --- copies that receivers fetch

/// The receiver has made no progress: the thread that closes the sender is the receiver's.
TEST_F(Close, ACopyIsFetchedFromASenderThatIsBeingClosed)
{
    for (std::size_t size : {200, 1000, 8192}) {
        SCOPED_TRACE(size);
        fid_ep* const ep = o.add(tx, tx);
        send_copy(ep, 0, size);
        close(ep);
        EXPECT_FALSE(orphaned_copies().any());
        expect_message(size, 5, true);
    }
    EXPECT_EQ(o.counted("ring_granted"), 0u);
}

/// A receiver in a domain of its own. Its endpoints may be another thread's (FI_THREAD_DOMAIN), so the close of a
/// sender makes no progress for it.
struct CloseBeforeTheFetch : Close {
    CloseBeforeTheFetch()
    {
        Wishes w = wishes(0);
        w.threading = FI_THREAD_DOMAIN;
        remote.emplace(w);
        queue = remote->open_queue();
        peer = remote->add(queue, queue);
        to = insert(o.av, peer);
    }
    static fi_addr_t insert(fid_av* av, fid_ep* ep)
    {
        char name[64];
        std::size_t length = sizeof name;
        Objects::must(fi_getname(&ep->fid, name, &length));
        fi_addr_t at = 0;
        EXPECT_EQ(fi_av_insert(av, name, 1, &at, 0, nullptr), 1);
        return at;
    }
    /// Sends a copy and closes the sender. The copy is not fetched.
    void leave_copy(fid_ep* ep)
    {
        send_copy(ep, to, size);
        close(ep);
        EXPECT_TRUE(orphaned_copies().any());
    }
    void expect_copy()
    {
        std::memset(in.data(), 0, size);
        Objects::post(queue, [&] { return fi_trecv(peer, in.data(), most, nullptr, FI_ADDR_UNSPEC, 5, 0, &in); });
        expect(queue, &in);
        EXPECT_EQ(std::memcmp(in.data(), out.data(), size), 0);
        EXPECT_TRUE(eventually_settled());
    }

    static constexpr std::size_t size = 5000;
    std::optional<Objects> remote;
    fid_cq* queue = nullptr;
    fid_ep* peer = nullptr;
    fi_addr_t to = 0;
};

TEST_F(CloseBeforeTheFetch, ACopyIsFetchedFromASenderThatIsClosed)
{
    leave_copy(o.add(tx, tx));
    expect_copy();
}

TEST_F(CloseBeforeTheFetch, ACopyForAReceiverThatIsGoneIsFreed)
{
    leave_copy(o.add(tx, tx));
    ASSERT_EQ(fi_close(&peer->fid), 0);
    std::erase(remote->endpoints, peer);
    EXPECT_TRUE(eventually_settled());
}

/// What was not reported as sent is discarded with its endpoint, whatever else that leaves: the buffer is the user's.
TEST_F(CloseBeforeTheFetch, WhatWasNotReportedIsNotFetchedFromASenderThatIsClosed)
{
    fid_ep* const ep = o.add(tx, tx);
    ASSERT_EQ(fi_tsend(ep, out.data(), 100000, nullptr, to, 6, &out), 0);
    leave_copy(ep);
    std::memset(in.data(), 0, 100000);
    Objects::post(queue, [&] { return fi_trecv(peer, in.data(), most, nullptr, FI_ADDR_UNSPEC, 6, 0, &in); });
    fi_cq_tagged_entry entry{};
    ssize_t got = -FI_EAGAIN;
    ASSERT_TRUE(eventually([&] { return got = fi_cq_read(queue, &entry, 1), got != -FI_EAGAIN; }));
    fi_cq_err_entry error{};
    ASSERT_EQ(got, -FI_EAVAIL);
    ASSERT_EQ(fi_cq_readerr(queue, &error, 0), 1);
    EXPECT_EQ(error.err, FI_EHOSTDOWN);
    expect_copy();
}

/// Peers see that the endpoint is closed, while its copies are still fetched.
TEST_F(CloseBeforeTheFetch, ASenderThatHasLeftCopiesIsGoneForItsPeers)
{
    fid_ep* const ep = o.add(tx, tx);
    const fi_addr_t at = insert(remote->av, ep);
    leave_copy(ep);
    fid_ep* const visitor = remote->add(queue, queue);
    ssize_t ret = -FI_EAGAIN;
    ASSERT_TRUE(eventually([&] {
        ret = fi_tinject(visitor, out.data(), 8, at, 5);
        return ret != -FI_EAGAIN;
    }));
    EXPECT_EQ(ret, -FI_EHOSTDOWN);
    expect_copy();
}

struct CloseOfDomain : testing::Test {
    /// Sends a copy from a domain of its own, which is closed at once.
    static void send_from_another(Objects& o, fid_ep* to, std::size_t size)
    {
        static std::vector<char> out(most, 'x');
        Objects sender;
        fid_cq* const cq = sender.open_queue();
        fid_ep* const ep = sender.add(cq, cq);
        char name[64];
        std::size_t length = sizeof name;
        Objects::must(fi_getname(&to->fid, name, &length));
        fi_addr_t at = 0;
        ASSERT_EQ(fi_av_insert(sender.av, name, 1, &at, 0, nullptr), 1);
        Objects::post(cq, [&] { return fi_tsend(ep, out.data(), size, nullptr, at, 5, &o); });
        fi_cq_tagged_entry entry{};
        ASSERT_TRUE(eventually([&] { return fi_cq_read(cq, &entry, 1) == 1; }));
    }
};

/// The receiver has a domain of its own: the close of the sender's makes its progress.
TEST_F(CloseOfDomain, WaitsForReceiversOfThisProcess)
{
    late = {};
    Objects o;
    fid_cq* const cq = o.open_queue();
    fid_ep* const ep = o.add(cq, cq);
    send_from_another(o, ep, 1000);
    std::vector<char> in(1000);
    Objects::post(cq, [&] { return fi_trecv(ep, in.data(), 1000, nullptr, FI_ADDR_UNSPEC, 5, 0, &in); });
    fi_cq_tagged_entry entry{};
    ASSERT_TRUE(eventually([&] { return fi_cq_read(cq, &entry, 1) == 1; }));
    EXPECT_EQ(entry.len, 1000u);
    EXPECT_EQ(in, std::vector<char>(1000, 'x'));
}

/// A receiver that lives and makes no progress: the wait has a bound.
TEST_F(CloseOfDomain, DoesNotWaitForEver)
{
    late = {};
    setenv("FI_TOFU_LINGER", "1", 1);
    Wishes wishes;
    wishes.threading = FI_THREAD_DOMAIN; // perhaps of another thread: no other thread makes its progress
    Objects o(wishes);
    fid_cq* const cq = o.open_queue();
    fid_ep* const ep = o.add(cq, cq);
    std::vector<char> in(1000);
    Objects::post(cq, [&] { return fi_trecv(ep, in.data(), 1000, nullptr, FI_ADDR_UNSPEC, 5, 0, &in); });
    send_from_another(o, ep, 1000);
    unsetenv("FI_TOFU_LINGER");
    fi_cq_tagged_entry entry{};
    for (int i = 0; i < 1000; i++)
        EXPECT_LT(fi_cq_read(cq, &entry, 1), 0);
}

struct CloseWithEvents : Close {
    CloseWithEvents() : Close(FI_RMA_EVENT) {}
};

/// The first half of a write is out, and the TOQ full for good: the event of the second half was paid for.
TEST_F(CloseWithEvents, AWriteThatCanNotLeaveGivesItsCreditBack)
{
    fid_ep* const ep = open_sender();
    const std::uint64_t key = fi_mr_key(region);
    const iovec from{out.data(), 16};
    const fi_rma_iov to[] = {{base, 8, key}, {base + 64, 8, key}};
    fi_msg_rma write{};
    write.msg_iov = &from;
    write.iov_count = 1;
    write.rma_iov = to;
    write.rma_iov_count = 2;
    late.credits = 0; // a gate is a word of its own
    late.accept = 1;
    Objects::post(tx, [&] { return fi_writemsg(ep, &write, 0); });
    EXPECT_LT(late.credits, 0);
    close(ep);
    EXPECT_EQ(late.credits, 0);
}

TEST_F(Close, InjectedWritesArrive)
{
    const std::uint64_t key = fi_mr_key(region);
    for (std::size_t size : {8, 32, 100}) {
        std::memset(window, 0, sizeof window);
        close_behind("fi_inject_write",
                     [&](fid_ep* ep) { return fi_inject_write(ep, out.data(), size, 0, base, key); });
        EXPECT_EQ(std::memcmp(window, out.data(), size), 0) << size;
    }
    std::memset(window, 0, sizeof window);
    close_behind("FI_INJECT_COMPLETE", [&](fid_ep* ep) {
        const iovec local{out.data(), 4000};
        const fi_rma_iov remote{base, 4000, key};
        const fi_msg_rma msg{&local, nullptr, 1, 0, &remote, 1, nullptr, 0};
        return fi_writemsg(ep, &msg, FI_INJECT_COMPLETE);
    });
    EXPECT_EQ(std::memcmp(window, out.data(), 4000), 0);
    close_behind("fi_inject_writedata",
                 [&](fid_ep* ep) { return fi_inject_writedata(ep, out.data(), 8, 77, 0, base, key); });
    fi_cq_tagged_entry entry{};
    ASSERT_TRUE(eventually([&] { return fi_cq_read(rx, &entry, 1) == 1; }));
    EXPECT_EQ(entry.data, 77u);
}

TEST_F(Close, InjectedAtomicsTakeEffect)
{
    const std::uint64_t key = fi_mr_key(region), five[8] = {5, 5, 5, 5, 5, 5, 5, 5};
    close_behind("one ARMW",
                 [&](fid_ep* ep) { return fi_inject_atomic(ep, five, 1, 0, base, key, FI_UINT64, FI_SUM); });
    EXPECT_EQ(window[0], 5u);
    close_behind("a row",
                 [&](fid_ep* ep) { return fi_inject_atomic(ep, five, 8, 0, base + 64, key, FI_UINT64, FI_SUM); });
    for (unsigned i = 0; i < 8; i++)
        EXPECT_EQ(window[8 + i], 5u);
    window[0] = 9;
    close_behind("a loop", [&](fid_ep* ep) { return fi_inject_atomic(ep, five, 1, 0, base, key, FI_UINT64, FI_MIN); });
    EXPECT_EQ(window[0], 5u);
}

/// FI_FENCE (fi_msg(3)): a send that was taken and waits for room at its peer is an earlier operation.
TEST_F(Close, AFenceWaitsForSendsThatWait)
{
    fid_ep* const ep = open_sender();
    const iovec local{out.data(), 8};
    const fi_rma_iov remote{base, 8, fi_mr_key(region)};
    const fi_msg_rma write{&local, nullptr, 1, 0, &remote, 1, nullptr, 0};
    const std::uint64_t one = 1;
    const fi_ioc operand{const_cast<std::uint64_t*>(&one), 1};
    const fi_rma_ioc target{base, 1, fi_mr_key(region)};
    const fi_msg_atomic atomic{&operand, nullptr, 1, 0, &target, 1, FI_UINT64, FI_SUM, nullptr, 0};
    const fi_msg_tagged message{&local, nullptr, 1, 0, 7, 0, nullptr, 0};
    constexpr unsigned sends = 200; // more than the ring has slots
    for (unsigned i = 0; i < sends; i++)
        ASSERT_EQ(fi_tsend(ep, out.data(), 8, nullptr, 0, 9, &out), 0);
    EXPECT_EQ(fi_writemsg(ep, &write, FI_FENCE), -FI_EAGAIN);
    EXPECT_EQ(fi_atomicmsg(ep, &atomic, FI_FENCE), -FI_EAGAIN);
    EXPECT_EQ(fi_tsendmsg(ep, &message, FI_FENCE), -FI_EAGAIN);
    for (unsigned i = 0; i < sends; i++)
        expect_message(8, 9, true);
    Objects::post(tx, [&] { return fi_writemsg(ep, &write, FI_FENCE); });
    Objects::post(tx, [&] { return fi_atomicmsg(ep, &atomic, FI_FENCE); });
    Objects::post(tx, [&] { return fi_tsendmsg(ep, &message, FI_FENCE); });
}

/// A receiver closes after it has received a message: its sender gets the completion.
TEST_F(Close, AnAcknowledgementArrives)
{
    fid_ep* const other = o.add(rx, rx); // number 1
    fid_ep* const ep = open_sender();
    Objects::post(rx, [&] { return fi_trecv(other, in.data(), most, nullptr, FI_ADDR_UNSPEC, 7, 0, &in); });
    const iovec local{out.data(), 8};
    const fi_msg_tagged msg{&local, nullptr, 1, 1, 7, 0, &out, 0};
    Objects::post(tx, [&] { return fi_tsendmsg(ep, &msg, FI_DELIVERY_COMPLETE); });
    late.on = true;
    expect(rx, &in);
    EXPECT_FALSE(late.posts.empty());
    close(other);
    late.on = false;
    EXPECT_EQ(late.lost, 0u);
    expect(tx, &out);
}

/// Notices that do not come: the call ends, and memory that the transfer may still reach is registered until the VCQ
/// is freed.
TEST_F(Close, ATransferThatDoesNotEndKeepsItsMemory)
{
    fid_ep* const ep = open_sender();
    late.on = late.never = true;
    ASSERT_EQ(fi_read(ep, in.data(), 20000, nullptr, 0, large_base, fi_mr_key(large), nullptr), 0);
    ASSERT_EQ(fi_read(ep, in.data() + 20000, 4000, nullptr, 0, large_base, fi_mr_key(large), nullptr), 0);
    close(ep);
    EXPECT_GE(late.lost, 2u);
    EXPECT_EQ(late.deregistered_early, 0u);
}

/// A receive of a shared context goes to an endpoint whose Get does not end: its buffer is the application's again when
/// the VCQ has been freed, and not before.
TEST_F(Close, AReceiveIsCancelledWhenNothingWritesAnyMore)
{
    fid_ep* shared = nullptr;
    fi_rx_attr attr = *o.info->rx_attr;
    ASSERT_EQ(fi_srx_context(o.domain, &attr, &shared, nullptr), 0);
    o.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    fid_ep* other = nullptr;
    ASSERT_EQ(fi_endpoint(o.domain, o.info, &other, nullptr), 0);
    o.info->ep_attr->rx_ctx_cnt = 1;
    ASSERT_EQ(fi_ep_bind(other, &shared->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(other, &o.av->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(other, &rx->fid, FI_TRANSMIT | FI_RECV), 0);
    ASSERT_EQ(fi_enable(other), 0);
    char name[64];
    std::size_t length = sizeof name;
    ASSERT_EQ(fi_getname(&other->fid, name, &length), 0);
    fi_addr_t to = 0;
    ASSERT_EQ(fi_av_insert(o.av, name, 1, &to, 0, nullptr), 1);
    fid_ep* const ep = o.add(tx, tx);
    ASSERT_EQ(fi_trecv(shared, in.data(), most, nullptr, FI_ADDR_UNSPEC, 5, 0, &in), 0);
    Objects::post(tx, [&] { return fi_tsend(ep, out.data(), 100000, nullptr, to, 5, &out); });
    late.on = late.never = true;
    ASSERT_TRUE(eventually([&] { return fi_cq_read(rx, nullptr, 0), !late.posts.empty(); }));
    fi_cq_tagged_entry entry{};
    ssize_t told = -FI_EAVAIL;
    late.at_free = [&] { told = fi_cq_read(rx, &entry, 1); };
    ASSERT_EQ(fi_close(&other->fid), 0);
    EXPECT_GE(late.lost, 1u);
    EXPECT_EQ(told, -FI_EAGAIN) << "the Get could still have written";
    late = {};
    ASSERT_EQ(fi_cq_read(rx, &entry, 1), -FI_EAVAIL);
    fi_cq_err_entry error{};
    ASSERT_EQ(fi_cq_readerr(rx, &error, 0), 1);
    EXPECT_EQ(error.err, FI_ECANCELED);
    EXPECT_EQ(error.op_context, &in);
    EXPECT_EQ(fi_close(&shared->fid), 0);
}

/// Likewise where the VCQ goes on with others.
TEST_F(Close, AlsoWhereOthersShareTheVcq)
{
    fid_stx* shared = nullptr;
    ASSERT_EQ(fi_stx_context(o.domain, nullptr, &shared, nullptr), 0);
    fid_ep* const ep = o.open_sharing(shared, tx);
    late.on = late.never = true;
    const iovec local{out.data(), 20000};
    const fi_rma_iov remote{large_base, 20000, fi_mr_key(large)};
    const fi_msg_rma msg{&local, nullptr, 1, 0, &remote, 1, nullptr, 0};
    ASSERT_EQ(fi_writemsg(ep, &msg, FI_INJECT_COMPLETE | FI_COMPLETION), 0); // reported by the TCQ
    ASSERT_EQ(fi_read(ep, in.data(), 20000, nullptr, 0, large_base, fi_mr_key(large), nullptr), 0);
    EXPECT_EQ(fi_close(&ep->fid), 0);
    EXPECT_EQ(late.deregistered_early, 0u);
    late.never = false; // they end at last, without a handler
    EXPECT_EQ(fi_close(&shared->fid), 0);
    EXPECT_EQ(late.lost, 0u);
    EXPECT_EQ(late.deregistered_early, 0u);
    fi_cq_tagged_entry entry{};
    EXPECT_EQ(fi_cq_read(tx, &entry, 1), -FI_EAGAIN);
}

/// Likewise where another thread closes the shared context as soon as no endpoint has it.
TEST_F(Close, AlsoWhereTheirContextIsClosedAtOnce)
{
    fid_stx* shared = nullptr;
    ASSERT_EQ(fi_stx_context(o.domain, nullptr, &shared, nullptr), 0);
    fid_ep* const ep = o.open_sharing(shared, tx);
    late.on = late.never = true;
    ASSERT_EQ(fi_read(ep, in.data(), 20000, nullptr, 0, large_base, fi_mr_key(large), nullptr), 0);
    std::thread another([shared] {
        while (fi_close(&shared->fid) == -FI_EBUSY) {
        }
    });
    EXPECT_EQ(fi_close(&ep->fid), 0);
    another.join();
    EXPECT_EQ(late.deregistered_early, 0u);
}

} // namespace
