// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What goes into a peer's ring: eager messages in one slot or in several, and CQ data of RMA writes. Part of the
// messenger; called by entry.h, tracked.cc and rma; calls vcq.
#include "message/send.h"

#include <rdma/fi_errno.h>

#include "match/iov.h"
#include "provider/error.h"

namespace tofu::proto {

ssize_t Messenger::send(const SendCall& call) noexcept
{
    if ((call.flags & FI_FENCE) && !ep_.fence_passed(call.dest, call.flags)) [[unlikely]]
        return -FI_EAGAIN;
    const ssize_t ret = try_send(call);
    if (ret == -FI_EAGAIN) [[unlikely]]
        return send_again(call);
    return ret;
}

/// A refusal is not given before some progress was tried: many a program polls only what it waits for. First
/// contact takes two round trips; it is waited for a little, as programs expect no refusal of a first send.
[[gnu::noinline]] ssize_t Messenger::send_again(const SendCall& call) noexcept
{
    constexpr unsigned contact_rounds = 512;
    ssize_t ret = -FI_EAGAIN;
    for (unsigned round = 0; ret == -FI_EAGAIN && round < contact_rounds; round++) {
        ep_.progress_locked();
        ret = try_send(call);
        Channel* ch;
        if (ret != -FI_EAGAIN || channel_to(call.dest, ch) != 0 ||
            (ch->state != ChannelState::reading && ch->state != ChannelState::claiming &&
             ch->state != ChannelState::leaving))
            break;
    }
    return ret == -FI_EAGAIN && can_wait(call) ? put_aside(call) : ret;
}

ssize_t Messenger::try_send(const SendCall& call) noexcept
{
    Channel* found = open_channel(call);
    if (found == nullptr) [[unlikely]] {
        if (int ret = channel_to(call.dest, found); ret != 0)
            return ret;
        if (found->backlog != nullptr)
            return -FI_EAGAIN;
        if (int ret = contact(*found); ret != 0)
            return ret;
    }
    Channel& ch = *found;
    if (ch.deferred_size != 0 && !flush(ch)) [[unlikely]]
        return ch.state == ChannelState::failed ? -ch.err : -FI_EAGAIN;
    if (call.length > ch.geometry.eager_limit())
        return send_rendezvous(ch, call);
    if ((call.flags & levels) != 0 && !call.silent)
        return send_tracked(ch, call, call.flags & levels);
    if (ssize_t ret = put_packet(ch, call, nullptr, call.packet_flags, nullptr); ret != 0) [[unlikely]]
        return ret;
    report_sent(call);
    return 0;
}

/// There seems to be no room: the return block knows.
[[gnu::noinline]] bool Messenger::look_for_room(Channel& ch, std::uint32_t slots) noexcept
{
    check_return(ch);
    if (ch.leave && ch.state == ChannelState::open && say_bye(ch)) [[unlikely]]
        return false; // who sends and never looks round comes by here once in a ring
    if (ch.free_slots() >= slots && ch.state == ChannelState::open)
        return true;
    ch.starved++;
    return false;
}

/// One message into the ring. `delivered`, if any, is told when it has arrived there.
ssize_t Messenger::put_packet(Channel& ch, const SendCall& call, const Ack* ack, std::uint8_t flags,
                              SendRequest* delivered) noexcept
{
    const std::size_t padded = (call.length + 7) & ~std::size_t{7};
    if (padded + overhead(flags) > slot_size)
        return put_long(ch, call, ack, flags, delivered);
    if (!room(ch, 1)) [[unlikely]]
        return ch.state == ChannelState::failed ? -ch.err : -FI_EAGAIN;
    const bool small = padded + overhead(flags) <= inline_limit;
    alignas(8) std::byte image[inline_limit]; // the end of a slot
    Hold* block = nullptr;
    std::byte* end = image + inline_limit;
    if (!small) {
        block = hold(slot_size);
        if (block == nullptr)
            return -FI_EAGAIN;
        end = block->block.data + slot_size;
    }
    PacketWriter packet(end);
    write_frame(packet, Type::eager, call, ack, flags, call.length, ch.next_seq);
    if (padded != 0) {
        std::byte* to = packet.reserve(padded);
        std::memset(to + padded - 8, 0, 8); // no byte of ours beyond the payload
        gather(to, call.iov, call.count, call.length);
    }
    const vcq::Post post = small ? put_small(ch, packet, delivered)
                                 : put_block(ch, packet, *block, delivered);
    if (post != vcq::Post::done) [[unlikely]]
        return post_failed(ch, post);
    ch.next_seq++;
    return 0;
}

vcq::Post Messenger::put_small(Channel& ch, const PacketWriter& packet,
                                      SendRequest* delivered) noexcept
{
    return vcq_.put_inline(
        ch.peer.home, packet.data(), ch.slot(ch.next_seq) + slot_size - packet.size(), packet.size(),
        {.when = delivered != nullptr ? vcq::When::delivered : vcq::When::never,
         .strong_order = true,
         .waiter = delivered});
}

/// A packet built in a block. The block is given back here when nothing was posted.
vcq::Post Messenger::put_block(Channel& ch, const PacketWriter& packet, Hold& block,
                               SendRequest* delivered) noexcept
{
    const utofu_stadd_t from = block.block.stadd + slot_size - packet.size();
    const utofu_stadd_t to = ch.slot(ch.next_seq) + slot_size - packet.size();
    vcq::How how{.when = vcq::When::sent, .strong_order = true, .waiter = &block};
    if (delivered != nullptr) {
        delivered->block = &block;
        how.when = vcq::When::delivered;
        how.waiter = delivered;
    }
    const vcq::Post post = vcq_.put(ch.peer.home, from, to, packet.size(), how);
    if (post != vcq::Post::done) [[unlikely]] {
        if (delivered != nullptr)
            delivered->block = nullptr;
        release(block);
    }
    return post;
}

static_assert(max_eager <= BouncePool::large_size);

/// Payload into the slots behind, then the header in order: it is seen last.
ssize_t Messenger::put_long(Channel& ch, const SendCall& call, const Ack* ack, std::uint8_t flags,
                            SendRequest* delivered) noexcept
{
    const auto length = static_cast<std::uint32_t>(call.length);
    const LongSlots slots = long_slots(ch.next_seq, length, ch.slots);
    if (!room(ch, slots.total)) [[unlikely]]
        return ch.state == ChannelState::failed ? -ch.err : -FI_EAGAIN;
    Hold* block = hold(call.length);
    if (block == nullptr)
        return -FI_EAGAIN;
    gather(block->block.data, call.iov, call.count, call.length);
    vcq::Post post = vcq_.put(ch.peer.home, block->block.stadd,
                              ch.ring + std::uint64_t{slots.first} * slot_size, call.length,
                              {.when = vcq::When::sent, .waiter = block});
    if (post != vcq::Post::done) [[unlikely]] {
        release(*block);
        return post_failed(ch, post);
    }
    std::byte image[inline_limit];
    PacketWriter packet(image + inline_limit);
    write_frame(packet, Type::long_eager, call, ack, flags, call.length, ch.next_seq);
    post = put_small(ch, packet, delivered);
    if (post == vcq::Post::error) [[unlikely]]
        return post_failed(ch, post);
    if (post == vcq::Post::busy) [[unlikely]] {
        // The payload lies in slots that count as free: its header may not be left behind.
        std::memcpy(ch.deferred, packet.data(), packet.size());
        ch.deferred_size = static_cast<std::uint8_t>(packet.size());
        ch.deferred_seq = ch.next_seq;
        ch.deferred_waiter = delivered;
        deferred_++;
    }
    ch.next_seq += slots.total;
    return 0;
}

ssize_t Messenger::write_data(fi_addr_t to, std::uint64_t data, std::uint64_t length) noexcept
{
    Channel* ch;
    if (int ret = channel_to(to, ch); ret != 0)
        return ret;
    if (ch->backlog != nullptr)
        return -FI_EAGAIN;
    if (ch->state != ChannelState::open)
        if (int ret = contact(*ch); ret != 0)
            return ret;
    if ((ch->deferred_size != 0 && !flush(*ch)) || !room(*ch, 1))
        return ch->state == ChannelState::failed ? -ch->err : -FI_EAGAIN;
    alignas(8) std::byte image[inline_limit];
    PacketWriter packet(image + inline_limit);
    packet.control(Type::write_data, flag_data, 0, ch->next_seq);
    packet.put64(data);
    packet.put64(length);
    if (vcq::Post post = put_small(*ch, packet, nullptr); post != vcq::Post::done)
        return post_failed(*ch, post);
    ch->next_seq++;
    return 0;
}

/// Sends the packet that had to wait. True when none is waiting any more.
bool Messenger::flush(Channel& ch) noexcept
{
    if (ch.deferred_size == 0)
        return ch.state == ChannelState::open;
    Control control;
    std::memcpy(&control, ch.deferred + ch.deferred_size - sizeof control, sizeof control);
    // The peer need not look for new rings: it is told. And we want to know when it knows (ring/turnover.cc, case 2).
    const bool hello = control.type == static_cast<std::uint8_t>(Type::hello);
    vcq::Waiter* waiter = hello ? static_cast<vcq::Waiter*>(&ch.contact) : ch.deferred_waiter;
    if (hello)
        ch.contacting = true; // the notice may come within the post
    const vcq::Post post = vcq_.put_inline(
        ch.peer.home, ch.deferred, ch.slot(ch.deferred_seq) + slot_size - ch.deferred_size,
        ch.deferred_size,
        {.when = waiter != nullptr ? vcq::When::delivered : vcq::When::never,
         .strong_order = true,
         .waiter = waiter});
    if (hello && post != vcq::Post::done)
        ch.contacting = false;
    if (post == vcq::Post::busy)
        return false;
    if (post == vcq::Post::error) {
        (void)post_failed(ch, post);
        return false;
    }
    ch.deferred_size = 0;
    ch.deferred_waiter = nullptr;
    deferred_--;
    if (hello)
        ring_bell(ch.peer.home, ch.area, Bell::contact);
    return true;
}

[[gnu::noinline]] ssize_t Messenger::post_failed(Channel& ch, vcq::Post post) noexcept
{
    if (post == vcq::Post::busy)
        return -FI_EAGAIN;
    fail(ch, fi_error_of(vcq_.last_error()), vcq_.last_error());
    return -ch.err;
}

// --- bounce blocks

/// A block for a Hold that has none yet.
[[gnu::cold]] Hold* Messenger::furnish(Hold& h, std::size_t size) noexcept
{
    h.size = size;
    h.block = bounces_.alloc(size);
    if (h.block.data == nullptr) {
        release(h);
        return nullptr;
    }
    h.notify = on_block_sent;
    h.owner = this;
    return &h;
}

void Messenger::on_block_sent(vcq::Waiter* waiter, const vcq::Notice&) noexcept
{
    auto* block = static_cast<Hold*>(waiter); // a failure shows at the channel, by the MRQ
    block->owner->release(*block);
}

} // namespace tofu::proto
