// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How rings and channels change hands while their owners live, so that neither the number of senders of an endpoint
// nor that of its receivers is limited. Part of Outbound and of Inbound; calls vcq.
//
// S sends to R; the ring lies at R. S has it from its CSWAP on, until R has taken S's BYE and has written `closed`
// into S's return block. Only S says BYE, so nobody writes to a ring after its turnover; only R frees the claim
// word. Posts of one VCQ to one other in strong order arrive in order: S's packets before its BYE, R's reports
// before `closed`.
//
//  1. S dies before its CSWAP: nothing has happened.
//  2. S dies after its CSWAP and before its HELLO. R finds the claim word, and Gets the count of claims under way from
//     the domain that the word names. It counts S from before the CSWAP until the HELLO has arrived; when it is 0, or
//     there is no such domain or VCQ any more, and the HELLO is not there, nobody stands behind the claim: R frees
//     the ring. This holds where another process has got S's VCQ ID.
//  3. S is merely slow between CSWAP and HELLO (stopped, or it makes no calls): the count is not 0, the ring stays S's.
//  4. S dies between HELLO and BYE: R's probe finds out. R takes what was sent, then frees the ring. What was half
//     written is no packet: its control word, written last, is not there.
//  5. S dies after its BYE: R takes it; the Put of `closed` fails, which concerns nobody; the ring is free.
//  6. R asks for the ring back (give_back): S says BYE as soon as it sees that, in its progress or when it runs out
//     of credit. What S sends until then is taken as ever. R does not depend on S: it asks others as well.
//  7. R asks, and S says BYE by itself at the same time: the request comes before `closed` in the same words, and
//     counts for nothing while S waits for `closed`.
//  8. S wants to send after BYE: it waits for `closed` and then claims anew. So a pair never has two rings, and order
//     holds across turnovers.
//  9. R dies or closes its endpoint before `closed`: S probes while it waits, and the channel fails.
// 10. R's TNI has no room for `closed`: the BYE stays in the ring and is taken in a later round.
// 11. S uses the return block for another peer: only after `closed` or when R is gone, so no late report of R can hide
//     one of the other's. Every claim has a serial number of its own besides.
// 12. S has no credit for its BYE: R is not done with the ring either, and will report.
// 13. A hostile S keeps its ring, floods it or says BYE in the middle: its own ring, its own loss. It asks for rings
//     all the time: R asks for at most a few back every few milliseconds.
// 14. A hostile R says `closed` or give_back at will: `closed` counts only after BYE; S comes back by a new claim.
#include <utility>

#include "ring/inbound.h"
#include "ring/outbound.h"

