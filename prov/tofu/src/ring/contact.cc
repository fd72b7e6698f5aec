// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a ring at a peer is won (header, claim, HELLO), and how it is lost with the peer. Part of the messenger; calls
// vcq.
#include "message/messenger.h"

#include <utility>

#include <rdma/fi_errno.h>

#include "endpoint/endpoint.h"
#include "memory/region.h"
#include "provider/error.h"
#include "provider/log.h"
#include "queue/domain_base.h"

namespace tofu::proto {

namespace {
constexpr unsigned probes_in_a_row = 32;   // claim words tried before a pause
constexpr unsigned full_pause_ms = 5;
constexpr unsigned absent_pause_ms = 1;
constexpr std::uint64_t absent_limit_ms = 10000; // a peer that has an address enables its endpoint soon
} // namespace

int Messenger::channel_to(fi_addr_t dest, Channel*& channel) noexcept
{
    const Peer* peer = ep_.av().find(dest);
    if (peer == nullptr) [[unlikely]]
        return -FI_EINVAL;
    if (dest == last_dest_ && last_channel_->peer.generation == peer->generation) [[likely]] {
        channel = last_channel_;
        return 0;
    }
    const unsigned context = ep_.av().context_of(dest);
    Channel* found = channel_of_.find(ep_.av().place_of(dest), context);
    if (found != nullptr && found->peer.home == peer->home && found->peer.nonce == peer->nonce &&
        found->peer.index == peer->index + context) [[likely]] {
        found->peer.generation = peer->generation; // of two places that lead here, the one used last
        use_last(dest, *peer, *found);
        channel = found;
        return 0;
    }
    return make_channel(dest, *peer, channel);
}

[[gnu::noinline]] int Messenger::make_channel(fi_addr_t dest, const Peer& peer,
                                              Channel*& channel) noexcept
{
    const unsigned context = ep_.av().context_of(dest);
    if (context > peer.further)
        return -FI_EINVAL; // the number may be another endpoint's
    const unsigned index = peer.index + context;
    // The same endpoint may stand in the address vector more than once: it has one ring, and one order.
    Channel* made = nullptr;
    for (Channel* ch : channels_)
        if (ch->peer.home == peer.home && ch->peer.nonce == peer.nonce && ch->peer.index == index)
            made = ch;
    if (made != nullptr) {
        made->aliased |= made->dest != dest;
    } else if (!channels_.reserve(channels_.size() + 1) || !congested_.reserve(channels_.size() + 1)) {
        return -FI_ENOMEM;
    } else if ((made = channel_pool_.alloc()) != nullptr) {
        made->owner = this;
        made->number = static_cast<std::uint16_t>(channels_.size());
        made->serial = static_cast<std::uint16_t>((ep_.domain().nonce() >> 16) + made->number);
        made->contact.notify = on_contact;
        made->contact.channel = made;
        made->life.notify = on_life;
        made->life.channel = made;
        made->dest = dest;
        channels_.push_reserved(made);
    } else if ((made = reuse_channel()) != nullptr) {
        made->dest = dest;
    } else {
        return -FI_EAGAIN;
    }
    made->peer = peer;
    made->peer.index = static_cast<std::uint16_t>(index);
    if (!channel_of_.enter(ep_.av().place_of(dest), context, *made))
        return -FI_ENOMEM; // the next call finds the channel
    use_last(dest, peer, *made);
    channel = made;
    return 0;
}

/// Goes on with what stands between us and an open channel. 0 when it is open now.
[[gnu::noinline]] int Messenger::contact(Channel& ch) noexcept
{
    switch (ch.state) {
    case ChannelState::open: return 0;
    case ChannelState::failed: return -ch.err;
    case ChannelState::idle:
        ch.first_try = now_;
        start_reading(ch);
        break;
    case ChannelState::pausing:
        if (now_ >= ch.pause_until)
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
    return ch.state == ChannelState::failed ? -ch.err : -FI_EAGAIN;
}

void Messenger::start_reading(Channel& ch) noexcept
{
    if (ch.contacting)
        return; // the notice of the last HELLO is still to come: as before
    if (int ret = vcq_.query_stadd(ch.peer.home, endpoint_stag(ch.peer.index), ch.area); ret != 0) {
        fail(ch, FI_EADDRNOTAVAIL, 0);
        return;
    }
    if (ch.scratch.data == nullptr)
        ch.scratch = bounces_.alloc(sizeof(AreaHeader));
    if (ch.scratch.data == nullptr)
        return; // all blocks are out: as before
    const ChannelState before = ch.state;
    ch.state = ChannelState::reading;
    ch.contacting = true;
    const auto post = vcq_.get(ch.peer.home, ch.scratch.stadd, ch.area, sizeof(AreaHeader),
                               {.when = vcq::When::delivered, .waiter = &ch.contact});
    if (post == vcq::Post::done)
        return;
    ch.contacting = false;
    bounces_.release(ch.scratch);
    ch.scratch = {};
    ch.state = before;
    if (post == vcq::Post::error)
        fail(ch, fi_error_of(vcq_.last_error()), vcq_.last_error());
}

void Messenger::pause(Channel& ch, unsigned ms) noexcept
{
    ch.state = ChannelState::pausing;
    ch.pause_until = now_ + ms;
}

void Messenger::on_contact(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Channel& ch = *static_cast<Channel::Step*>(waiter)->channel;
    Messenger& m = *ch.owner;
    ch.contacting = false;
    if (!m.open_)
        return;
    if (ch.state == ChannelState::reading)
        m.on_header(ch, notice);
    else if (ch.state == ChannelState::claiming)
        m.on_claim(ch, notice);
    else
        m.on_hello(ch, notice);
}

void Messenger::on_header(Channel& ch, const vcq::Notice& notice) noexcept
{
    AreaHeader header;
    std::memcpy(&header, ch.scratch.data, sizeof header);
    bounces_.release(ch.scratch);
    ch.scratch = {};
    if (notice.code == UTOFU_ERR_MRQ_RMT_STADD && now_ - ch.first_try < absent_limit_ms) {
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
                  ep_.index(), static_cast<unsigned long long>(ch.peer.home), header.version,
                  wire_version);
        fail(ch, FI_ECONNREFUSED, 0);
        return;
    case Heading::other_process: fail(ch, FI_EHOSTDOWN, UTOFU_ERR_MRQ_PEER); return;
    case Heading::impossible:
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "endpoint %u: peer 0x%llx claims %u rings of %u slots, which cannot be: use the same release of the "
                  "provider on all nodes\n",
                  ep_.index(), static_cast<unsigned long long>(ch.peer.home), header.ring_count, header.ring_slots);
        fail(ch, FI_EIO, 0);
        return;
    }
    ch.ring_number = free_ring < ch.geometry.ring_count ? free_ring : next_guess(ch);
    start_claiming(ch);
}

