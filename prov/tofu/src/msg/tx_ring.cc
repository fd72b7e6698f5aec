// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See tx_ring.h.
#include "msg/tx_ring.h"

#include <atomic>
#include <cstring>

#include "core/log.h"

namespace tofu::proto {

// --- by address

int Outbound::channel_to(const Destination& destination, Channel*& channel) noexcept
{
    channel = channels.find(destination);
    return channel != nullptr ? 0 : make_channel(destination, channel);
}

[[gnu::noinline]] int Outbound::make_channel(const Destination& destination, Channel*& channel) noexcept
{
    const Peer& peer = destination.peer;
    if (destination.context > peer.further)
        return -FI_EINVAL; // the peer has no such context; the number may belong to another endpoint
    const unsigned index = peer.index + destination.context;
    // An endpoint that stands in the address vector more than once has one channel, so its packets have one order.
    Channel* made = channels.to(peer, index);
    if (made != nullptr) {
        made->aliased |= made->place != destination.place || made->context != destination.context;
    } else if (!channels.reserve()) {
        return -FI_ENOMEM;
    } else if ((made = port_.protocol.make_channel()) != nullptr) {
        made->owner = this;
        made->number = static_cast<std::uint16_t>(channels.size());
        static std::atomic<std::uint16_t> serials{0}; // unlike those of an earlier endpoint with our number
        made->serial =
            static_cast<std::uint16_t>((port_.self.nonce >> 16) + serials.fetch_add(0x9e37, std::memory_order_relaxed));
        made->anonymous.notify = AnonTx::on_notice;
        made->life.notify = on_life;
        made->anonymous.of = made->life.of = made;
        channels.add(*made);
    } else if ((made = leases.reuse()) == nullptr) {
        return -FI_EAGAIN;
    }
    if (!made->aliased) {
        made->place = destination.place;
        made->context = destination.context;
    }
    made->peer = peer;
    made->peer.index = static_cast<std::uint16_t>(index);
    if (!channels.enter(destination, *made))
        return -FI_ENOMEM; // the next call finds the channel
    channel = made;
    return 0;
}

// --- room

int Outbound::approach(Channel& ch) noexcept
{
    if (ch.anonymous.asked || ch.state == ChannelState::leaving)
        leases.check(ch);
    const int ret = ch.state == ChannelState::open ? 0 : anon_tx.step(ch);
    if (ret == -FI_EAGAIN)
        port_.self.vcq.statistics().count(Stat::again_contact);
    return ret;
}

/// Reads the credit block when there seems to be no room. True if there is room after all.
[[gnu::noinline]] bool Outbound::look_for_room(Channel& ch, std::uint32_t slots) noexcept
{
    if (ch.state != ChannelState::open && ch.anonymous.slot != 0)
        return slots == 1;
    leases.check(ch);
    if (ch.leave && ch.state == ChannelState::open && leases.say_bye(ch)) [[unlikely]]
        return false; // a program that only sends, and never polls, comes by here once per ring
    if (ch.free_slots() >= slots && ch.state == ChannelState::open)
        return true;
    ch.starved++;
    port_.self.vcq.statistics().count(Stat::again_ring);
    return false;
}

// --- packets

void Outbound::defer(Channel& ch, const PacketWriter& packet, vcq::CompletionHandler* delivered) noexcept
{
    std::memcpy(ch.deferred.image, packet.data(), packet.size());
    ch.deferred.size = static_cast<std::uint8_t>(packet.size());
    ch.deferred.seq = ch.next_seq;
    ch.deferred.handler = delivered;
    deferred_++;
    port_.self.vcq.set_busy();
}

bool Outbound::flush(Channel& ch) noexcept
{
    Channel::Deferred& packet = ch.deferred;
    if (packet.size == 0)
        return ch.state == ChannelState::open;
    if (const vcq::Post post = put(ch, packet.seq, packet.image, packet.size, packet.handler);
        post != vcq::Post::done) {
        (void)post_failed(ch, post);
        return false;
    }
    packet.size = 0;
    packet.handler = nullptr;
    deferred_--;
    return true;
}

void Outbound::flush_all() noexcept
{
    if (deferred_ != 0)
        for (Channel* ch : channels)
            if (ch->deferred.size != 0 && ch->state == ChannelState::open)
                (void)flush(*ch);
}

[[gnu::noinline]] int Outbound::post_failed(Channel& ch, vcq::Post post) noexcept
{
    if (post == vcq::Post::busy)
        return -FI_EAGAIN;
    const int code = port_.self.vcq.last_error();
    fail(ch, fi_error_of(code), code);
    return -ch.err;
}

// --- the watch

void Outbound::watch(unsigned at_once) noexcept
{
    for (std::size_t i = 0; i < channels.size() && at_once != 0; i++) {
        Channel& ch = channels[next_asked_++ % channels.size()];
        if (ch.outstanding == 0 && ch.starved == 0 && ch.state != ChannelState::leaving && !ch.anonymous.asked)
            continue;
        ch.starved = 0;
        start_probe(ch);
        at_once--;
    }
}

/// Probes whether the peer is alive, once it has been met. Before that the anonymous packets find out whether there is
/// a peer. Where the probe has to wait, or an earlier one is under way, watch() asks later.
void Outbound::start_probe(Channel& ch) noexcept
{
    if (ch.state == ChannelState::failed || !ch.met)
        return;
    const vcq::Post post =
        ch.life.under_way ? vcq::Post::busy : port_.ask(ch.life, ch.peer.home, ch.area, sizeof(AreaHeader));
    if (post == vcq::Post::error)
        (void)post_failed(ch, post);
    else
        ch.starved += post == vcq::Post::busy;
}

void Outbound::on_life(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept
{
    Channel& ch = *static_cast<Inquiry<Channel>*>(handler)->of;
    Outbound& out = *ch.owner;
    const bool lives = notice.code == UTOFU_SUCCESS && same_process(ch.life.answer, ch.peer.nonce);
    out.port_.end(ch.life);
    if (out.port_.open && !lives)
        out.fail(ch, FI_EHOSTDOWN, notice.code != UTOFU_SUCCESS ? notice.code : UTOFU_ERR_MRQ_PEER);
}

// --- the end

[[gnu::noinline]] void Outbound::fail(Channel& ch, int err, int prov_errno) noexcept
{
    if (ch.state == ChannelState::failed)
        return;
    leases.lost(ch);
    ch.anonymous.slot = 0; // the slot stays unused at the peer
    ch.state = ChannelState::failed;
    ch.err = err != 0 ? err : FI_EIO;
    ch.prov_errno = prov_errno;
    if (ch.deferred.size != 0) {
        ch.deferred.size = 0;
        deferred_--;
    }
    TOFU_INFO(FI_LOG_EP_DATA, "endpoint %u: peer 0x%llx lost: %s\n", port_.self.index,
              static_cast<unsigned long long>(ch.peer.home), fi_strerror(ch.err));
    port_.protocol.channel_failed(ch, std::exchange(ch.deferred.handler, nullptr));
}

/// The error alone does not show that a peer is lost. The post may have been one to an earlier process with this VCQ
/// ID, a report or a completion word to another endpoint of the peer, which has been closed, or an injected write with
/// a bad key.
void Outbound::peer_failed(utofu_vcq_id_t home) noexcept
{
    for (Channel* ch : channels)
        if (ch->peer.home == home)
            start_probe(*ch);
}

void Outbound::say_byes() noexcept
{
    for (Channel* ch : channels) {
        anon_tx.dismiss(*ch);
        if (ch->state != ChannelState::open || !flush(*ch) || !room(*ch, 1))
            continue; // the peer finds out by its probes
        (void)leases.put_bye(*ch, bye_for_good);
        ch->state = ChannelState::failed;
        ch->err = FI_ESHUTDOWN;
    }
}

} // namespace tofu::proto
