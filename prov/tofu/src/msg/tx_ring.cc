// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See tx_ring.h.
#include "msg/tx_ring.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "core/log.h"

namespace tofu::proto {

// --- channels by address

int TxRings::channel_to(const Destination& destination, TxChannel*& channel) noexcept
{
    if (destination.context > destination.peer.further)
        return -FI_EINVAL;                // the peer has no such context; the number may belong to another endpoint
    channel = channels.find(destination); // an endpoint has one channel, so its packets have one order
    return channel != nullptr ? 0 : make_channel(destination, channel);
}

[[gnu::noinline]] int TxRings::make_channel(const Destination& destination, TxChannel*& channel) noexcept
{
    if (!channels.reserve())
        return -FI_ENOMEM;
    TxChannel* made = own_.protocol.make_channel();
    if (made != nullptr) {
        static std::atomic<std::uint16_t> serials{0}; // unlike those of an earlier endpoint with our number
        begin(*made, channels.size(), (own_.nonce >> 16) + serials.fetch_add(0x9e37, std::memory_order_relaxed), 1);
        channels.add(*made);
    } else if ((made = reuse()) == nullptr) {
        return -FI_EAGAIN;
    }
    made->peer = destination.peer;
    made->peer.index = static_cast<std::uint16_t>(destination.peer.index + destination.context);
    channels.enter(destination, *made);
    channel = made;
    return 0;
}

/// Makes a channel as new, for one more peer or for another one.
void TxRings::begin(TxChannel& ch, std::size_t number, std::uint64_t serial, std::uint32_t next_seq) noexcept
{
    ch = TxChannel{};
    ch.owner = this;
    ch.number = static_cast<std::uint16_t>(number);
    ch.serial = static_cast<std::uint16_t>(serial);
    ch.next_seq = ch.confirmed_seq[0] = ch.confirmed_seq[1] = next_seq;
    ch.set_consumed(next_seq - 1);
    ch.anonymous.notify = on_anon_notice;
    ch.life.notify = on_life;
    ch.anonymous.of = ch.life.of = &ch;
}

// --- room for packets

int TxRings::prepare_to_send(TxChannel& ch) noexcept
{
    if (ch.anonymous.asked || ch.state == ChannelState::releasing)
        read_credit_block(ch);
    const int ret = ch.state == ChannelState::open ? 0 : claim_anon_slot(ch);
    if (ret == -FI_EAGAIN)
        own_.vcq.statistics().count(Stat::again_contact);
    return ret;
}

/// Reads the credit block when there seems to be no room. True if there is room after all.
[[gnu::noinline]] bool TxRings::refresh_credits(TxChannel& ch, std::uint32_t slots) noexcept
{
    if (ch.state != ChannelState::open && ch.anonymous.slot != 0)
        return slots == 1;
    read_credit_block(ch);
    if (ch.release_requested && ch.state == ChannelState::open && release_ring(ch)) [[unlikely]]
        return false; // a program that only sends, and never polls, comes by here once per ring
    if (ch.free_slots() >= slots && ch.state == ChannelState::open)
        return true;
    ch.credit_stalls++;
    own_.vcq.statistics().count(Stat::again_ring);
    return false;
}

// --- packets

void TxRings::defer(TxChannel& ch, const PacketWriter& packet, vcq::CompletionHandler* delivered) noexcept
{
    std::memcpy(ch.deferred.image, packet.data(), packet.size());
    ch.deferred.size = static_cast<std::uint8_t>(packet.size());
    ch.deferred.seq = ch.next_seq;
    ch.deferred.handler = delivered;
    deferred_++;
    own_.vcq.set_busy();
}

bool TxRings::flush(TxChannel& ch) noexcept
{
    TxChannel::Deferred& packet = ch.deferred;
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

void TxRings::flush_all() noexcept
{
    if (deferred_ != 0)
        for (TxChannel* ch : channels)
            if (ch->deferred.size != 0 && ch->state == ChannelState::open)
                (void)flush(*ch);
}

[[gnu::noinline]] int TxRings::post_failed(TxChannel& ch, vcq::Post post) noexcept
{
    if (post == vcq::Post::busy)
        return -FI_EAGAIN;
    const int code = own_.vcq.last_error();
    fail(ch, fi_error_of(code), code);
    return -ch.err;
}

// --- the watch

void TxRings::watch(unsigned at_once) noexcept
{
    for (std::size_t i = 0; i < channels.size() && at_once != 0; i++) {
        TxChannel& ch = channels[next_watched_++ % channels.size()];
        if (ch.outstanding == 0 && ch.credit_stalls == 0 && ch.state != ChannelState::releasing && !ch.anonymous.asked)
            continue;
        ch.credit_stalls = 0;
        start_probe(ch);
        at_once--;
    }
}

/// Probes whether the peer is alive, once it has been met. Before that the anonymous packets find out whether there is
/// a peer. Where the probe has to wait, or an earlier one is under way, watch() asks later.
void TxRings::start_probe(TxChannel& ch) noexcept
{
    if (ch.state == ChannelState::failed || !ch.peer_seen)
        return;
    const vcq::Post post =
        ch.life.under_way ? vcq::Post::busy : own_.read_peer(ch.life, ch.peer.target_vcq, ch.area, sizeof(AreaHeader));
    if (post == vcq::Post::error)
        (void)post_failed(ch, post);
    else
        ch.credit_stalls += post == vcq::Post::busy;
}

void TxRings::on_life(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    TxChannel& ch = *static_cast<PeerRead<TxChannel>*>(handler)->of;
    TxRings& out = *ch.owner;
    const bool lives = notice.code == UTOFU_SUCCESS && same_process(ch.life.answer, ch.peer.nonce);
    out.own_.end(ch.life);
    if (out.own_.open && !lives)
        out.fail(ch, FI_EHOSTDOWN,
                 notice.code != UTOFU_SUCCESS ? static_cast<int>(notice.code) : int{UTOFU_ERR_MRQ_PEER});
}

// --- the end

[[gnu::noinline]] void TxRings::fail(TxChannel& ch, int err, int prov_errno) noexcept
{
    if (ch.state == ChannelState::failed)
        return;
    if (ch.has_ring())
        own_.vcq.statistics().count(Stat::ring_lost);
    held_ -= ch.has_ring() || ch.anonymous.asked; // its ring, or its request for one, is void
    ch.anonymous.slot = 0;                        // the slot stays unused at the peer
    ch.state = ChannelState::failed;
    ch.err = err != 0 ? err : FI_EIO;
    ch.prov_errno = prov_errno;
    if (ch.deferred.size != 0) {
        ch.deferred.size = 0;
        deferred_--;
    }
    TOFU_INFO(FI_LOG_EP_DATA, "endpoint %u: peer 0x%llx lost: %s\n", own_.index,
              static_cast<unsigned long long>(ch.peer.target_vcq), fi_strerror(ch.err));
    own_.protocol.channel_failed(ch, std::exchange(ch.deferred.handler, nullptr));
}

/// The error alone does not show that a peer is lost. The post may have been one to an earlier process with this VCQ
/// ID, a report or a completion word to another endpoint of the peer, which has been closed, or an injected write with
/// a bad key.
void TxRings::peer_failed(utofu_vcq_id_t target_vcq) noexcept
{
    for (TxChannel* ch : channels)
        if (ch->peer.target_vcq == target_vcq)
            start_probe(*ch);
}

void TxRings::release_all() noexcept
{
    for (TxChannel* ch : channels) {
        dismiss_anon_slot(*ch);
        if (ch->state != ChannelState::open || !flush(*ch) || !room(*ch, 1))
            continue; // the peer finds out by its probes
        (void)put_release(*ch, Release::for_good);
        ch->state = ChannelState::failed;
        ch->err = FI_ESHUTDOWN;
    }
}

// --- leases of rings

constexpr unsigned given_up_at_once = 8;
constexpr unsigned releasing_at_once = 64;
constexpr unsigned most_held = credit_block_count / 4 * 3; // rings; other channels serve peers that are rarely sent to

/// True if the peer writes nothing more to the channel's credit block or to a completion word (L11).
static bool no_write_comes(const TxChannel& ch) noexcept
{
    if (ch.outstanding != 0)
        return false;
    switch (ch.state) {
    case ChannelState::idle:
    case ChannelState::backing_off:
    case ChannelState::reading_header: return !ch.anonymous.asked;
    case ChannelState::failed: return ch.err == FI_EHOSTDOWN || (ch.ring == 0 && !ch.anonymous.asked);
    case ChannelState::open:
    case ChannelState::releasing: return false;
    }
    return false;
}

/// May the channel be given to another peer, since no peer and no notice can touch it any more? (L11.)
static bool reusable(const TxChannel& ch) noexcept
{
    return no_write_comes(ch) && ch.state != ChannelState::reading_header && !ch.life.under_way &&
           ch.deferred.size == 0 && !ch.anonymous.under_way && ch.anonymous.slot == 0;
}

Envelope TxRings::envelope(TxChannel& ch) noexcept
{
    const bool asks = wants_ring(ch);
    if (asks) // before the packet leaves, since the answer overwrites it
        own_.area.status(ch.number).store(0, std::memory_order_release);
    ch.anonymous.carries_request = asks;
    return {own_.target_vcq.id(),
            own_.nonce,
            ch.peer.nonce,
            envelope_version_flags(own_.known),
            own_.known.further,
            static_cast<std::uint8_t>(own_.index),
            own_.known.index,
            asks ? ch.number : no_credit_block,
            static_cast<std::uint16_t>(ch.serial + 1)};
}

bool TxRings::wants_ring(TxChannel& ch) noexcept
{
    TxChannel::Anonymous& anon = ch.anonymous;
    if (anon.asked || anon.count < std::max(anon.enough, anon.least))
        return false;
    if (held_ < most_held)
        return true;
    release_some();
    anon.retry_later();
    return false;
}

[[gnu::noinline]] void TxRings::sent_anonymously(TxChannel& ch) noexcept
{
    TxChannel::Anonymous& anon = ch.anonymous;
    anon.slot = 0;
    anon.count++;
    if (anon.carries_request) {
        anon.carries_request = false;
        anon.asked = true;
        anon.count = 0;
        ch.serial++;
        held_++;
    }
    own_.vcq.statistics().count(Stat::send_anonymous);
    own_.ring_doorbell(ch.peer.target_vcq, ch.area, Doorbell::anonymous);
}

/// Takes over a granted ring, if the grant makes sense. The peer takes our anonymous packets before the ring's first
/// packet (L16).
void TxRings::on_grant(TxChannel& ch, const Grant& grant) noexcept
{
    if (grant.slots == 0) {
        TOFU_WARN(
            FI_LOG_EP_CTRL,
            "endpoint %u: peer 0x%llx sent an invalid ring grant: use the same release of the provider on all nodes\n",
            own_.index, static_cast<unsigned long long>(ch.peer.target_vcq));
        fail(ch, FI_EIO, 0);
        return;
    }
    utofu_stadd_t part = ch.area;
    if (grant.is_further() && own_.vcq.query_stadd(ch.peer.target_vcq, further_stag(ch.peer.index), part) != 0) {
        fail(ch, FI_EADDRNOTAVAIL, 0);
        return;
    }
    ch.anonymous.asked = false;
    ch.anonymous.count = ch.anonymous.enough = 0;
    ch.release_requested = false;
    ch.credit_stalls = 0;
    ch.ring = part + grant.offset();
    ch.slots = grant.slots;
    const std::uint32_t base = seq_base(ch.peer.nonce);
    ch.set_consumed(base);
    for (std::uint32_t& seq : ch.confirmed_seq)
        seq = base + 1 - (seq != ch.next_seq);
    ch.next_seq = base + 1;
    ch.state = ChannelState::open;
    own_.vcq.statistics().count(Stat::ring_granted);
    TOFU_PROBE(ring_grant, ch.peer.target_vcq, grant.first);
    dismiss_anon_slot(ch);
}

void TxRings::read_credit_block(TxChannel& ch) noexcept
{
    // acquire: pairs with the peer's Put of the block; `consumed` was written with it
    const std::uint64_t word = own_.area.status(ch.number).load(std::memory_order_acquire);
    if (static_cast<std::uint32_t>(word >> 32) != ch.serial)
        return; // no answer yet
    const std::uint64_t consumed = own_.area.consumed(ch.number).load(std::memory_order_acquire);
    const auto status = static_cast<LeaseStatus>(static_cast<std::uint32_t>(word));
    if (ch.state == ChannelState::failed) {
        ch.anonymous.asked &= status == LeaseStatus::open; // after an answer the peer writes nothing more
        return;
    }
    if (ch.anonymous.asked) {
        if (status == LeaseStatus::denied) {
            ch.anonymous.asked = false;
            held_--;
            ch.anonymous.retry_later();
        } else if (status == LeaseStatus::granted || status == LeaseStatus::revoked) {
            on_grant(ch, read_grant(consumed, ch.peer.index));
        }
    } else if (consumed >> 32 == 0) { // no grant
        ch.set_consumed(clamp_reported(static_cast<std::uint32_t>(consumed), ch.next_seq - 1, ch.consumed()));
    }
    if (status == LeaseStatus::revoked) {
        ch.release_requested |= ch.state == ChannelState::open;
    } else if (status == LeaseStatus::closed && ch.state == ChannelState::releasing) {
        ch.state = ChannelState::idle;
        ch.confirmed_seq[0] = ch.next_seq; // the peer has taken all packets
        held_--;
    }
}

vcq::Post TxRings::put_release(TxChannel& ch, Release kind) noexcept
{
    std::byte image[inline_limit];
    PacketWriter packet(image + sizeof image);
    packet.control(Type::release, 0, static_cast<std::uint16_t>(kind), ch.next_seq);
    return put(ch, packet, nullptr);
}

bool TxRings::release_ring(TxChannel& ch) noexcept
{
    if (ch.state != ChannelState::open || !flush(ch) || ch.free_slots() == 0)
        return false;
    if (const vcq::Post post = put_release(ch, Release::of_ring); post != vcq::Post::done) {
        (void)post_failed(ch, post);
        return false;
    }
    for (std::uint32_t& seq : ch.confirmed_seq)
        seq += seq == ch.next_seq;
    ch.next_seq++;
    ch.release_requested = false;
    ch.state = ChannelState::releasing;
    own_.vcq.statistics().count(Stat::ring_returned);
    return true;
}

void TxRings::poll_credit_blocks(std::size_t most) noexcept
{
    for (std::size_t i = 0; i < most && i < channels.size(); i++) {
        TxChannel& ch = channels[next_block_++ % channels.size()];
        if (ch.anonymous.slot != 0 && std::exchange(ch.anonymous.idle_since_pass, true))
            dismiss_anon_slot(ch);
        if (!ch.has_ring() && !ch.anonymous.asked)
            continue;
        read_credit_block(ch);
        if (ch.release_requested)
            (void)release_ring(ch);
    }
}

void TxRings::leave_all() noexcept
{
    for (TxChannel* ch : channels)
        ch->release_requested |= ch->state == ChannelState::open;
}

bool TxRings::writers_gone() const noexcept
{
    return std::all_of(channels.begin(), channels.end(), [](const TxChannel* ch) { return no_write_comes(*ch); });
}

[[gnu::noinline]] TxChannel* TxRings::reuse() noexcept
{
    const std::size_t n = channels.size();
    for (std::size_t i = 0; i < n; i++) {
        TxChannel& ch = channels[(hand_ + i) % n];
        if (ch.anonymous.asked || ch.state == ChannelState::releasing)
            read_credit_block(ch);
        if (!reusable(ch))
            continue;
        hand_ = (hand_ + i + 1) % n;
        channels.unlink(ch);
        begin(ch, ch.number, ch.serial, ch.next_seq);
        return &ch;
    }
    release_some();
    return nullptr;
}

/// Gives some rings back (second chance): first those unused since the hand last passed. If all are in use,
/// the first ones.
void TxRings::release_some() noexcept
{
    const std::size_t n = channels.size();
    auto releasing = static_cast<unsigned>(std::count_if(channels.begin(), channels.end(), [](const TxChannel* ch) {
        return ch->state == ChannelState::releasing || ch->release_requested;
    }));
    for (std::size_t i = 0, found = 0; i < 2 * n && found < given_up_at_once && releasing < releasing_at_once; i++) {
        TxChannel& ch = channels[hand_++ % n];
        if (ch.state != ChannelState::open || ch.outstanding != 0 || ch.release_requested)
            continue;
        if (i < n && ch.seen_seq != ch.next_seq) {
            ch.seen_seq = ch.next_seq;
            continue;
        }
        ch.release_requested = true;
        read_credit_block(ch); // a release needs a credit
        (void)release_ring(ch);
        found++;
        releasing++;
    }
}

// --- packets without a ring

constexpr std::uint32_t most_unanswered = 64; // anonymous packets after one that asks for a ring
constexpr std::uint32_t longest_pause = 64;   // rounds between two looks at a slot counter without slots
constexpr unsigned absent_pause_ms = 1;

int TxRings::claim_anon_slot(TxChannel& ch) noexcept
{
    TxChannel::Anonymous& anon = ch.anonymous;
    if (ch.state == ChannelState::backing_off && own_.now >= anon.pause_until)
        ch.state = ChannelState::idle;
    if (ch.state == ChannelState::reading_header && !anon.under_way)
        get_header(ch);
    if (ch.state == ChannelState::idle && anon.slot != 0)
        return 0;
    if (ch.state != ChannelState::idle || anon.under_way)
        return ch.refusal();
    if (anon.asked && anon.count >= most_unanswered) {
        ch.credit_stalls++;
        return -FI_EAGAIN; // the peer does not read its anonymous packets
    }
    if (anon.full && anon.rounds != 0) {
        anon.rounds--;
        return -FI_EAGAIN;
    }
    if (ch.area == 0 && own_.vcq.query_stadd(ch.peer.target_vcq, endpoint_stag(ch.peer.index), ch.area) != 0) {
        fail(ch, FI_EADDRNOTAVAIL, 0);
        return -ch.err;
    }
    return request_slot(ch);
}

/// Asks the slot counter for a slot by an ADD, or reads it by a Get if it had none.
int TxRings::request_slot(TxChannel& ch) noexcept
{
    TxChannel::Anonymous& anon = ch.anonymous;
    anon.reads = anon.full;
    vcq::Post post;
    if (anon.reads) {
        post = own_.read_peer(anon, ch.peer.target_vcq, ch.area + slot_counter_offset, sizeof(std::uint64_t));
    } else {
        anon.under_way = true; // the notice may come within the post
        slot_requests_++;
        post = own_.vcq.armw(8, ch.peer.target_vcq, UTOFU_ARMW_OP_ADD, slot_counter_step, ch.area + slot_counter_offset,
                             {.level = vcq::CompletionLevel::delivered, .strong_order = true, .handler = &anon});
        if (post != vcq::Post::done) {
            anon.under_way = false;
            slot_requests_--;
        }
    }
    if (post != vcq::Post::done)
        return post_failed(ch, post);
    return anon.slot != 0 ? 0 : -FI_EAGAIN;
}

void TxRings::on_anon_notice(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    TxChannel& ch = *static_cast<PeerRead<TxChannel>*>(handler)->of;
    TxRings& self = *ch.owner;
    TxChannel::Anonymous& anon = ch.anonymous;
    std::uint64_t word = notice.value;
    AreaHeader header{};
    if (anon.reads) {
        std::memcpy(&word, anon.answer.data, sizeof word);
        std::memcpy(&header, anon.answer.data, sizeof header); // a block holds more than that
        self.own_.end(anon);
    } else {
        anon.under_way = false;
        self.slot_requests_--;
    }
    if (!self.own_.open || ch.state == ChannelState::failed)
        return;
    if (notice.code != UTOFU_SUCCESS)
        self.on_absence(ch, notice.code);
    else if (ch.state == ChannelState::reading_header)
        self.on_header(ch, header);
    else
        self.on_slot_counter(ch, word);
}

/// The peer has no such area: its endpoint is not enabled yet, or is closed.
void TxRings::on_absence(TxChannel& ch, int code) noexcept
{
    TxChannel::Anonymous& anon = ch.anonymous;
    if (ch.peer_seen && code == UTOFU_ERR_MRQ_RMT_STADD) {
        fail(ch, FI_EHOSTDOWN, code);
        return;
    }
    if (anon.first_try == 0)
        anon.first_try = own_.now;
    if ((code != UTOFU_ERR_MRQ_RMT_STADD && code != never_notified) || own_.now - anon.first_try >= absent_limit_ms) {
        fail(ch, code == UTOFU_ERR_MRQ_RMT_STADD ? FI_EADDRNOTAVAIL : fi_error_of(code), code);
    } else if (ch.state == ChannelState::idle || ch.state == ChannelState::reading_header) {
        ch.state = ChannelState::backing_off;
        anon.pause_until = own_.now + absent_pause_ms;
    }
}

void TxRings::on_slot_counter(TxChannel& ch, std::uint64_t word) noexcept
{
    TxChannel::Anonymous& anon = ch.anonymous;
    const std::uint32_t next = slot_counter_next(word);
    const bool some = next < slot_counter_end(word);
    const utofu_stadd_t slot = ch.area + anon_slots_offset + std::uint64_t{next} * slot_size;
    if (!slot_counter_is_of(word, ch.peer.nonce)) {
        if (!anon.reads && some && slot_counter_version_ok(word))
            (void)put_empty(ch, slot, anon_seq(word)); // another process has the VCQ ID: gives its slot back
        if (ch.state == ChannelState::idle)
            get_header(ch);
        return;
    }
    anon.first_try = 0;
    ch.peer_seen = true;
    if (anon.reads || !some) {
        anon.full = !some;
        anon.pause = anon.full ? std::clamp(2 * anon.pause, 1u, longest_pause) : 0;
        anon.rounds = anon.pause;
        return;
    }
    anon.slot = slot;
    anon.seq = anon_seq(word);
    anon.idle_since_pass = false;
    if (ch.state == ChannelState::open || ch.state == ChannelState::releasing)
        dismiss_anon_slot(ch);
}

/// Reads the area's header, to learn why the slot counter is not the expected one. claim_anon_slot() repeats it if the
/// TNI had no room.
void TxRings::get_header(TxChannel& ch) noexcept
{
    ch.state = ChannelState::reading_header;
    ch.anonymous.reads = true;
    if (own_.read_peer(ch.anonymous, ch.peer.target_vcq, ch.area, sizeof(AreaHeader)) == vcq::Post::error)
        (void)post_failed(ch, vcq::Post::error);
}

void TxRings::on_header(TxChannel& ch, const AreaHeader& header) noexcept
{
    switch (read_header(header, ch.peer.nonce, ch.peer.index)) {
    case HeaderCheck::other_version:
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "endpoint %u: wire protocol mismatch: peer 0x%llx has version %u, this endpoint %u: use the same "
                  "release of the provider on all nodes\n",
                  own_.index, static_cast<unsigned long long>(ch.peer.target_vcq), header.version, wire_version);
        fail(ch, FI_ECONNREFUSED, 0);
        return;
    case HeaderCheck::other_process: fail(ch, FI_EHOSTDOWN, UTOFU_ERR_MRQ_PEER); return;
    case HeaderCheck::usable:
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "endpoint %u: the slot counter of peer 0x%llx has an invalid value: its memory is damaged; restart "
                  "that process\n",
                  own_.index, static_cast<unsigned long long>(ch.peer.target_vcq));
        fail(ch, FI_EIO, 0);
        return;
    }
}

void TxRings::dismiss_anon_slot(TxChannel& ch) noexcept
{
    if (ch.anonymous.slot != 0 && put_empty(ch, ch.anonymous.slot, ch.anonymous.seq) != vcq::Post::busy)
        ch.anonymous.slot = 0;
}

vcq::Post TxRings::put_empty(TxChannel& ch, utofu_stadd_t slot, std::uint32_t seq) noexcept
{
    const Control none{Type::none, 0, 0, seq};
    return own_.vcq.put_inline(ch.peer.target_vcq, &none, slot + slot_size - sizeof none, sizeof none,
                               {.strong_order = true, .cache = vcq::whole_line});
}

} // namespace tofu::proto
