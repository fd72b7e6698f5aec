// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See anon_slots.h.
#include "msg/anon_slots.h"

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "msg/rx_ring.h"
#include "msg/tx_ring.h"

namespace tofu::proto {

bool AnonSlots::open(std::byte* slots, std::uint32_t count, std::uint64_t* gate, std::uint64_t nonce) noexcept
{
    slots_ = slots;
    gate_ = gate;
    nonce_ = nonce;
    count_ = end_ = count;
    seq_ = anon_seq(gate_word(nonce, 0, 0));
    is_out_.reset(new (std::nothrow) bool[count]());
    return is_out_ != nullptr && out_.reserve(count);
}

void AnonSlots::note_handed_out() noexcept
{
    // acquire: a packet that is looked for after this load is in a slot that was handed out before it
    const std::uint64_t word = std::atomic_ref<std::uint64_t>(*gate_).load(std::memory_order_acquire);
    for (const std::uint32_t now = std::min(gate_next(word), end_); next_ < now; next_++) {
        is_out_[next_] = true;
        out_.push_reserved({static_cast<std::uint16_t>(next_), false});
    }
}

/// Offers the next run of free slots after the last one, if there is any.
void AnonSlots::offer() noexcept
{
    const bool* const all = is_out_.get();
    std::uint32_t first = static_cast<std::uint32_t>(std::find(all + end_, all + count_, false) - all);
    if (first == count_)
        first = static_cast<std::uint32_t>(std::find(all, all + count_, false) - all);
    if (first == count_)
        return;
    next_ = first;
    end_ = static_cast<std::uint32_t>(std::find(all + first, all + count_, true) - all);
    // An atomic instruction, because peers' ARMWs may hit the word (guide 2.2.5). release: after the slots were
    // cleared
    (void)std::atomic_ref<std::uint64_t>(*gate_).exchange(gate_word(nonce_, next_, end_), std::memory_order_acq_rel);
}

// --- packets

bool Arrivals::open(const Geometry& geometry) noexcept
{
    return anon_slots_.open(port_.area.anon_slots(), geometry.anon_slot_count, port_.area.gate(), port_.self.nonce);
}

void Arrivals::take() noexcept
{
    refused_.clear();
    refuse_all_ = false;
    offers_++;
    anon_slots_.take_arrived([this](std::byte* end) { return take_one(end); });
}

/// `key` names the sending endpoint, whatever address peers know it by.
bool Arrivals::refuses(std::uint64_t key) const noexcept
{
    return refuse_all_ || std::find(refused_.begin(), refused_.end(), key) != refused_.end();
}

/// Takes the packet in the slot that ends at `end`. False: the packet stays, and so do later ones of the same sender.
bool Arrivals::take_one(std::byte* end) noexcept
{
    if (in_.seen() != nullptr) [[unlikely]]
        (void)in_.seen()(end - sizeof(Control), sizeof(Control));
    Control control;
    std::memcpy(&control, end - sizeof control, sizeof control);
    if (control.type == static_cast<std::uint8_t>(Type::none))
        return true; // an empty packet: the sender had no use for the slot
    Envelope envelope;
    alignas(8) std::byte packet[slot_size]; // a copy, which the sender cannot change any more
    const bool good = read_anonymous(end, port_.self.nonce, envelope, packet);
    const std::uint64_t key = peer_key(envelope.home, envelope.nonce, envelope.index);
    if (good && refuses(key))
        return false;
    if (anonymous_ == nullptr)
        anonymous_.reset(new (std::nothrow) Ring);
    if (anonymous_ == nullptr || !take_one(envelope, good ? packet : nullptr, end)) {
        refuse_all_ |= !refused_.push(key);
        port_.self.vcq.set_busy();
        return false;
    }
    if (anonymous_->users != 0) {
        anonymous_->parted = true; // the last of its messages frees it
        (void)anonymous_.release();
    }
    return true;
}

/// Hands a packet to the protocol as the only one of a ring. `packet` is null where the slot holds none that makes
/// sense.
bool Arrivals::take_one(const Envelope& who, const std::byte* packet, std::byte* end) noexcept
{
    Ring& anonymous = *anonymous_;
    anonymous.base = const_cast<std::byte*>(packet);
    anonymous.next_seq = anon_seq(gate_word(port_.self.nonce, 0, 0));
    anonymous.number = anonymous.place = no_place;
    anonymous.begun = true;
    anonymous.index = who.index;
    anonymous.known = known_address(who);
    anonymous.generation = ~0u; // the last packet may have had another sender
    anonymous.key = peer_key(who.home, who.nonce, who.identity);
    if (packet == nullptr || port_.self.vcq.query_stadd(who.home, endpoint_stag(who.index), anonymous.area) != 0) {
        in_.bad_packet(anonymous, "with invalid fields");
        return true;
    }
    if (who.credit_index != no_credit_block) {
        if (!in_.grants.answer(who, anonymous.area))
            return false;
        std::memcpy(end - asks_before_end, &no_credit_block, sizeof no_credit_block); // so that it asks only once
    }
    return port_.protocol.take_anonymous(anonymous);
}

namespace {
constexpr std::uint32_t most_unanswered = 64; // anonymous packets after one that asks for a ring
constexpr std::uint32_t longest_pause = 64;   // rounds between two looks at a gate that is full
constexpr unsigned absent_pause_ms = 1;
} // namespace

/// Asks the gate for a slot by an ADD, or reads it by a Get if it was full.
int AnonTx::step(Channel& ch) noexcept
{
    Channel::Anonymous& v = ch.anonymous;
    if (ch.state == ChannelState::pausing && port_.now >= v.pause_until)
        ch.state = ChannelState::idle;
    if (ch.state == ChannelState::reading && !v.under_way)
        read_heading(ch);
    if (ch.state == ChannelState::idle && v.slot != 0)
        return 0;
    if (ch.state != ChannelState::idle || v.under_way)
        return ch.refusal();
    if (v.asked && v.count >= most_unanswered) {
        ch.starved++;
        return -FI_EAGAIN; // the peer does not read its anonymous packets
    }
    if (v.full && v.rounds != 0) {
        v.rounds--;
        return -FI_EAGAIN;
    }
    if (ch.area == 0 && port_.self.vcq.query_stadd(ch.peer.home, endpoint_stag(ch.peer.index), ch.area) != 0) {
        ch.owner->fail(ch, FI_EADDRNOTAVAIL, 0);
        return -ch.err;
    }
    v.reads = v.full;
    vcq::Post post;
    if (v.reads) {
        post = port_.ask(v, ch.peer.home, ch.area + gate_offset, sizeof(std::uint64_t));
    } else {
        v.under_way = true; // the notice may come within the post
        asking_++;
        post = port_.self.vcq.armw(8, ch.peer.home, UTOFU_ARMW_OP_ADD, gate_step, ch.area + gate_offset,
                                   {.when = vcq::When::delivered, .strong_order = true, .handler = &v});
        if (post != vcq::Post::done) {
            v.under_way = false;
            asking_--;
        }
    }
    if (post != vcq::Post::done)
        return ch.owner->post_failed(ch, post);
    return v.slot != 0 ? 0 : -FI_EAGAIN;
}

void AnonTx::on_notice(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept
{
    Channel& ch = *static_cast<Inquiry<Channel>*>(handler)->of;
    AnonTx& anon_tx = ch.owner->anon_tx;
    Channel::Anonymous& v = ch.anonymous;
    std::uint64_t word = notice.value;
    AreaHeader header{};
    if (v.reads) {
        std::memcpy(&word, v.answer.data, sizeof word);
        std::memcpy(&header, v.answer.data, sizeof header); // a block holds more than that
        anon_tx.port_.end(v);
    } else {
        v.under_way = false;
        anon_tx.asking_--;
    }
    if (!anon_tx.port_.open || ch.state == ChannelState::failed)
        return;
    if (notice.code != UTOFU_SUCCESS)
        anon_tx.on_absence(ch, notice.code);
    else if (ch.state == ChannelState::reading)
        anon_tx.on_heading(ch, header);
    else
        anon_tx.on_gate(ch, word);
}

/// The peer has no such area: its endpoint is not enabled yet, or is closed.
void AnonTx::on_absence(Channel& ch, int code) noexcept
{
    Channel::Anonymous& v = ch.anonymous;
    if (ch.met && code == UTOFU_ERR_MRQ_RMT_STADD) {
        ch.owner->fail(ch, FI_EHOSTDOWN, code);
        return;
    }
    if (v.first_try == 0)
        v.first_try = port_.now;
    if ((code != UTOFU_ERR_MRQ_RMT_STADD && code != never_notified) || port_.now - v.first_try >= absent_limit_ms) {
        ch.owner->fail(ch, fi_error_of(code), code);
    } else if (ch.state == ChannelState::idle || ch.state == ChannelState::reading) {
        ch.state = ChannelState::pausing;
        v.pause_until = port_.now + absent_pause_ms;
    }
}

void AnonTx::on_gate(Channel& ch, std::uint64_t word) noexcept
{
    Channel::Anonymous& v = ch.anonymous;
    const std::uint32_t next = gate_next(word);
    const bool some = next < gate_end(word);
    const utofu_stadd_t slot = ch.area + anon_slots_offset + std::uint64_t{next} * slot_size;
    if (!gate_is_of(word, ch.peer.nonce)) {
        if (!v.reads && some && gate_speaks(word))
            (void)put_empty(ch, slot, anon_seq(word)); // another process has the VCQ ID: gives its slot back
        if (ch.state == ChannelState::idle)
            read_heading(ch);
        return;
    }
    v.first_try = 0;
    ch.met = true;
    if (v.reads || !some) {
        v.full = !some;
        v.pause = v.full ? std::clamp(2 * v.pause, 1u, longest_pause) : 0;
        v.rounds = v.pause;
        return;
    }
    v.slot = slot;
    v.seq = anon_seq(word);
    v.lingers = false;
    if (ch.state == ChannelState::open || ch.state == ChannelState::leaving)
        dismiss(ch);
}

/// Reads the area's header, to learn why the gate is not the expected one. step() repeats it if the TNI had no room.
void AnonTx::read_heading(Channel& ch) noexcept
{
    ch.state = ChannelState::reading;
    ch.anonymous.reads = true;
    if (port_.ask(ch.anonymous, ch.peer.home, ch.area, sizeof(AreaHeader)) == vcq::Post::error)
        (void)ch.owner->post_failed(ch, vcq::Post::error);
}

void AnonTx::on_heading(Channel& ch, const AreaHeader& header) noexcept
{
    switch (read_header(header, ch.peer.nonce, ch.peer.index)) {
    case Heading::other_version:
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "endpoint %u: wire protocol mismatch: peer 0x%llx has version %u, this endpoint %u: use the same "
                  "release of the provider on all nodes\n",
                  port_.self.index, static_cast<unsigned long long>(ch.peer.home), header.version, wire_version);
        ch.owner->fail(ch, FI_ECONNREFUSED, 0);
        return;
    case Heading::other_process: ch.owner->fail(ch, FI_EHOSTDOWN, UTOFU_ERR_MRQ_PEER); return;
    case Heading::usable:
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "endpoint %u: the slot counter of peer 0x%llx has an invalid value: its memory is damaged; restart "
                  "that process\n",
                  port_.self.index, static_cast<unsigned long long>(ch.peer.home));
        ch.owner->fail(ch, FI_EIO, 0);
        return;
    }
}

void AnonTx::dismiss(Channel& ch) noexcept
{
    if (ch.anonymous.slot != 0 && put_empty(ch, ch.anonymous.slot, ch.anonymous.seq) != vcq::Post::busy)
        ch.anonymous.slot = 0;
}

vcq::Post AnonTx::put_empty(Channel& ch, utofu_stadd_t slot, std::uint32_t seq) noexcept
{
    const Control none{static_cast<std::uint8_t>(Type::none), 0, 0, seq};
    return port_.self.vcq.put_inline(ch.peer.home, &none, slot + slot_size - sizeof none, sizeof none,
                                     {.strong_order = true, .cache = vcq::whole_line});
}

} // namespace tofu::proto
