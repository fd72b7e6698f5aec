// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See anon_slots.h.
#include "msg/anon_slots.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "msg/rx_ring.h"

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
    alignas(8) std::byte packet[slot_size]; // a copy, which the sender can't change any more
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
        in_.bad_packet(anonymous, "that makes no sense");
        return true;
    }
    if (who.credit_index != no_credit_block) {
        if (!in_.grants.answer(who, anonymous.area))
            return false;
        std::memcpy(end - asks_before_end, &no_credit_block, sizeof no_credit_block); // so that it asks only once
    }
    return port_.protocol.take_anonymous(anonymous);
}

} // namespace tofu::proto
