// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a ring at a peer is won: its header, a claim word, HELLO. Part of Outbound; calls vcq.
#include "ring/outbound.h"

#include <cstring>

#include "provider/error.h"
#include "provider/log.h"

namespace tofu::proto {

namespace {
constexpr unsigned probes_in_a_row = 32;   // claim words tried before a pause
constexpr unsigned full_pause_ms = 5;
constexpr unsigned absent_pause_ms = 1;
constexpr std::uint64_t absent_limit_ms = 10000; // a peer that has an address enables its endpoint soon
} // namespace

[[gnu::noinline]] int Outbound::contact(Channel& ch) noexcept
{
    switch (ch.state) {
    case ChannelState::open: return 0;
    case ChannelState::failed: return -ch.err;
    case ChannelState::idle:
        ch.contact.first_try = port_.now;
        start_reading(ch);
        break;
    case ChannelState::pausing:
        if (port_.now >= ch.contact.pause_until)
            start_reading(ch);
        break;
    case ChannelState::leaving:
        check_return(ch);
        if (ch.state == ChannelState::idle)
            return contact(ch);
        break;
    case ChannelState::reading:
    case ChannelState::claiming: break;
    }
    if (ch.state == ChannelState::failed)
        return -ch.err;
    port_.self.vcq.statistics().count(Stat::again_contact);
    return -FI_EAGAIN;
}

void Outbound::start_reading(Channel& ch) noexcept
{
    if (ch.contact.under_way)
        return; // the notice of the last HELLO is still to come: as before
    if (int ret = port_.self.vcq.query_stadd(ch.peer.home, endpoint_stag(ch.peer.index), ch.area); ret != 0) {
        fail(ch, FI_EADDRNOTAVAIL, 0);
        return;
    }
    const ChannelState before = ch.state;
    ch.state = ChannelState::reading;
    const vcq::Post post = port_.ask(ch.contact, ch.peer.home, ch.area, sizeof(AreaHeader));
    if (post == vcq::Post::done)
        return;
    ch.state = before; // all blocks are out, or the queue of the TNI is full: as before
    if (post == vcq::Post::error)
        (void)post_failed(ch, post);
}

void Outbound::pause(Channel& ch, unsigned ms) noexcept
{
    ch.state = ChannelState::pausing;
    ch.contact.pause_until = port_.now + ms;
}

void Outbound::on_contact(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Channel& ch = *static_cast<Inquiry<Channel>*>(waiter)->of;
    Outbound& out = *ch.owner;
    ch.contact.under_way = false;
    if (!out.port_.open)
        return;
    if (ch.state == ChannelState::reading)
        out.on_header(ch, notice);
    else if (ch.state == ChannelState::claiming)
        out.on_claim(ch, notice);
    else
        out.on_hello(ch, notice);
}

void Outbound::on_header(Channel& ch, const vcq::Notice& notice) noexcept
{
    AreaHeader header;
    std::memcpy(&header, ch.contact.answer.data, sizeof header);
    port_.end(ch.contact);
    if (notice.code == UTOFU_ERR_MRQ_RMT_STADD && port_.now - ch.contact.first_try < absent_limit_ms) {
        pause(ch, absent_pause_ms); // the peer's endpoint is not enabled yet
        return;
    }
    if (notice.code != UTOFU_SUCCESS) {
        fail(ch, fi_error_of(notice.code), notice.code);
        return;
    }
    std::uint32_t free_ring = 0;
    switch (read_header(header, ch.peer.nonce, ch.peer.index, ch.geometry, free_ring)) {
    case Heading::usable: break;
    case Heading::other_version:
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "endpoint %u: peer 0x%llx speaks version %u of the wire protocol, this is %u: use the "
                  "same release of the provider on all nodes\n",
                  port_.self.index, static_cast<unsigned long long>(ch.peer.home), header.version,
                  wire_version);
        fail(ch, FI_ECONNREFUSED, 0);
        return;
    case Heading::other_process: fail(ch, FI_EHOSTDOWN, UTOFU_ERR_MRQ_PEER); return;
    case Heading::impossible:
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "endpoint %u: peer 0x%llx claims %u rings of %u slots, which cannot be: use the same release of the "
                  "provider on all nodes\n",
                  port_.self.index, static_cast<unsigned long long>(ch.peer.home), header.ring_count,
                  header.ring_slots);
        fail(ch, FI_EIO, 0);
        return;
    }
    ch.visit.barred = false;
    ch.contact.ring = free_ring < ch.geometry.ring_count ? free_ring : next_guess(ch);
    start_claiming(ch);
}