/// Claim words are tried from a place of our own on, so that senders do not meet.
std::uint32_t Messenger::next_guess(const Channel& ch) const noexcept
{
    const auto hash = peer_key(ep_.domain().home_id(), 0, ep_.index()) >> 8;
    return static_cast<std::uint32_t>((hash + ch.probe) % ch.geometry.ring_count);
}

void Messenger::start_claiming(Channel& ch) noexcept
{
    ch.ring_number %= ch.geometry.ring_count;
    count_claim(ch);
    ch.state = ChannelState::claiming;
    ch.contacting = true;
    const auto post =
        vcq_.cswap8(ch.peer.home, 0, ep_.domain().home_id(), ch.area + ch.geometry.claim(ch.ring_number),
                    {.when = vcq::When::delivered, .waiter = &ch.contact});
    if (post == vcq::Post::done)
        return;
    ch.contacting = false;
    uncount_claim(ch);
    if (post == vcq::Post::busy)
        pause(ch, 0);
    else
        fail(ch, fi_error_of(vcq_.last_error()), vcq_.last_error());
}

void Messenger::on_claim(Channel& ch, const vcq::Notice& notice) noexcept
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
    ch.probe++; // taken
    ch.ring_number = next_guess(ch);
    if (ch.probe % probes_in_a_row != 0) {
        start_claiming(ch);
        return;
    }
    // No ring is free there: it shall ask for some. Rung again after the next look, so nothing is checked.
    ring_bell(ch.peer.home, ch.area, Bell::wish);
    pause(ch, full_pause_ms);
}

/// The HELLO has arrived: from now on the peer knows whose ring it is.
void Messenger::on_hello(Channel& ch, const vcq::Notice& notice) noexcept
{
    uncount_claim(ch);
    if (notice.code != UTOFU_SUCCESS)
        fail(ch, fi_error_of(notice.code), notice.code);
}