namespace tofu::proto {

namespace {
constexpr unsigned asked_at_once = 8; // rings asked back, channels given up, in one go
constexpr unsigned leaving_at_once = 64;
} // namespace

// --- the sender

/// Reads what the peer wrote into the return block.
void Outbound::check_return(Channel& ch) noexcept
{
    // acquire: pairs with the peer's Put of the block; `consumed` was written with it
    const std::uint64_t status = port_.area.status(ch.number).load(std::memory_order_acquire);
    if (static_cast<std::uint32_t>(status >> 32) != ch.serial)
        return; // nothing yet
    const auto consumed =
        static_cast<std::uint32_t>(port_.area.consumed(ch.number).load(std::memory_order_acquire));
    const std::uint32_t sent = ch.next_seq - 1;
    ch.consumed = believed(consumed, sent, ch.consumed);
    switch (static_cast<ReturnStatus>(static_cast<std::uint32_t>(status))) {
    case ReturnStatus::open: break;
    case ReturnStatus::give_back: ch.leave |= ch.state == ChannelState::open; break;
    case ReturnStatus::closed:
        if (ch.state == ChannelState::leaving) {
            ch.state = ChannelState::idle;
            ch.visit.made = false; // it has taken all
            ch.visit.count = 0;
        }
        break;
    case ReturnStatus::refused_version: fail(ch, FI_ECONNREFUSED, 0); break;
    case ReturnStatus::refused_nonce: fail(ch, FI_EHOSTDOWN, UTOFU_ERR_MRQ_PEER); break;
    case ReturnStatus::refused_hello: fail(ch, FI_EIO, 0); break;
    }
}

vcq::Post Outbound::put_bye(Channel& ch, std::uint16_t kind) noexcept
{
    std::byte image[inline_limit];
    PacketWriter packet(image + sizeof image);
    packet.control(Type::bye, 0, kind, ch.next_seq);
    return put(ch, packet, nullptr);
}

/// Gives the ring back. False: not now, for want of credit or of room in the queue of the TNI.
bool Outbound::say_bye(Channel& ch) noexcept
{
    if (ch.state != ChannelState::open || !flush(ch) || ch.free_slots() == 0)
        return false;
    if (const vcq::Post post = put_bye(ch, bye_for_now); post != vcq::Post::done) {
        (void)post_failed(ch, post);
        return false;
    }
    for (std::uint32_t& mark : ch.mark)
        mark += mark == ch.next_seq;
    ch.next_seq++;
    ch.leave = false;
    ch.state = ChannelState::leaving;
    port_.self.vcq.statistics().count(Stat::ring_returned);
    return true;
}

void Outbound::look_at_returns(std::size_t most) noexcept
{
    for (std::size_t i = 0; i < most && i < channels_.size(); i++) {
        Channel& ch = *channels_[next_return_++ % channels_.size()];
        if (ch.visit.slot != 0 && std::exchange(ch.visit.lingers, true))
            dismiss(ch);
        if (ch.state != ChannelState::open && ch.state != ChannelState::leaving)
            continue;
        check_return(ch);
        if (ch.leave)
            (void)say_bye(ch);
    }
}

/// Is there nothing left by which a peer, or a notice, could touch the channel? (Case 11.)
bool Outbound::reusable(const Channel& ch) noexcept
{
    if (ch.outstanding != 0 || ch.life.under_way || ch.contact.under_way || ch.contact.counted ||
        ch.deferred.size != 0 || ch.visit.under_way || ch.visit.slot != 0)
        return false;
    switch (ch.state) {
    case ChannelState::idle:
    case ChannelState::pausing: return true;
    case ChannelState::failed: return ch.err == FI_EHOSTDOWN || ch.ring == 0;
    case ChannelState::reading:
    case ChannelState::claiming:
    case ChannelState::open:
    case ChannelState::leaving: return false;
    }
    return false;
}

/// A channel for another peer when all are made. Null: none now, but some are being given up.
[[gnu::noinline]] Channel* Outbound::reuse_channel() noexcept
{
    const std::size_t n = channels_.size();
    unsigned leaving = 0;
    for (std::size_t i = 0; i < n; i++) {
        Channel& ch = *channels_[(reuse_hand_ + i) % n];
        if (ch.state == ChannelState::leaving)
            check_return(ch);
        leaving += ch.state == ChannelState::leaving || ch.leave;
        if (!reusable(ch))
            continue;
        reuse_hand_ = (reuse_hand_ + i + 1) % n;
        unlink(ch);
        ch.state = ChannelState::idle;
        ch.leave = false;
        ch.err = ch.prov_errno = 0;
        ch.ring = ch.area = 0;
        ch.contact.tried = 0;
        ch.starved = 0;
        ch.visit.full = ch.visit.barred = ch.visit.made = false;
        ch.visit.count = ch.visit.enough = ch.visit.pause = ch.visit.rounds = 0;
        ch.mark[0] = ch.mark[1] = ch.next_seq;
        return &ch;
    }
    // Those unused since the hand last passed go first; all of them would be used in a while, so the first will do.
    for (std::size_t i = 0, found = 0;
         i < 2 * n && found < asked_at_once && leaving < leaving_at_once; i++) {
        Channel& ch = *channels_[reuse_hand_++ % n];
        if (ch.state != ChannelState::open || ch.outstanding != 0 || ch.leave)
            continue;
        if (i < n && ch.seen_seq != ch.next_seq) {
            ch.seen_seq = ch.next_seq;
            continue;
        }
        ch.leave = true;
        check_return(ch); // credit
        (void)say_bye(ch);
        found++;
        leaving++;
    }
    return nullptr;
}

// --- the receiver

/// A sender has found no free ring.
[[gnu::noinline]] void Inbound::on_ring_wanted(bool urgent) noexcept
{
    const unsigned count = geometry_.ring_count;
    for (unsigned i = 0; i < count; i++)
        if (rings_[i] == nullptr && port_.area.claim(i).load(std::memory_order_relaxed) == 0) {
            port_.area.set_hint(i + 1); // it has not looked everywhere
            return;
        }
    ask_back(urgent);
}

/// Asks for the rings of senders that were silent since the last time; where it is urgent and there are none, for any.
void Inbound::ask_back(bool urgent) noexcept
{
    const std::size_t n = polls_.size();
    unsigned asked = 0, probed = 0;
    for (std::size_t i = 0; i < 2 * n && asked < asked_at_once && (i < n || (urgent && asked == 0)); i++) {
        Ring& ring = *rings_[polls_[ask_hand_++ % n].ring];
        if (!ring.greeted || ring.asked) {
            if (i < n && probed++ < asked_at_once)
                start_probe(ring); // does it not answer because it is dead?
            continue;
        }
        if (i < n && ring.seen_seq != ring.next_seq) {
            ring.seen_seq = ring.next_seq;
            continue;
        }
        ring.asked = true;
        ring.status = ReturnStatus::give_back;
        report(ring);
        asked++;
    }
}

/// The answer to a BYE. False: no room in the queue of the TNI.
bool Inbound::answer_bye(Ring& ring) noexcept
{
    const ReturnBlock block{ring.next_seq, static_cast<std::uint32_t>(ReturnStatus::closed), ring.serial};
    if (port_.self.vcq.put_inline(ring.home, &block, ring.returns, sizeof block, {.strong_order = true}) ==
        vcq::Post::busy)
        return false;
    port_.ring_doorbell(ring.home, ring.area, Doorbell::status);
    return true;
}

} // namespace tofu::proto