/// Claim words are tried from a place of our own on, so that senders do not meet.
std::uint32_t Outbound::next_guess(const Channel& ch) const noexcept
{
    const auto hash = peer_key(port_.self.home.id(), 0, port_.self.index) >> 8;
    return static_cast<std::uint32_t>((hash + ch.contact.tried) % ch.geometry.ring_count);
}

void Outbound::start_claiming(Channel& ch) noexcept
{
    ch.contact.ring %= ch.geometry.ring_count;
    count_claim(ch);
    ch.state = ChannelState::claiming;
    ch.contact.under_way = true;
    const auto post =
        port_.self.vcq.cswap(8, ch.peer.home, 0, port_.self.home.id(), ch.area + ch.geometry.claim(ch.contact.ring),
                    {.when = vcq::When::delivered, .waiter = &ch.contact});
    if (post == vcq::Post::done)
        return;
    ch.contact.under_way = false;
    uncount_claim(ch);
    if (post_failed(ch, post) == -FI_EAGAIN)
        pause(ch, 0);
}

void Outbound::on_claim(Channel& ch, const vcq::Notice& notice) noexcept
{
    if (notice.code != UTOFU_SUCCESS) {
        fail(ch, fi_error_of(notice.code), notice.code);
        return;
    }
    if (notice.value == 0) {
        greet(ch);
        return;
    }
    uncount_claim(ch);
    ch.contact.tried++; // taken
    ch.contact.ring = next_guess(ch);
    if (ch.contact.tried % probes_in_a_row != 0) {
        start_claiming(ch);
        return;
    }
    // No ring is free there: it shall ask for some. Rung again after the next look, so nothing is checked.
    port_.ring_doorbell(ch.peer.home, ch.area, Doorbell::ring_wanted, ch.contact.needed ? need : wish);
    pause(ch, full_pause_ms);
    try_later(ch);
}

/// The HELLO has arrived: from now on the peer knows whose ring it is.
void Outbound::on_hello(Channel& ch, const vcq::Notice& notice) noexcept
{
    uncount_claim(ch);
    if (notice.code != UTOFU_SUCCESS)
        fail(ch, fi_error_of(notice.code), notice.code);
}

/// While this is not 0, no peer takes a claim of the domain for an orphan (turnover.cc, case 2).
void Outbound::count_claim(Channel& ch) noexcept
{
    if (ch.contact.counted)
        return;
    ch.contact.counted = true;
    // seq_cst: a peer that sees the claim and then Gets the count finds it counted
    port_.self.claims.fetch_add(1, std::memory_order_seq_cst);
}

void Outbound::uncount_claim(Channel& ch) noexcept
{
    if (!ch.contact.counted)
        return;
    ch.contact.counted = false;
    // release: the claim's HELLO has arrived, or will never be sent
    port_.self.claims.fetch_sub(1, std::memory_order_release);
}

void Outbound::give_up_claims() noexcept
{
    for (Channel* ch : channels_)
        uncount_claim(*ch);
}

/// The ring is ours: its first slot takes the HELLO.
void Outbound::greet(Channel& ch) noexcept
{
    ch.leave = false;
    ch.starved = 0;
    ch.serial++;
    ch.ring = ch.area + ch.geometry.ring(ch.contact.ring);
    ch.slots = ch.geometry.ring_slots;
    ch.consumed = seq_base(ch.peer.nonce);
    for (std::uint32_t& mark : ch.mark) // what follows comes behind the HELLO
        mark = ch.consumed + 2 - (mark != ch.next_seq);
    ch.next_seq = ch.consumed + 1;
    port_.area.consumed(ch.number).store(0, std::memory_order_relaxed);
    // Put before the HELLO leaves: the peer answers with the same serial.
    port_.area.status(ch.number).store(0, std::memory_order_release);
    std::byte image[inline_limit];
    PacketWriter packet(image + sizeof image);
    packet.control(Type::hello, 0, 0, ch.next_seq);
    packet.put(Hello{port_.self.nonce, ch.peer.nonce, wire_version, static_cast<std::uint8_t>(port_.self.index),
                     static_cast<std::uint8_t>(port_.self.identity), ch.number, ch.serial});
    defer(ch, packet, nullptr);
    ch.next_seq++;
    ch.state = ChannelState::open;
    port_.self.vcq.statistics().count(Stat::ring_claimed);
    TOFU_PROBE(claim, ch.peer.home, ch.contact.ring);
    (void)flush(ch);
    dismiss(ch);
}

} // namespace tofu::proto
