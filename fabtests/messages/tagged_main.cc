// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_tagged(3), statement by statement, between processes; any provider (-p). Run by make check and by hand.
#include <cstring>

#include "mail.h"

namespace fabtests {
namespace {

/// "send_tag & ~ignore == recv_tag & ~ignore", for all 64 bits
void matching(World& w)
{
    Mail m(w, true);
    const std::uint64_t format = w.info().ep_attr->mem_tag_format;
    const std::uint64_t all = w.ours() || format == 0 ? ~std::uint64_t{0} : format;
    CHECK(w, !w.ours() || format == ~std::uint64_t{0});
    const struct {
        std::uint64_t tag, ignore;
    } wants[] = {
        {0x1234567890abcdef & all, 0},
        {0x8000000000000000 & all, 0x7fffffffffffffff & all},
        {0x00ff00000000ff00 & all, 0x000000ffffff0000 & all},
        {0, 0},
        {0, ~std::uint64_t{0}}, // takes the rest
    };
    const std::uint64_t sends[] = {0, 0x00ff00123456ff00 & all, 0x4000000000000001 & all, 0x8000000000000123 & all,
                                   0x1234567890abcdef & all};
    const unsigned answers[] = {3, 2, 4, 1, 0}; // the receiver
    for (bool posted : {true, false}) {
        int contexts[5] = {};
        auto post = [&] {
            for (unsigned i = 0; i < 5; ++i)
                CHECK(w, m.recv(Form::plain, {{m.in(i * 64), 64}}, FI_ADDR_UNSPEC, wants[i].tag, wants[i].ignore,
                                &contexts[i]) == 0);
        };
        if (posted)
            post();
        w.barrier();
        for (unsigned i = 0; i < 5; ++i) {
            fill(m.out(i * 64), 64, w.rank(), i);
            CHECK(w, m.send(m.out(i * 64), 64, m.next(), sends[i]) == 0);
        }
        w.barrier();
        if (!posted)
            post();
        for (unsigned i = 0; i < 5; ++i) {
            const Entry r = m.received();
            CHECK(w, r.error.err == 0);
            unsigned who = 0;
            while (who < 4 && r.ok.op_context != &contexts[who])
                ++who;
            unsigned which = 0;
            while (which < 4 && answers[which] != who)
                ++which;
            // "This field contains the tag that was included with the received message."
            CHECK(w, r.ok.tag == sends[which]);
            CHECK(w, wrong(m.in(who * 64), 64, m.before(), which) == 0);
            CHECK(w, m.sent().error.err == 0);
        }
        w.barrier();
    }
    CHECK(w, m.quiet());
}

/// Tagged messages go to tagged receives, the others to the others.
void apart(World& w)
{
    Mail tagged(w, true);
    if (!w.has(FI_MSG))
        return;
    fid_ep* const ep = tagged.station.ep();
    int plain = 0, with_tag = 0;
    CHECK(w, fi_recv(ep, tagged.in(), 64, w.desc(), FI_ADDR_UNSPEC, &plain) == 0);
    CHECK(w, tagged.recv(Form::plain, {{tagged.in(64), 64}}, FI_ADDR_UNSPEC, 0, ~0ull, &with_tag) == 0);
    w.barrier();
    CHECK(w, tagged.send(tagged.out(), 10, tagged.next(), 77) == 0);
    Entry r = tagged.received();
    CHECK(w, r.ok.op_context == &with_tag && r.ok.tag == 77);
    CHECK(w, tagged.station.post([&] {
        return fi_send(ep, tagged.out(), 20, w.desc(), tagged.station.peer(tagged.next()), nullptr);
    }) == 0);
    r = tagged.received();
    CHECK(w, r.ok.op_context == &plain && r.ok.len == 20);
    CHECK(w, (r.ok.flags & FI_MSG) != 0);
    tagged.sent();
    tagged.sent();
    CHECK(w, tagged.quiet());
}

/// One look for a message: posts it and reads its answer.
Entry peek(Mail& m, std::uint64_t tag, std::uint64_t ignore, void* context, std::uint64_t flags = 0,
           fi_addr_t from = FI_ADDR_UNSPEC)
{
    CHECK(m.w, m.recv(Form::msg, {}, from, tag, ignore, context, FI_PEEK | FI_COMPLETION | flags) == 0);
    return m.received();
}

/// The same until it is there.
Entry find(Mail& m, std::uint64_t tag, std::uint64_t ignore, void* context, std::uint64_t flags = 0)
{
    Entry entry;
    m.w.until([&] {
        entry = peek(m, tag, ignore, context, flags);
        return entry.error.err == 0;
    });
    return entry;
}

constexpr std::size_t sizes[] = {0, 8, 150, 3000, 100000};

/// Messages of all the sizes, tag 100 + i.
void send_all(Mail& m)
{
    std::size_t at = 0;
    for (unsigned i = 0; i < 5; at += sizes[i++]) {
        fill(m.out(at), sizes[i], m.w.rank(), i);
        CHECK(m.w, m.send_data(m.out(at), sizes[i], 1000 + i, m.next(), 100 + i, nullptr) == 0);
    }
}

void receive(Mail& m, unsigned i)
{
    CHECK(m.w, m.recv(m.in(), 100000, 100 + i) == 0);
    const Entry r = m.received();
    CHECK(m.w, r.error.err == 0 && r.ok.len == sizes[i]);
    CHECK(m.w, wrong(m.in(), sizes[i], m.before(), i) == 0);
}

/// FI_PEEK: "may be used to see if a specified message has arrived"
void peeking(World& w)
{
    Mail m(w, true);
    // "If no message is found ... a completion queue error entry with err field set to FI_ENOMSG"
    fi_context context;
    const Entry none = peek(m, 100, 0, &context);
    CHECK(w, none.error.err == FI_ENOMSG);
    CHECK(w, none.error.op_context == &context);
    w.barrier();
    send_all(m);
    for (unsigned i = 5; i-- > 0;) {
        // "The returned completion data will indicate the meta-data associated with the message, such as the message
        // length, completion flags, available CQ data, tag, and source address."
        for (unsigned twice = 0; twice < 2; ++twice) {
            const Entry r = find(m, 100 + i, 0, &context);
            CHECK(w, r.error.err == 0);
            CHECK(w, r.ok.op_context == &context);
            CHECK(w, r.ok.len == sizes[i]);
            CHECK(w, r.ok.tag == 100 + i);
            CHECK(w, (r.ok.flags & FI_RECV) != 0);
            CHECK(w, (r.ok.flags & FI_REMOTE_CQ_DATA) != 0 && r.ok.data == 1000 + i);
            CHECK(w, !w.has(FI_SOURCE) || r.source == m.station.peer(m.before()));
        }
        // It is still there for a receive; then no longer.
        receive(m, i);
        CHECK(w, peek(m, 100 + i, 0, &context).error.err == FI_ENOMSG);
    }
    for (unsigned i = 0; i < 5; ++i)
        CHECK(w, m.sent().error.err == 0);
    CHECK(w, m.quiet());
}

/// A peek looks for the first that matches, by mask and by source.
void peek_first(World& w)
{
    Mail m(w, true);
    fi_context context;
    for (unsigned i = 0; i < 3; ++i)
        CHECK(w, m.send(m.out(), 10 + i, m.next(), 0x500 + i) == 0);
    CHECK(w, m.send(m.out(), 1, m.next(), 0x600) == 0);
    CHECK(w, find(m, 0x600, 0, &context).error.err == 0); // all have come
    const Entry r = peek(m, 0x500, 0xff, &context);
    CHECK(w, r.error.err == 0 && r.ok.tag == 0x500 && r.ok.len == 10);
    if (w.has(FI_DIRECTED_RECV) && w.ranks() > 1) {
        CHECK(w, peek(m, 0x500, 0xff, &context, 0, m.station.peer(w.rank())).error.err == FI_ENOMSG);
        CHECK(w, peek(m, 0x500, 0xff, &context, 0, m.station.peer(m.before())).ok.tag == 0x500);
    }
    for (unsigned i = 0; i < 4; ++i) {
        CHECK(w, m.recv(Form::plain, {{m.in(), 64}}, FI_ADDR_UNSPEC, 0, ~0ull, nullptr) == 0);
        CHECK(w, m.received().error.err == 0);
        CHECK(w, m.sent().error.err == 0);
    }
    CHECK(w, m.quiet());
}

/// FI_CLAIM: "Claimed messages can only be retrieved using a subsequent, paired receive operation"
void claim(World& w)
{
    Mail m(w, true);
    fi_context contexts[5], other;
    send_all(m);
    for (unsigned i = 0; i < 5; ++i) {
        const Entry r = find(m, 100 + i, 0, &contexts[i], FI_CLAIM);
        CHECK(w, r.error.err == 0 && r.ok.len == sizes[i] && r.ok.tag == 100 + i);
        // No other receive sees it.
        CHECK(w, peek(m, 100 + i, 0, &other).error.err == FI_ENOMSG);
        CHECK(w, peek(m, 100 + i, 0, &other, FI_CLAIM).error.err == FI_ENOMSG);
    }
    // A wildcard receive gets the next message, not a claimed one.
    CHECK(w, m.recv(Form::plain, {{m.in(200000), 64}}, FI_ADDR_UNSPEC, 0, ~0ull, &other) == 0);
    w.barrier();
    CHECK(w, m.send(m.out(), 40, m.next(), 9) == 0);
    const Entry r = m.received();
    CHECK(w, r.ok.op_context == &other && r.ok.tag == 9);
    for (unsigned i : {3u, 0u, 4u, 1u, 2u}) {
        std::memset(m.in(), 0, sizes[i]);
        CHECK(w, m.recv(Form::msg, {{m.in(), 100000}}, FI_ADDR_UNSPEC, 100 + i, 0, &contexts[i],
                        FI_CLAIM | FI_COMPLETION) == 0);
        const Entry got = m.received();
        CHECK(w, got.error.err == 0 && got.ok.op_context == &contexts[i]);
        CHECK(w, got.ok.len == sizes[i] && got.ok.tag == 100 + i && got.ok.data == 1000 + i);
        CHECK(w, wrong(m.in(), sizes[i], m.before(), i) == 0);
    }
    for (unsigned i = 0; i < 6; ++i)
        CHECK(w, m.sent().error.err == 0);
    CHECK(w, m.quiet());
}

/// FI_DISCARD, with FI_PEEK and with FI_CLAIM: "the message is discarded by the provider"
void discard(World& w)
{
    Mail m(w, true);
    fi_context context;
    for (bool claimed : {false, true}) {
        send_all(m);
        for (unsigned i = 0; i < 5; ++i) {
            if (claimed) {
                CHECK(w, find(m, 100 + i, 0, &context, FI_CLAIM).ok.len == sizes[i]);
                CHECK(w, m.recv(Form::msg, {}, FI_ADDR_UNSPEC, 100 + i, 0, &context,
                                FI_CLAIM | FI_DISCARD | FI_COMPLETION) == 0);
                CHECK(w, m.received().error.err == 0);
            } else {
                CHECK(w, find(m, 100 + i, 0, &context, FI_DISCARD).ok.len == sizes[i]);
            }
            CHECK(w, peek(m, 100 + i, 0, &context).error.err == FI_ENOMSG);
            // Its sender is notified as if it had been received.
            CHECK(w, m.sent().error.err == 0);
        }
        w.barrier();
    }
    CHECK(w, m.quiet());
}

constexpr auto cases = both_and<true>({
    {"matching", matching},
    {"apart", apart},
    {"peek", peeking},
    {"peek_first", peek_first},
    {"claim", claim},
    {"discard", discard},
});

} // namespace

const Program program{{.ranks = 3,
                       .caps = FI_TAGGED,
                       .wished_caps = FI_MSG | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE | FI_FENCE,
                       .msg_order = FI_ORDER_SAS,
                       .region_size = std::size_t{4} << 20},
                      cases};

} // namespace fabtests
