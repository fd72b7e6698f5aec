// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receive queue (msg/receive_queue) over a protocol that is made up: messages come when the test says so, and what
// the queue asks of their peer may be refused, or the peer leaves in the middle. The provider is linked in for its
// completion queue and address vector.
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "av/peer_table.h"
#include "cq/counter.h"
#include "cq/cq.h"
#include "msg/receive_queue.h"
#include "prov/lib/linked.h"
#include "prov/lib/objects.h"

namespace tofu::proto {
namespace {

using tofu::test::Objects;

constexpr std::uint64_t source = 77;

/// What one peer knows of its messages is a number.
struct FakePeer final : SrxPeer {
    FakePeer(ReceiveQueue& queue, const RxContext& rx, fid_av* av) : SrxPeer(rx, Peers::of(av)), queue(queue)
    {
        EXPECT_EQ(queue.join(*this), 0);
    }
    /// A message comes; its number, or -1 - number where it found a receive.
    void arrive(int number, std::uint64_t tag, std::size_t length = 8)
    {
        if (RecvRequest* r = queue.get_entry(true, source, tag)) {
            give(*r, number, length);
            return;
        }
        Unexpected* m = queue.alloc_entry(sizeof number);
        ASSERT_NE(m, nullptr);
        m->source = source;
        m->tag = tag;
        m->tagged = true;
        m->length = length;
        m->peer = this;
        std::memcpy(m->body(), &number, sizeof number);
        queue.queue_entry(*m);
    }
    void arrive_untagged(int number, std::size_t length)
    {
        Unexpected* m = queue.alloc_entry(sizeof number);
        ASSERT_NE(m, nullptr);
        m->source = source;
        m->length = length;
        m->peer = this;
        std::memcpy(m->body(), &number, sizeof number);
        queue.queue_entry(*m);
    }
    void give(RecvRequest& r, int number, std::size_t length)
    {
        iovec into[4];
        std::uint8_t count = 0;
        r.consume(length, into, count);
        if (r.posted && r.exhausted())
            queue.withdraw(r);
        said += "give" + std::to_string(number) + " ";
        if (!r.posted)
            queue.free_entry(r);
    }
    static int number_of(const Unexpected& m)
    {
        int number;
        std::memcpy(&number, m.body(), sizeof number);
        return number;
    }
    bool start(RecvRequest& r, Unexpected& m) noexcept override
    {
        if (refusals != 0 && refusals-- == 1)
            return false;
        give(r, number_of(m), m.length);
        return true;
    }
    bool discard(Unexpected& m) noexcept override
    {
        if (refusals != 0 && refusals-- == 1)
            return false;
        said += "discard" + std::to_string(number_of(m)) + " ";
        return true;
    }
    void forgotten(Unexpected& m) noexcept override { said += "forgotten" + std::to_string(number_of(m)) + " "; }
    fi_addr_t source_of(const Unexpected&) noexcept override { return 3; }
    void progress(bool everywhere) noexcept override
    {
        said += everywhere ? "everywhere " : "";
        if (everywhere && late >= 0)
            arrive(std::exchange(late, -1), 5);
    }
    /// What happened since the last time.
    std::string heard() { return std::exchange(said, {}); }

    ReceiveQueue& queue;
    unsigned refusals = 0; ///< this request from now on is refused
    int late = -1;         ///< comes as soon as new senders are looked for
    std::string said;
};

struct Match : testing::Test {
    Match()
    {
        cq = objects.open_queue();
        counter = objects.open_counter();
        rx.binding.cq = &CompletionQueue::of(cq);
        rx.counters.recv = &Counter::of(counter);
        EXPECT_TRUE(queue.valid());
    }
    ssize_t receive(std::uint64_t tag, void* context, std::uint64_t flags = 0, std::size_t length = 64)
    {
        iov = {buffer, length};
        return queue.recv({.iov = &iov, .count = 1, .tag = tag, .flags = flags, .context = context, .tagged = true});
    }
    ssize_t receive_many(std::size_t length)
    {
        iov = {buffer, length};
        return queue.recv({.iov = &iov, .count = 1, .flags = FI_MULTI_RECV, .context = &queue});
    }
    /// The next entry: its length, or the error, negative. 1000: none.
    long entry()
    {
        fi_cq_tagged_entry e{};
        const ssize_t n = fi_cq_read(cq, &e, 1);
        if (n == 1)
            return static_cast<long>(e.len);
        fi_cq_err_entry error{};
        if (n == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1)
            return -error.err;
        return 1000;
    }