/// While this is not 0, no peer takes a claim of the domain for an orphan (turnover.cc, case 2).
void Messenger::count_claim(Channel& ch) noexcept
{
    if (ch.counted)
        return;
    ch.counted = true;
    // seq_cst: a peer that sees the claim and then Gets the count finds it counted
    ep_.domain().regions().claims().fetch_add(1, std::memory_order_seq_cst);
}

void Messenger::uncount_claim(Channel& ch) noexcept
{
    if (!ch.counted)
        return;
    ch.counted = false;
    // release: the claim's HELLO has arrived, or will never be sent
    ep_.domain().regions().claims().fetch_sub(1, std::memory_order_release);
}

/// The ring is ours: its first slot takes the HELLO.
void Messenger::greet(Channel& ch) noexcept
{
    ch.leave = false;
    ch.starved = 0;
    ch.serial++;
    ch.ring = ch.area + ch.geometry.ring(ch.ring_number);
    ch.slots = ch.geometry.ring_slots;
    ch.consumed = seq_base(ch.peer.nonce);
    const bool matched = ch.settled[1] == ch.next_seq;
    ch.next_seq = ch.consumed + 1;
    ch.settled[0] = ch.next_seq + 1; // behind the HELLO; before it there was a BYE, and that was the last taken
    ch.settled[1] = ch.settled[0] - !matched;
    area_.consumed(ch.number).store(0, std::memory_order_relaxed);
    // Put before the HELLO leaves: the peer answers with the same serial.
    area_.status(ch.number).store(0, std::memory_order_release);
    static_assert(sizeof(Hello) + sizeof(Control) == sizeof ch.deferred);
    PacketWriter packet(ch.deferred + sizeof ch.deferred);
    packet.control(Type::hello, 0, 0, ch.next_seq);
    packet.put(Hello{ep_.domain().nonce(), ch.peer.nonce, wire_version,
                     static_cast<std::uint8_t>(ep_.index()), static_cast<std::uint8_t>(ep_.identity()),
                     ch.number, ch.serial});
    ch.deferred_size = static_cast<std::uint8_t>(packet.size());
    ch.deferred_seq = ch.next_seq++;
    ch.deferred_waiter = nullptr;
    deferred_++;
    ch.state = ChannelState::open;
    (void)flush(ch);
}

/// The channel is of no use any more: all that waits for the peer ends with an error.
[[gnu::noinline]] void Messenger::fail(Channel& ch, int err, int prov_errno) noexcept
{
    if (ch.state == ChannelState::failed)
        return;
    ch.state = ChannelState::failed;
    ch.err = err != 0 ? err : FI_EIO;
    ch.prov_errno = prov_errno;
    if (ch.deferred_size != 0) {
        ch.deferred_size = 0;
        deferred_--;
    }
    if (!ch.contacting)
        uncount_claim(ch);
    if (SendRequest* waiter = std::exchange(ch.deferred_waiter, nullptr))
        end(*waiter, ch.err, prov_errno); // its packet will never leave
    TOFU_INFO(FI_LOG_EP_DATA, "endpoint %u: peer 0x%llx lost: %s\n", ep_.index(),
              static_cast<unsigned long long>(ch.peer.home), fi_strerror(ch.err));
    for (std::size_t i = waiting_fin_.size(); i-- > 0;) {
        if (i < waiting_fin_.size() && waiting_fin_[i]->channel == &ch)
            end(*waiting_fin_[i], ch.err, prov_errno);
    }
}

void Messenger::peer_failed(utofu_vcq_id_t home, int utofu_code) noexcept
{
    if (!open_ || home == 0)
        return;
    for (Channel* ch : channels_) {
        if (ch->peer.home != home ||
            (ch->state != ChannelState::open && ch->state != ChannelState::leaving))
            continue;
        // Reports and FINs go to areas of other endpoints of the peer's, too, which may have been closed; and what
        // failed may have been an injected write with a bad key.
        if (says_stale(utofu_code))
            start_probe(*ch);
        else
            fail(*ch, fi_error_of(utofu_code), utofu_code);
    }
    for (std::size_t i = polls_.size(); i-- > 0;) {
        Inbound* in = inbound_[polls_[i].ring].get();
        if (in->home == home)
            start_probe(*in);
    }
}

} // namespace tofu::proto
