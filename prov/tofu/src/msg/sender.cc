// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See sender.h.
#include "msg/sender.h"

#include <bit>

#include <rdma/fi_errno.h>

namespace tofu::proto {

// --- writes into a peer's ring: eager messages in one slot or in several, and the CQ data of RMA writes

/// Does the message fit into one packet that goes without a ring, and so carries its sender's envelope?
static bool fits_an_anonymous_slot(const SendCall& call) noexcept
{
    const std::uint8_t ack = (call.flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0 ? flag_ack : 0;
    return call.length <= slot_size && ((call.length + 7) & ~std::size_t{7}) + sizeof(Envelope) +
                                               overhead(static_cast<std::uint8_t>(call.packet_flags | ack)) <=
                                           slot_size;
}
static_assert(limits::inject_size + sizeof(Envelope) + sizeof(Control) + 8 + 8 + sizeof(Ack) <= slot_size);

Sender::Sender(TxContext& tx, RingSet& rings) noexcept
    : tx_(tx), rings_(rings), out_(rings.out), vcq_(tx.vcq()), buffers_(rings.own.bounces),
      requests_(tx, rings, buffers_), queue_(tx, *this)
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
    TxChannel* ch = nullptr;
    for (unsigned round = 0; ret == -FI_EAGAIN && round < contact_rounds; round++) {
        tx_.progress();
        ret = try_send(call);
        if (ret != -FI_EAGAIN || channel_to(call.dest, ch) != 0 || !ch->retry_soon())
            break;
    }
    if (ret != -FI_EAGAIN || !queue_.takes(call))
        return ret;
    if (int error = channel_to(call.dest, ch); error != 0)
        return error;
    return queue_.enqueue(*ch, call);
}

int Sender::channel_to(fi_addr_t dest, TxChannel*& to) noexcept
{
    TxChannel* ch = out_.channels.recent(dest);
    if (ch == nullptr) [[unlikely]] {
        const Peers& peers = tx_.peers();
        const Peer* peer = peers.find(dest);
        if (peer == nullptr)
            return -FI_EINVAL;
        if (int ret = out_.channel_to({dest, *peer, peers.context_of(dest)}, ch); ret != 0)
            return ret;
    }
    to = ch;
    return 0;
}

ssize_t Sender::try_send(const SendCall& call, bool is_first) noexcept
{
    TxChannel* found = open_channel(call);
    if (found == nullptr) [[unlikely]] {
        if (int ret = channel_to(call.dest, found); ret != 0)
            return ret;
        if (!is_first && found->waiting != 0)
            return tx_.again(Stat::again_behind);
        if (int ret = out_.prepare_to_send(*found); ret != 0)
            return ret;
    }
    TxChannel& ch = *found;
    if (ch.deferred.size != 0 && !out_.flush(ch)) [[unlikely]]
        return ch.refusal();
    if (ch.state == ChannelState::open ? call.length > eager_limit_of(ch.slots) : !fits_an_anonymous_slot(call))
        return send_rendezvous(ch, call);
    if ((call.flags & levels) != 0 && !call.is_inject)
        return send_signaled(ch, call, call.flags & levels);
    if (ssize_t ret = put_eager(ch, call, nullptr, call.packet_flags, nullptr); ret != 0) [[unlikely]]
        return ret != reported_later ? ret : 0;
    report_sent(tx_, call);
    return 0;
}

/// Puts a packet of `size` bytes, its envelope not counted, into one slot. `fill` writes the bytes before the head.
/// `delivered`, if not null, is notified when the packet has arrived.
template <class Fill>
int Sender::put_slot(TxChannel& ch, Type type, std::uint8_t flags, std::size_t length, std::size_t size,
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
    const vcq::Post post = small ? out_.put(ch, packet, delivered) : put_block(ch, packet, *block, delivered);
    if (post != vcq::Post::done) [[unlikely]]
        return out_.post_failed(ch, post);
    if (type == Type::eager && ch.state == ChannelState::open)
        vcq_.statistics().count(small ? Stat::send_short : Stat::send_slot);
    out_.sent(ch);
    return 0;
}

/// Puts an eager message into the ring, in one slot or in several. 0; reported_later; or a refusal.
ssize_t Sender::put_eager(TxChannel& ch, const SendCall& call, const Ack* ack, std::uint8_t flags,
                          SendRequest* delivered) noexcept
{
    const std::size_t padded = (call.length + 7) & ~std::size_t{7};
    if (padded + overhead(flags) + ch.envelope_size() > slot_size)
        return put_eager_multi(ch, call, ack, flags, delivered);
    return put_slot(ch, Type::eager, flags, call.length, padded + overhead(flags), delivered,
                    [&](PacketWriter& packet) {
                        write_fields(packet, call, ack, flags);
                        if (padded == 0)
                            return;
                        std::byte* to = packet.reserve(padded);
                        std::memset(to + padded - 8, 0, 8); // the padding shows nothing of our memory
                        gather(to, call.iov, call.count, call.length);
                    });
}

/// Posts a packet that was built in a block. Releases the block if nothing was posted.
vcq::Post Sender::put_block(TxChannel& ch, const PacketWriter& packet, PacketBuffer& block,
                            SendRequest* delivered) noexcept
{
    const std::size_t size = packet.size();
    vcq::PostOptions how{.level = vcq::CompletionLevel::sent, .strong_order = true, .handler = &block};
    if (delivered != nullptr) {
        delivered->block = &block;
        how.level = vcq::CompletionLevel::delivered;
        how.handler = delivered;
    }
    const vcq::Post post =
        vcq_.put(ch.peer.target_vcq, block.block.stadd + slot_size - size, ch.slot_end() - size, size, how);
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
ssize_t Sender::put_eager_multi(TxChannel& ch, const SendCall& call, const Ack* ack, std::uint8_t flags,
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
    vcq::Post post =
        vcq_.put(ch.peer.target_vcq, block->block.stadd, ch.ring + std::uint64_t{slots.first} * slot_size, call.length,
                 {.level = vcq::CompletionLevel::sent, .handler = block, .cache = vcq::into_cache});
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
    TxChannel* ch;
    if (int ret = channel_to(to, ch); ret != 0)
        return ret;
    if (ch->waiting != 0)
        return tx_.again(Stat::again_behind);
    if (ch->state != ChannelState::open)
        if (int ret = out_.prepare_to_send(*ch); ret != 0)
            return ret;
    return put_words(*ch, Type::write_data, flag_data, data, length);
}

/// Puts a packet of one or two words.
int Sender::put_words(TxChannel& ch, Type type, std::uint8_t flags, std::uint64_t first,
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

// --- sends that are not over when the call returns: sends that wait for their arrival, and the sending side of a
// rendezvous; and what a fence asks of the sender

/// Does the channel lead to the peer, or to one of its receive contexts?
static bool leads_to(const TxChannel& ch, const Peer& peer) noexcept
{
    return ch.peer.target_vcq == peer.target_vcq && ch.peer.nonce == peer.nonce &&
           static_cast<unsigned>(ch.peer.index - peer.index) <= peer.further;
}

/// Is the message of eager size, but without a ring to go into? Then the receiver fetches it before it matches it.
static bool is_by_get(const TxChannel& ch, const SendCall& call) noexcept
{
    return ch.state != ChannelState::open && call.length <= max_eager;
}

bool Sender::idle_towards(const Peer& peer) const noexcept
{
    if (!requests_.awaits_any() && all_has_left())
        return true;
    return std::none_of(out_.channels.begin(), out_.channels.end(), [&](const TxChannel* ch) {
        return (ch->outstanding != 0 || ch->deferred.size != 0) && leads_to(*ch, peer);
    });
}

/// The completion of a fenced operation says that all operations before it have reached its level, whatever level they
/// asked for (fi_cq(3), FI_FENCE). A peer reads a ring in order, so it answers a packet behind them when it has taken
/// them.
bool Sender::confirmed(const Peer& peer, bool matched) noexcept
{
    bool all = true;
    for (TxChannel* ch : out_.channels) {
        if (!leads_to(*ch, peer) || ch->state == ChannelState::failed || ch->confirmed_seq[matched] == ch->next_seq)
            continue;
        const int ready = out_.prepare_to_send(*ch);
        if (ch->confirmed_seq[matched] == ch->next_seq) // a new ring: the old one's packets were taken
            continue;
        all = false;
        if (ready == 0)
            request_confirmation(*ch, matched);
    }
    return all;
}

/// Asks the peer by a packet behind all others. Where there is no room now, confirmed() is called again.
void Sender::request_confirmation(TxChannel& ch, bool matched) noexcept
{
    SendRequest* const request = requests_.make(ch, {.is_inject = true});
    if (request == nullptr)
        return;
    request->cq = nullptr; // this is no operation of the application
    request->counter = nullptr;
    if (put_words(ch, Type::fence, static_cast<std::uint8_t>(flag_ack | (matched ? flag_match : 0)),
                  std::bit_cast<std::uint64_t>(Ack{request->word, request->seq})) != 0) {
        requests_.drop(*request);
        return;
    }
    ch.confirmed_seq[0] = ch.next_seq; // true as soon as nothing is outstanding
    if (matched)
        ch.confirmed_seq[1] = ch.next_seq;
    requests_.await_completion(*request);
}

ssize_t Sender::send_signaled(TxChannel& ch, const SendCall& call, std::uint64_t level) noexcept
{
    SendRequest* request = requests_.make(ch, call);
    if (request == nullptr)
        return tx_.again(Stat::again_operations);
    ssize_t ret;
    if (level & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) {
        const Ack ack{request->word, request->seq};
        auto flags = static_cast<std::uint8_t>(call.packet_flags | flag_ack);
        if (level & FI_MATCH_COMPLETE)
            flags |= flag_match;
        ret = put_eager(ch, call, &ack, flags, nullptr);
        if (ret == 0)
            requests_.await_completion(*request);
    } else {
        ret = put_eager(ch, call, nullptr, call.packet_flags, request);
        if (ret == 0)
            ch.outstanding++;
    }
    if (ret != 0)
        requests_.drop(*request);
    return ret;
}

ssize_t Sender::send_rendezvous(TxChannel& ch, const SendCall& call) noexcept
{
    if (!out_.room(ch, 1))
        return ch.refusal();
    SendRequest* request = requests_.make(ch, call);
    if (request == nullptr)
        return tx_.again(Stat::again_operations);
    Segment segments[max_segments];
    if (is_by_get(ch, call) && (call.is_inject || (call.flags & levels) == 0))
        request->copy = requests_.make_copy(call.length);
    const bool kept = request->copy != nullptr;
    // A message of eager size completes at once even without a ring: the receiver fetches it from a block of the
    // sender.
    if (kept) {
        Copy& copy = *request->copy;
        gather(copy.block.data, call.iov, call.count, call.length);
        copy.word = request->word;
        copy.seq = request->seq;
        copy.receiver = {ch.peer.target_vcq, ch.area, ch.peer.nonce};
        segments[0] = {copy.block.stadd, call.length};
        request->cq = nullptr;
        request->counter = nullptr;
    } else {
        request->rail = tx_.rails().acquire(Rails::By::peer, ch.peer.target_vcq, call.length);
    }
    for (std::size_t i = 0; !kept && i < call.count; i++) {
        if (call.iov[i].iov_len == 0)
            continue;
        const unsigned n = request->ref_count;
        if (int ret = tx_.rails()
                          .memory(request->rail)
                          .acquire(call.iov[i].iov_base, call.iov[i].iov_len, true, request->refs[n],
                                   call.desc != nullptr ? call.desc[i] : nullptr);
            ret != 0) {
            requests_.drop(*request);
            return ret;
        }
        segments[n] = {request->refs[n].stadd, call.iov[i].iov_len};
        request->ref_count++;
    }
    ssize_t ret = put_rts(ch, call, *request, segments);
    if (ret != 0) {
        requests_.drop(*request);
        return ret;
    }
    vcq_.statistics().count(Stat::send_rendezvous);
    requests_.await_completion(*request);
    if (kept)
        report_sent(tx_, call);
    return 0;
}

ssize_t Sender::put_rts(TxChannel& ch, const SendCall& call, SendRequest& request, const Segment* segments) noexcept
{
    PacketBuffer* block = buffers_.alloc(slot_size);
    if (block == nullptr)
        return -FI_EAGAIN;
    PacketWriter packet(block->block.data + slot_size);
    const bool by_get = is_by_get(ch, call);
    const auto flags = static_cast<std::uint8_t>(call.packet_flags | flag_ack |
                                                 (by_get && (call.flags & FI_MATCH_COMPLETE) ? flag_match : 0));
    const Ack ack{request.word, request.seq};
    const bool copied = request.copy != nullptr;
    const unsigned count = copied ? 1 : request.ref_count;
    write_head(packet, out_, ch, by_get ? Type::eager_by_get : Type::rts, flags, count);
    write_fields(packet, call, &ack, flags);
    for (unsigned i = count; i-- > 0;)
        packet.put(segments[i]);
    packet.put(Rts{copied ? rings_.own.target_vcq.id() : tx_.rails().vcq(request.rail).id()});
    // release: a receiver at which the message had to wait Gets this word before it Gets from our segments
    rings_.own.area.completion(request.word)
        .store(completion_word(request.seq, completion_pending), std::memory_order_release);
    if (vcq::Post post = put_block(ch, packet, *block, nullptr); post != vcq::Post::done)
        return out_.post_failed(ch, post);
    out_.sent(ch);
    return 0;
}

} // namespace tofu::proto