    Objects objects;
    fid_cq* cq = nullptr;
    fid_cntr* counter = nullptr;
    RxContext rx;
    std::size_t min_multi_recv = 16;
    ReceiveQueue queue{true, min_multi_recv};
    FakePeer peer{queue, rx, objects.av};
    char buffer[64];
    iovec iov{};
    int one = 0, two = 0;
};

TEST_F(Match, MessageThatIsWaitedForIsNotKept)
{
    ASSERT_EQ(receive(5, &one), 0);
    peer.arrive(1, 5);
    EXPECT_EQ(peer.heard(), "give1 ");
    EXPECT_EQ(queue.get_entry(true, source, 5), nullptr);
}

TEST_F(Match, MessageThatCameFirstStartsWithItsReceive)
{
    peer.arrive(1, 5);
    peer.arrive(2, 5);
    ASSERT_EQ(receive(6, &one), 0);
    EXPECT_EQ(peer.heard(), "");
    ASSERT_EQ(receive(5, &one), 0);
    EXPECT_EQ(peer.heard(), "give1 forgotten1 ");
    EXPECT_TRUE(queue.holds(peer, [](const Unexpected& kept) { return kept.source == source; }));
    ASSERT_EQ(receive(5, &one), 0);
    EXPECT_EQ(peer.heard(), "give2 forgotten2 ");
    EXPECT_FALSE(queue.holds(peer, [](const Unexpected& kept) { return kept.source == source; }));
}

TEST_F(Match, RefusedStartLeavesTheMessageWhereItWas)
{
    peer.arrive(1, 5);
    peer.arrive(2, 5);
    peer.refusals = 1;
    EXPECT_EQ(receive(5, &one), -FI_EAGAIN);
    EXPECT_EQ(peer.heard(), "");
    EXPECT_EQ(queue.cancel(&one), -FI_ENOENT) << "a refused receive was posted";
    ASSERT_EQ(receive(5, &one), 0);
    EXPECT_EQ(peer.heard(), "give1 forgotten1 ");
}

/// The second message is refused: the receive is behind until it has got it, and nothing passes.
TEST_F(Match, MultiReceiveThatIsRefusedInTheMiddleIsBehind)
{
    peer.arrive_untagged(1, 8);
    peer.arrive_untagged(2, 8);
    peer.arrive_untagged(3, 0);
    peer.refusals = 2;
    ASSERT_EQ(receive_many(64), 0);
    EXPECT_EQ(peer.heard(), "give1 forgotten1 ");
    RecvRequest* posted = queue.get_entry(false, source, 0);
    ASSERT_NE(posted, nullptr);
    EXPECT_EQ(posted->used, 8u);
    EXPECT_TRUE(posted->behind) << "a later message has to let the others go first";
    peer.refusals = 1;
    EXPECT_EQ(receive_many(64), -FI_EAGAIN) << "a younger receive would get the older one's message";
    peer.refusals = 1;
    iov = {buffer, 64};
    EXPECT_EQ(queue.recv({.iov = &iov, .count = 1, .flags = FI_PEEK, .context = &one}), -FI_EAGAIN);
    peer.heard();
    ASSERT_EQ(receive(5, &one), 0) << "a tagged receive is none of these";
    EXPECT_TRUE(queue.catch_up());
    EXPECT_EQ(peer.heard(), "give2 forgotten2 give3 forgotten3 ");
    EXPECT_FALSE(posted->behind);
    EXPECT_EQ(posted->used, 16u);
}

/// The first message is refused: the receive is accepted all the same, and ends with its last message.
TEST_F(Match, MultiReceiveThatIsRefusedAtOnceIsBehind)
{
    peer.arrive_untagged(1, 0);
    peer.arrive_untagged(2, 60);
    peer.arrive_untagged(3, 8);
    peer.refusals = 1;
    ASSERT_EQ(receive_many(64), 0);
    EXPECT_EQ(peer.heard(), "");
    peer.refusals = 2;
    EXPECT_FALSE(queue.catch_up());
    EXPECT_EQ(peer.heard(), "give1 forgotten1 ");
    EXPECT_TRUE(queue.catch_up());
    EXPECT_EQ(peer.heard(), "give2 forgotten2 ") << "less than the least is left";
    EXPECT_EQ(queue.get_entry(false, source, 0), nullptr);
    EXPECT_TRUE(queue.holds(peer, [](const Unexpected& kept) { return kept.source == source; }));
}

TEST_F(Match, MultiReceiveThatIsBehindCanBeCancelled)
{
    peer.arrive_untagged(1, 8);
    peer.refusals = 1;
    ASSERT_EQ(receive_many(64), 0);
    ASSERT_EQ(queue.cancel(&queue), 0);
    fi_cq_tagged_entry e{};
    ASSERT_EQ(fi_cq_read(cq, &e, 1), -FI_EAVAIL);
    fi_cq_err_entry error{};
    ASSERT_EQ(fi_cq_readerr(cq, &error, 0), 1);
    EXPECT_EQ(error.err, FI_ECANCELED);
    EXPECT_EQ(error.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
    ASSERT_EQ(receive_many(64), 0) << "nothing is behind any more";
    EXPECT_EQ(peer.heard(), "give1 forgotten1 ");
}

/// The message that holds it up goes with its peer.
TEST_F(Match, MultiReceiveIsNotBlockedByClosedSenders)
{
    {
        FakePeer another(queue, rx, objects.av);
        another.arrive_untagged(1, 8);
        peer.arrive_untagged(2, 8);
        another.refusals = 1;
        ASSERT_EQ(receive_many(64), 0);
        queue.leave(another);
    }
    EXPECT_EQ(peer.heard(), "give2 forgotten2 ");
    RecvRequest* posted = queue.get_entry(false, source, 0);
    ASSERT_NE(posted, nullptr);
    EXPECT_FALSE(posted->behind);
}

TEST_F(Match, MultiReceiveTakesWhatCameUntilLittleIsLeft)
{
    for (int i = 1; i <= 4; i++)
        peer.arrive_untagged(i, 20);
    ASSERT_EQ(receive_many(64), 0);
    EXPECT_EQ(peer.heard(), "give1 forgotten1 give2 forgotten2 give3 forgotten3 "); // 4 are left, less than 16
    EXPECT_EQ(queue.get_entry(false, source, 0), nullptr);
}

TEST_F(Match, PeekFindsWhatComesWhileItLooks)
{
    EXPECT_EQ(receive(5, &one, FI_PEEK), 0);
    EXPECT_EQ(peer.heard(), "everywhere ");
    EXPECT_EQ(entry(), -FI_ENOMSG);
    peer.late = 1;
    EXPECT_EQ(receive(5, &one, FI_PEEK), 0);
    EXPECT_EQ(entry(), 8);
    EXPECT_TRUE(queue.holds(peer, [](const Unexpected& kept) { return kept.source == source; }));
}

TEST_F(Match, DiscardCanBeRefused)
{
    peer.arrive(1, 5);
    peer.refusals = 1;
    EXPECT_EQ(receive(5, &one, FI_PEEK | FI_DISCARD), -FI_EAGAIN);
    EXPECT_EQ(entry(), 1000) << "an answer to a refused call";
    EXPECT_EQ(receive(5, &one, FI_PEEK | FI_DISCARD), 0);
    EXPECT_EQ(peer.heard(), "discard1 forgotten1 ");
    EXPECT_EQ(entry(), 8);
    EXPECT_FALSE(queue.holds(peer, [](const Unexpected& kept) { return kept.source == source; }));
}

TEST_F(Match, ClaimedMessageIsOfItsContextAlone)
{
    peer.arrive(1, 5);
    peer.arrive(2, 5);
    EXPECT_EQ(receive(5, &one, FI_PEEK | FI_CLAIM), 0);
    EXPECT_EQ(receive(5, &two, FI_CLAIM), -FI_EINVAL);
    EXPECT_EQ(receive(5, &two), 0);
    EXPECT_EQ(peer.heard(), "give2 forgotten2 ");
    peer.refusals = 1;
    EXPECT_EQ(receive(5, &one, FI_CLAIM), -FI_EAGAIN);
    EXPECT_EQ(receive(5, &one, FI_CLAIM), 0);
    EXPECT_EQ(peer.heard(), "give1 forgotten1 ");
    EXPECT_EQ(receive(5, &one, FI_CLAIM), -FI_EINVAL);
}

/// One peer leaves: of the two that share the queue only its messages go, a claimed one too.
TEST_F(Match, PeerThatLeavesTakesItsMessagesAlong)
{
    FakePeer other{queue, rx, objects.av};
    peer.arrive(1, 5);
    other.arrive(2, 5);
    peer.arrive(3, 5);
    EXPECT_EQ(receive(5, &one, FI_PEEK | FI_CLAIM), 0);
    queue.leave(peer);
    EXPECT_EQ(peer.heard(), "forgotten3 forgotten1 ");
    EXPECT_EQ(receive(5, &one, FI_CLAIM), -FI_EINVAL);
    EXPECT_EQ(receive(5, &two), 0);
    EXPECT_EQ(other.heard(), "give2 forgotten2 ");
    EXPECT_EQ(receive(6, &two), 0);
    EXPECT_EQ(entry(), 8); // of the claim
    EXPECT_EQ(queue.cancel(&two), 0);
    EXPECT_EQ(entry(), -FI_ECANCELED);
    EXPECT_EQ(fi_cntr_readerr(counter), 1u);
    queue.leave(other);
    EXPECT_EQ(queue.recv({.source = 0, .tagged = true}), -FI_EINVAL) << "no address vector is left";
}

TEST_F(Match, ReceivesOfOthersStandBack)
{
    ASSERT_EQ(queue.recv({.source = 9, .tagged = true}), -FI_EINVAL); // no such source
    ASSERT_EQ(receive(5, &one), 0);
    EXPECT_EQ(queue.get_entry(true, source, 6), nullptr);
    EXPECT_EQ(queue.get_entry(false, source, 0), nullptr);
    EXPECT_EQ(queue.cancel(&two), -FI_ENOENT);
}

TEST_F(Match, BytesOfUnexpectedMessagesAreBounded)
{
    setenv("FI_TOFU_UNEXPECTED_BYTES", "1000", 1);
    ReceiveQueue small{false, min_multi_recv};
    unsetenv("FI_TOFU_UNEXPECTED_BYTES");
    EXPECT_EQ(small.alloc_entry(1000), nullptr);
    Unexpected* m = small.alloc_entry(500);
    ASSERT_NE(m, nullptr);
    EXPECT_EQ(small.alloc_entry(500), nullptr);
    small.free_entry(*m);
    m = small.alloc_entry(500);
    ASSERT_NE(m, nullptr);
    small.free_entry(*m);
}

} // namespace
} // namespace tofu::proto
