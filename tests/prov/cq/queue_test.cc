// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cq and fi_cntr without waiting: formats, order, growth, errors, sources, counters (fi_cq(3), fi_cntr(3)). Two
// endpoints of one process talk to each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>

#include "prov/lib/objects.h"

namespace {

using namespace tofu::test;

/// Two endpoints: number 0 sends with `tx`, number 1 receives with `rx`.
struct Queues : Objects {
    explicit Queues(fi_cq_format format = FI_CQ_FORMAT_TAGGED, std::size_t size = 0, const Wishes& wishes = {})
        : Objects(wishes), tx(open_queue(FI_WAIT_NONE, format, size)), rx(open_queue(FI_WAIT_NONE, format, size)),
          received(open_counter())
    {
        a = add(tx, tx);
        b = add(rx, rx, received);
    }
    /// Sends one tagged message of `length` bytes from a to b; its receive is posted.
    void send(std::uint64_t tag, std::size_t length, void* context)
    {
        post(tx, [&] { return fi_trecv(b, in, sizeof(in), nullptr, FI_ADDR_UNSPEC, tag, 0, context); });
        post(tx, [&] { return fi_tsend(a, out, length, nullptr, 1, tag, context); });
    }
    /// Until `n` receives have completed, without reading the queue.
    void complete(std::uint64_t n)
    {
        EXPECT_TRUE(eventually([&] {
            fi_cq_read(tx, nullptr, 0);
            return fi_cntr_read(received) >= n;
        }));
    }
    fid_cq* tx;
    fid_cq* rx;
    fid_cntr* received;
    fid_ep* a;
    fid_ep* b;
    char out[256] = "payload";
    char in[256] = {};
};

TEST(Queue, EachFormatTellsItsShare)
{
    char buffer[sizeof(fi_cq_tagged_entry)];
    const std::pair<fi_cq_format, std::size_t> formats[] = {
        {FI_CQ_FORMAT_UNSPEC, sizeof(fi_cq_entry)},        {FI_CQ_FORMAT_CONTEXT, sizeof(fi_cq_entry)},
        {FI_CQ_FORMAT_MSG, sizeof(fi_cq_msg_entry)},       {FI_CQ_FORMAT_DATA, sizeof(fi_cq_data_entry)},
        {FI_CQ_FORMAT_TAGGED, sizeof(fi_cq_tagged_entry)},
    };
    for (auto [format, size] : formats) {
        Queues p(format);
        int mark = 0;
        p.send(77, 100, &mark);
        p.complete(1);
        std::memset(buffer, 0x5a, sizeof(buffer));
        ASSERT_EQ(fi_cq_read(p.rx, buffer, 1), 1);
        fi_cq_tagged_entry entry{};
        std::memcpy(&entry, buffer, size);
        EXPECT_EQ(entry.op_context, &mark);
        if (size >= sizeof(fi_cq_msg_entry)) {
            EXPECT_EQ(entry.flags & (FI_TAGGED | FI_RECV), static_cast<std::uint64_t>(FI_TAGGED | FI_RECV));
            EXPECT_EQ(entry.len, 100u);
        }
        if (size >= sizeof(fi_cq_tagged_entry))
            EXPECT_EQ(entry.tag, 77u);
        for (std::size_t i = size; i < sizeof(buffer); i++)
            ASSERT_EQ(buffer[i], 0x5a) << "wrote beyond the entry";
        EXPECT_EQ(fi_cq_read(p.rx, buffer, 1), -FI_EAGAIN);
    }
}

TEST(Queue, GrowsBeyondItsSizeAndKeepsOrder)
{
    Queues p(FI_CQ_FORMAT_CONTEXT, 1);
    constexpr int n = 3000;
    static char contexts[n];
    for (int i = 0; i < n; i++) {
        p.send(1, 8, contexts + i);
        p.complete(static_cast<std::uint64_t>(i) + 1);
    }
    fi_cq_entry entries[7];
    int next = 0;
    while (next < n) {
        const ssize_t got = fi_cq_read(p.rx, entries, 7);
        ASSERT_GT(got, 0) << "after " << next;
        for (ssize_t i = 0; i < got; i++)
            ASSERT_EQ(entries[i].op_context, contexts + next++);
    }
    EXPECT_EQ(fi_cq_read(p.rx, entries, 7), -FI_EAGAIN);
}

TEST(Queue, AnErrorStandsAtItsPlaceInTheOrder)
{
    Queues p;
    int one = 1, cancelled = 2, three = 3;
    fi_cq_tagged_entry entries[4];
    fi_cq_err_entry error{};
    EXPECT_EQ(fi_cq_readerr(p.rx, &error, 0), -FI_EAGAIN);
    p.send(5, 8, &one);
    p.complete(1);
    Objects::post(p.rx, [&] { return fi_trecv(p.b, p.in, 8, nullptr, FI_ADDR_UNSPEC, 99, 0, &cancelled); });
    ASSERT_EQ(fi_cancel(&p.b->fid, &cancelled), 0);
    p.send(5, 8, &three);
    p.complete(2);
    ASSERT_EQ(fi_cq_read(p.rx, entries, 4), 1); // stops before the error
    EXPECT_EQ(entries[0].op_context, &one);
    EXPECT_EQ(fi_cq_read(p.rx, entries, 4), -FI_EAVAIL);
    EXPECT_EQ(fi_cq_read(p.rx, nullptr, 0), -FI_EAVAIL);
    ASSERT_EQ(fi_cq_readerr(p.rx, &error, 0), 1);
    EXPECT_EQ(error.op_context, &cancelled);
    EXPECT_EQ(error.err, FI_ECANCELED);
    EXPECT_NE(error.flags & FI_RECV, 0u);
    EXPECT_EQ(fi_cq_readerr(p.rx, &error, 0), -FI_EAGAIN);
    ASSERT_EQ(fi_cq_read(p.rx, entries, 4), 1);
    EXPECT_EQ(entries[0].op_context, &three);
    char text[64];
    EXPECT_NE(fi_cq_strerror(p.rx, error.prov_errno, nullptr, text, sizeof(text)), nullptr);
    EXPECT_GT(std::strlen(text), 0u);
    // What the receiver of a message had (FI_EREMOTEIO).
    EXPECT_STREQ(fi_cq_strerror(p.rx, FI_ENOMEM, nullptr, text, sizeof(text)), fi_strerror(FI_ENOMEM));
    EXPECT_STREQ(text, fi_strerror(FI_ENOMEM));
}

/// 2^32 + 1 is not 1.
TEST(Endpoint, MoreRingsThanThereCanBeAreRefused)
{
    Objects o{Wishes{}};
    fid_cq* const cq = o.open_queue();
    fid_ep* ep = nullptr;
    ASSERT_EQ(fi_endpoint(o.domain, o.info, &ep, nullptr), 0);
    ASSERT_EQ(fi_ep_bind(ep, &o.av->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    setenv("FI_TOFU_RINGS", "4294967297", 1);
    EXPECT_EQ(fi_enable(ep), -FI_EINVAL);
    unsetenv("FI_TOFU_RINGS");
    EXPECT_EQ(fi_close(&ep->fid), 0);
}

/// The structure has grown twice: a caller of an older interface has no room for later members (fi_cq(3)).
TEST(Queue, AnErrorEntryIsAsLongAsTheInterfaceAskedForSays)
{
    const std::pair<std::uint32_t, std::size_t> sizes[] = {
        {FI_VERSION(1, 4), offsetof(fi_cq_err_entry, err_data_size)},
        {FI_VERSION(1, 17), offsetof(fi_cq_err_entry, err_data_size) + sizeof(std::size_t)},
    };
    for (auto [version, size] : sizes) {
        Wishes wishes;
        wishes.version = version;
        Queues p(FI_CQ_FORMAT_TAGGED, 0, wishes);
        ASSERT_EQ(fi_trecv(p.b, p.in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, p.in), 0);
        ASSERT_EQ(fi_cancel(&p.b->fid, p.in), 0);
        fi_cq_tagged_entry entry{};
        ASSERT_EQ(fi_cq_read(p.rx, &entry, 1), -FI_EAVAIL);
        alignas(fi_cq_err_entry) unsigned char room[128];
        std::memset(room, 0x5a, sizeof(room));
        auto* const error = reinterpret_cast<fi_cq_err_entry*>(room);
        // Not by fi_cq_readerr, which stores a source itself since libfabric 1.20: in its caller, which knows the
        // member.
        ASSERT_EQ(p.rx->ops->readerr(p.rx, error, 0), 1);
        EXPECT_EQ(error->err, FI_ECANCELED);
        EXPECT_EQ(std::count(room + size, room + sizeof(room), 0x5a), static_cast<long>(sizeof(room) - size));
    }
}

/// A caller without a buffer for the provider's data gets a pointer to them, which is null.
TEST(Queue, AnErrorEntryPointsToNoDataWhereThereIsNone)
{
    Queues p;
    ASSERT_EQ(fi_trecv(p.b, p.in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, p.in), 0);
    ASSERT_EQ(fi_cancel(&p.b->fid, p.in), 0);
    fi_cq_err_entry error{};
    error.err_data = p.in;
    ASSERT_EQ(fi_cq_readerr(p.rx, &error, 0), 1);
    EXPECT_EQ(error.err_data, nullptr);
    EXPECT_EQ(error.err_data_size, 0u);
}

TEST(Queue, TruncationTellsTheBytesThatWereLost)
{
    Queues p;
    Objects::post(p.rx, [&] { return fi_trecv(p.b, p.in, 10, nullptr, FI_ADDR_UNSPEC, 3, 0, p.in); });
    Objects::post(p.tx, [&] { return fi_tsend(p.a, p.out, 64, nullptr, 1, 3, nullptr); });
    fi_cq_tagged_entry entry;
    ASSERT_TRUE(eventually([&] {
        fi_cq_read(p.tx, nullptr, 0);
        return fi_cq_read(p.rx, &entry, 1) == -FI_EAVAIL;
    }));
    fi_cq_err_entry error{};
    ASSERT_EQ(fi_cq_readerr(p.rx, &error, 0), 1);
    EXPECT_EQ(error.err, FI_ETRUNC);
    EXPECT_EQ(error.olen, 54u);
    EXPECT_EQ(error.op_context, p.in);
}

TEST(Queue, ReadFromReturnsTheSource)
{
    Queues p;
    p.send(1, 8, nullptr);
    p.complete(1);
    fi_cq_tagged_entry entry;
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    ASSERT_EQ(fi_cq_readfrom(p.rx, &entry, 1, &source), 1);
    EXPECT_EQ(source, 0u);
}

/// The context that pairs FI_PEEK | FI_CLAIM with FI_CLAIM is the application's, whatever its value (fi_tagged(3)).
TEST(Queue, AMessageIsClaimedUnderAnyContext)
{
    Queues p;
    fi_cq_tagged_entry entry{};
    const iovec iov{p.in, sizeof(p.in)};
    fi_msg_tagged claim{};
    claim.addr = FI_ADDR_UNSPEC;
    claim.tag = 5;
    claim.context = nullptr;
    const auto send = [&](char first) {
        p.out[0] = first;
        p.post(p.tx, [&] { return fi_tsend(p.a, p.out, 8, nullptr, 1, 5, p.out); });
    };
    const auto look = [&](std::uint64_t flags) {
        return eventually([&] {
            fi_cq_read(p.tx, nullptr, 0);
            EXPECT_EQ(fi_trecvmsg(p.b, &claim, FI_PEEK | flags), 0);
            fi_cq_err_entry error{};
            return fi_cq_read(p.rx, &entry, 1) == 1 || (fi_cq_readerr(p.rx, &error, 0), false);
        });
    };
    send('A');
    ASSERT_TRUE(look(FI_CLAIM));
    send('B');
    ASSERT_TRUE(look(0)); // the second one has come, too
    claim.msg_iov = &iov;
    claim.iov_count = 1;
    ASSERT_EQ(fi_trecvmsg(p.b, &claim, FI_CLAIM), 0);
    ASSERT_TRUE(eventually([&] { return fi_cq_read(p.rx, &entry, 1) == 1; }));
    EXPECT_EQ(p.in[0], 'A');
    ASSERT_EQ(fi_trecvmsg(p.b, &claim, 0), 0);
    ASSERT_TRUE(eventually([&] { return fi_cq_read(p.rx, &entry, 1) == 1; }));
    EXPECT_EQ(p.in[0], 'B');
}

/// A claim of a message and one of a tagged message are two, even under one context.
TEST(Queue, AClaimTakesAMessageOfItsKind)
{
    Queues p;
    fi_cq_tagged_entry entry{};
    fi_msg_tagged tagged{};
    tagged.addr = FI_ADDR_UNSPEC;
    tagged.tag = 5;
    fi_msg plain{};
    plain.addr = FI_ADDR_UNSPEC;
    const auto peek = [&](auto&& call) {
        return eventually([&] {
            fi_cq_read(p.tx, nullptr, 0);
            EXPECT_EQ(call(), 0);
            fi_cq_err_entry error{};
            return fi_cq_read(p.rx, &entry, 1) == 1 || (fi_cq_readerr(p.rx, &error, 0), false);
        });
    };
    p.out[0] = 'M';
    p.post(p.tx, [&] { return fi_send(p.a, p.out, 8, nullptr, 1, p.out); });
    ASSERT_TRUE(peek([&] { return fi_recvmsg(p.b, &plain, FI_PEEK | FI_CLAIM); }));
    const iovec iov{p.in, sizeof(p.in)};
    tagged.msg_iov = &iov;
    tagged.iov_count = 1;
    EXPECT_EQ(fi_trecvmsg(p.b, &tagged, FI_CLAIM), -FI_EINVAL);
    p.out[0] = 'T';
    p.post(p.tx, [&] { return fi_tsend(p.a, p.out, 8, nullptr, 1, 5, p.out); });
    ASSERT_TRUE(peek([&] { return fi_trecvmsg(p.b, &tagged, FI_PEEK | FI_CLAIM); }));
    ASSERT_EQ(fi_trecvmsg(p.b, &tagged, FI_CLAIM), 0);
    ASSERT_TRUE(eventually([&] { return fi_cq_read(p.rx, &entry, 1) == 1; }));
    EXPECT_EQ(p.in[0], 'T');
    EXPECT_NE(entry.flags & FI_TAGGED, 0u);
    plain.msg_iov = &iov;
    plain.iov_count = 1;
    ASSERT_EQ(fi_recvmsg(p.b, &plain, FI_CLAIM), 0);
    ASSERT_TRUE(eventually([&] { return fi_cq_read(p.rx, &entry, 1) == 1; }));
    EXPECT_EQ(p.in[0], 'M');
}

/// FI_DISCARD belongs to a peek or a claim (fi_tagged(3)), which have no buffer. A receive that had it alone would
/// write to whatever address the call has.
TEST(Queue, ADiscardWithoutAPeekIsRefused)
{
    Queues p;
    const iovec nowhere{nullptr, 8};
    fi_msg plain{};
    plain.msg_iov = &nowhere;
    plain.iov_count = 1;
    plain.addr = FI_ADDR_UNSPEC;
    fi_msg_tagged tagged{};
    tagged.msg_iov = &nowhere;
    tagged.iov_count = 1;
    tagged.addr = FI_ADDR_UNSPEC;
    tagged.tag = 5;
    EXPECT_EQ(fi_recvmsg(p.b, &plain, FI_DISCARD), -FI_EBADFLAGS);
    EXPECT_EQ(fi_trecvmsg(p.b, &tagged, FI_DISCARD | FI_COMPLETION), -FI_EBADFLAGS);
    p.send(5, 8, p.in);
    p.complete(1);
}

/// Flags that would make another operation of it are not passed over: a triggered one (fi_trigger(3)) must not start at
/// once.
TEST(Queue, AMessageOfAnotherKindIsRefused)
{
    Queues p;
    const iovec iov{p.out, 8};
    fi_msg plain{};
    plain.msg_iov = &iov;
    plain.iov_count = 1;
    plain.addr = 1;
    fi_msg_tagged tagged{};
    tagged.msg_iov = &iov;
    tagged.iov_count = 1;
    tagged.addr = 1;
    for (const std::uint64_t flag : {FI_TRIGGER, FI_MULTICAST}) {
        EXPECT_EQ(fi_sendmsg(p.a, &plain, flag), -FI_EBADFLAGS);
        EXPECT_EQ(fi_tsendmsg(p.a, &tagged, flag), -FI_EBADFLAGS);
        EXPECT_EQ(fi_recvmsg(p.b, &plain, flag), -FI_EBADFLAGS);
        EXPECT_EQ(fi_trecvmsg(p.b, &tagged, flag), -FI_EBADFLAGS);
    }
    fi_cq_tagged_entry entry{};
    EXPECT_EQ(fi_cq_read(p.tx, &entry, 1), -FI_EAGAIN);
}

TEST(Queue, IsBusyWhileAnEndpointUsesIt)
{
    Queues p;
    EXPECT_EQ(fi_close(&p.tx->fid), -FI_EBUSY);
    EXPECT_EQ(fi_close(&p.received->fid), -FI_EBUSY);
    EXPECT_EQ(fi_close(&p.av->fid), -FI_EBUSY);
    EXPECT_EQ(fi_close(&p.domain->fid), -FI_EBUSY);
    EXPECT_EQ(fi_close(&p.fabric->fid), -FI_EBUSY);
}

TEST(Queue, RefusesBadAttributes)
{
    Objects o;
    fid_cq* cq = nullptr;
    fi_cq_attr attr{};
    attr.format = static_cast<fi_cq_format>(99);
    EXPECT_LT(fi_cq_open(o.domain, &attr, &cq, nullptr), 0);
    attr = {};
    attr.wait_obj = FI_WAIT_SET;
    EXPECT_EQ(fi_cq_open(o.domain, &attr, &cq, nullptr), -FI_EINVAL); // without a set
    attr.wait_obj = FI_WAIT_POLLFD;
    EXPECT_EQ(fi_cq_open(o.domain, &attr, &cq, nullptr), -FI_ENOSYS);
    attr = {};
    attr.flags = std::uint64_t{1} << 40;
    EXPECT_LT(fi_cq_open(o.domain, &attr, &cq, nullptr), 0);
    fid_cq* none = o.open_queue();
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_sread(none, &entry, 1, nullptr, 0), -FI_EINVAL); // FI_WAIT_NONE
}

/// CPU seconds for which `count` queues and as many counters, opened one after the other, are closed, the last first
/// or the first first.
double seconds_to_close(std::size_t count, bool last_first)
{
    Objects o;
    for (std::size_t i = 0; i < count; i++) {
        o.open_queue(FI_WAIT_NONE, FI_CQ_FORMAT_CONTEXT, 1);
        o.open_counter(FI_WAIT_NONE);
    }
    if (last_first)
        std::reverse(o.others.begin(), o.others.end());
    const double begin = cpu_seconds();
    for (fid* object : o.others)
        EXPECT_EQ(fi_close(object), 0);
    const double seconds = cpu_seconds() - begin;
    o.others.clear();
    return seconds;
}

// libfabric's fi_cq_test opens 32768 queues and closes them in the same order.
TEST(Queue, ClosesInATimeThatTheNumberOfOpenOnesDoesNotChange)
{
    constexpr std::size_t count = 8192;
    const double last_first = seconds_to_close(count, true);
    EXPECT_LT(seconds_to_close(count, false), 0.1 + 5 * last_first);
}

TEST(Counter, AddSetAndErrorsAreSeenByTheNextRead)
{
    Objects o;
    fid_cntr* c = o.open_counter();
    EXPECT_EQ(fi_cntr_read(c), 0u);
    EXPECT_EQ(fi_cntr_add(c, 5), 0);
    EXPECT_EQ(fi_cntr_read(c), 5u);
    EXPECT_EQ(fi_cntr_set(c, 2), 0);
    EXPECT_EQ(fi_cntr_read(c), 2u);
    EXPECT_EQ(fi_cntr_readerr(c), 0u);
    EXPECT_EQ(fi_cntr_adderr(c, 3), 0);
    EXPECT_EQ(fi_cntr_readerr(c), 3u);
    EXPECT_EQ(fi_cntr_seterr(c, 1), 0);
    EXPECT_EQ(fi_cntr_readerr(c), 1u);
    EXPECT_EQ(fi_cntr_read(c), 2u);
}

TEST(Counter, CountsWhatCompletes)
{
    Queues p;
    for (unsigned i = 1; i <= 10; i++) {
        p.send(i, 16, nullptr);
        p.complete(i);
    }
    EXPECT_EQ(fi_cntr_read(p.received), 10u);
    EXPECT_EQ(fi_cntr_wait(p.received, 10, 0), 0);
    EXPECT_EQ(fi_cntr_wait(p.received, 11, 1), -FI_ETIMEDOUT);
}

} // namespace
