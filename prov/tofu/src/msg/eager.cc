// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Writes into a peer's ring: eager messages in one slot or in several, and the CQ data of RMA writes. Part of the
// sender; called by call_checks.h, tracked.cc and rma; calls vcq.
#include "msg/fast_path.h"

#include <rdma/fi_errno.h>

#include "core/limits.h"
#include "mem/local_buffer.h"

namespace tofu::proto {

namespace {
/// Does the message fit into one packet that goes without a ring, and so carries its sender's envelope?
bool fits_an_anonymous_slot(const SendCall& call) noexcept
{
    const std::uint8_t ack = (call.flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0 ? flag_ack : 0;
    return call.length <= slot_size && ((call.length + 7) & ~std::size_t{7}) + sizeof(Envelope) +
                                               overhead(static_cast<std::uint8_t>(call.packet_flags | ack)) <= slot_size;
}
static_assert(limits::inject_size + sizeof(Envelope) + sizeof(Control) + 8 + 8 + sizeof(Ack) <= slot_size);

} // namespace

Sender::Sender(TxContext& tx, Rings& rings) noexcept
    : tx_(tx), rings_(rings), out_(rings.out), vcq_(tx.vcq()), buffers_(rings.port.bounces),
      requests_(tx, rings, buffers_), backlog_(tx, *this)
{
}

ssize_t Sender::send(const SendCall& call) noexcept
{
    if ((call.flags & FI_FENCE) && !tx_.fence().passed(call.dest, call.flags)) [[unlikely]]
        return -FI_EAGAIN;
    const ssize_t ret = try_send(call);
    if (ret == -FI_EAGAIN) [[unlikely]]
        return send_again(call);
    return ret;
}

/// Makes some progress before it refuses, since many programs poll only what they wait for. First contact with a peer
/// takes one or two round trips; the call waits for them a little, as programs do not expect a first send to be
/// refused.
[[gnu::noinline]] ssize_t Sender::send_again(const SendCall& call) noexcept
{
    constexpr unsigned contact_rounds = 512;
    ssize_t ret = -FI_EAGAIN;
    Channel* ch = nullptr;
    for (unsigned round = 0; ret == -FI_EAGAIN && round < contact_rounds; round++) {
        tx_.progress();
        ret = try_send(call);
        if (ret != -FI_EAGAIN || channel_to(call.dest, ch) != 0 || !ch->soon())
            break;
    }
    if (ret != -FI_EAGAIN || !backlog_.takes(call))
        return ret;
    if (int error = channel_to(call.dest, ch); error != 0)
        return error;
    return backlog_.put_aside(*ch, call);
}

int Sender::channel_to(fi_addr_t dest, Channel*& to) noexcept
{
    Channel* ch = out_.channels.recent(dest);
    if (ch == nullptr) [[unlikely]] {
        const Peers& peers = tx_.peers();
        const Peer* peer = peers.find(dest);
        if (peer == nullptr)
            return -FI_EINVAL;
        if (int ret = out_.channel_to({dest, *peer, peers.place_of(dest), peers.context_of(dest)}, ch); ret != 0)
            return ret;
    }
    to = ch;
    return 0;
}

ssize_t Sender::try_send(const SendCall& call, bool is_first) noexcept
{
    Channel* found = open_channel(call);
    if (found == nullptr) [[unlikely]] {
        if (int ret = channel_to(call.dest, found); ret != 0)
            return ret;
        if (!is_first && backlog_.waiting().has_line(Pending::line_of(found->peer)))
            return tx_.again(Stat::again_behind);
        if (int ret = out_.approach(*found); ret != 0)
            return ret;
    }
    Channel& ch = *found;
    if (ch.deferred.size != 0 && !out_.flush(ch)) [[unlikely]]
        return ch.refusal();
    if (ch.state == ChannelState::open ? call.length > eager_limit_of(ch.slots) : !fits_an_anonymous_slot(call))
        return send_rendezvous(ch, call);
    if ((call.flags & levels) != 0 && !call.silent)
        return send_tracked(ch, call, call.flags & levels);
    if (ssize_t ret = put_packet(ch, call, nullptr, call.packet_flags, nullptr); ret != 0) [[unlikely]]
        return ret != reported_later ? ret : 0;
    report_sent(tx_, call);
    return 0;
}

/// Puts a packet of `size` bytes, its envelope not counted, into one slot. `fill` writes what stands before the head.
/// `delivered`, if not null, is told when the packet has arrived.
template <class Fill>
int Sender::put_slot(Channel& ch, Type type, std::uint8_t flags, std::size_t length, std::size_t size,
                     SendRequest* delivered, Fill&& fill) noexcept
{
    if (!out_.room(ch, 1)) [[unlikely]]
        return ch.refusal();
    const bool small = size <= inline_limit && ch.state == ChannelState::open;
    alignas(8) std::byte image[inline_limit]; // the end of a slot
    PacketBuffer* block = nullptr;
    std::byte* end = image + inline_limit;
    if (!small) {
        block = buffers_.alloc(slot_size);
        if (block == nullptr)
            return -FI_EAGAIN;
        end = block->block.data + slot_size;
    }
    PacketWriter packet(end);
    write_head(packet, out_, ch, type, flags, length);
    fill(packet);
    const vcq::Post post = small ? out_.put(ch, packet, delivered)
                                 : put_block(ch, packet, *block, delivered);
    if (post != vcq::Post::done) [[unlikely]]
        return out_.post_failed(ch, post);
    if (type == Type::eager && ch.state == ChannelState::open)
        vcq_.statistics().count(small ? Stat::send_short : Stat::send_slot);
    out_.sent(ch);
    return 0;
}

/// Puts an eager message into the ring, in one slot or in several. 0; reported_later; or a refusal.
ssize_t Sender::put_packet(Channel& ch, const SendCall& call, const Ack* ack, std::uint8_t flags,
                              SendRequest* delivered) noexcept
{
    const std::size_t padded = (call.length + 7) & ~std::size_t{7};
    if (padded + overhead(flags) + ch.envelope_size() > slot_size)
        return put_long(ch, call, ack, flags, delivered);
    return put_slot(ch, Type::eager, flags, call.length, padded + overhead(flags), delivered, [&](PacketWriter& packet) {
        write_fields(packet, call, ack, flags);
        if (padded == 0)
            return;
        std::byte* to = packet.reserve(padded);
        std::memset(to + padded - 8, 0, 8); // the padding shows nothing of our memory
        gather(to, call.iov, call.count, call.length);
    });
}

/// Posts a packet that was built in a block. Releases the block if nothing was posted.
vcq::Post Sender::put_block(Channel& ch, const PacketWriter& packet, PacketBuffer& block,
                               SendRequest* delivered) noexcept
{
    const std::size_t size = packet.size();
    vcq::How how{.when = vcq::When::sent, .strong_order = true, .waiter = &block};
    if (delivered != nullptr) {
        delivered->block = &block;
        how.when = vcq::When::delivered;
        how.waiter = delivered;
    }
    const vcq::Post post = vcq_.put(ch.peer.home, block.block.stadd + slot_size - size,
                                    ch.slot_end() - size, size, how);
    if (post != vcq::Post::done) [[unlikely]] {
        if (delivered != nullptr)
            delivered->block = nullptr;
        buffers_.release(block);
    }
    return post;
}

static_assert(max_eager <= BouncePool::large_size);

/// Puts the payload into the slots behind the packet, then the packet in strong order, so that the receiver sees it
/// last.
ssize_t Sender::put_long(Channel& ch, const SendCall& call, const Ack* ack, std::uint8_t flags,
                            SendRequest* delivered) noexcept
{
    ssize_t ret = 0;
    const auto length = static_cast<std::uint32_t>(call.length);
    const LongSlots slots = long_slots(ch.next_seq, length, ch.slots);
    if (!out_.room(ch, slots.total)) [[unlikely]]
        return ch.refusal();
    PacketBuffer* block = buffers_.alloc(call.length);
    if (block == nullptr)
        return -FI_EAGAIN;
    gather(block->block.data, call.iov, call.count, call.length);
    vcq::Post post = vcq_.put(ch.peer.home, block->block.stadd,
                              ch.ring + std::uint64_t{slots.first} * slot_size, call.length,
                              {.when = vcq::When::sent, .waiter = block, .cache = vcq::into_cache});
    if (post != vcq::Post::done) [[unlikely]] {
        buffers_.release(*block);
        return out_.post_failed(ch, post);
    }
    std::byte image[inline_limit];
    PacketWriter packet(image + inline_limit);
    packet.control(Type::long_eager, flags, call.length, ch.next_seq);
    write_fields(packet, call, ack, flags);
    post = out_.put(ch, packet, delivered);
    if (post == vcq::Post::error) [[unlikely]]
        return out_.post_failed(ch, post);
    if (post == vcq::Post::busy) [[unlikely]] {
        // The payload lies in slots that still count as free, so its packet must go before anything else does. Until
        // then the message has not been sent. Without memory for a request it is reported all the same.
        SendRequest* const late = delivered == nullptr && ack == nullptr ? requests_.make_late(ch, call) : nullptr;
        out_.defer(ch, packet, late != nullptr ? late : delivered);
        ret = late != nullptr ? reported_later : 0;
    }
    vcq_.statistics().count(Stat::send_long);
    ch.next_seq += slots.total;
    return ret;
}

ssize_t Sender::write_data(fi_addr_t to, std::uint64_t data, std::uint64_t length) noexcept
{
    Channel* ch;
    if (int ret = channel_to(to, ch); ret != 0)
        return ret;
    if (backlog_.waiting().has_line(Pending::line_of(ch->peer)))
        return tx_.again(Stat::again_behind);
    if (ch->state != ChannelState::open)
        if (int ret = out_.approach(*ch); ret != 0)
            return ret;
    return put_words(*ch, Type::write_data, flag_data, data, length);
}

/// Puts a packet of one or two words.
int Sender::put_words(Channel& ch, Type type, std::uint8_t flags, std::uint64_t first,
                      std::optional<std::uint64_t> second) noexcept
{
    if (ch.deferred.size != 0 && !out_.flush(ch))
        return ch.refusal();
    return put_slot(ch, type, flags, 0, sizeof(Control) + 2 * sizeof first, nullptr, [&](PacketWriter& packet) {
        packet.put64(first);
        if (second)
            packet.put64(*second);
    });
}

} // namespace tofu::proto
