// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sends that are not over when the call returns: sends that wait for their arrival, and the sending side of a
// rendezvous; and what a fence asks of the sender. Part of the sender; called by eager.cc; calls vcq.
#include "msg/fast_path.h"

#include <algorithm>
#include <bit>

#include <rdma/fi_errno.h>

#include "cq/domain_base.h"
#include "mem/local_buffer.h"

namespace tofu::proto {

namespace {
/// Does the channel lead to the peer, or to one of its receive contexts?
bool leads_to(const Channel& ch, const Peer& peer) noexcept
{
    return ch.peer.home == peer.home && ch.peer.nonce == peer.nonce &&
           static_cast<unsigned>(ch.peer.index - peer.index) <= peer.further;
}

/// Is the message of eager size, but without a ring to go into? Then the receiver fetches it before it matches it.
bool is_by_get(const Channel& ch, const SendCall& call) noexcept
{
    return ch.state != ChannelState::open && call.length <= max_eager;
}
} // namespace

bool Sender::idle_towards(const Peer& peer) const noexcept
{
    if (!requests_.awaits_any() && all_has_left())
        return true;
    return std::none_of(out_.channels.begin(), out_.channels.end(), [&](const Channel* ch) {
        return (ch->outstanding != 0 || ch->deferred.size != 0) && leads_to(*ch, peer);
    });
}

/// The completion of a fenced operation says that all operations before it have reached its level, whatever level they
/// asked for (fi_cq(3), FI_FENCE). A peer reads a ring in order, so it answers a packet behind them when it has taken
/// them.
bool Sender::settled(const Peer& peer, bool matched) noexcept
{
    bool all = true;
    for (Channel* ch : out_.channels) {
        if (!leads_to(*ch, peer) || ch->state == ChannelState::failed || ch->mark[matched] == ch->next_seq)
            continue;
        const int ready = out_.approach(*ch);
        if (ch->mark[matched] == ch->next_seq) // a new ring: the old one's packets were taken
            continue;
        all = false;
        if (ready == 0)
            ask_settled(*ch, matched);
    }
    return all;
}

/// Asks the peer by a packet behind all others. Where there is no room now, settled() is called again.
void Sender::ask_settled(Channel& ch, bool matched) noexcept
{
    SendRequest* const request = requests_.make(ch, {.silent = true});
    if (request == nullptr)
        return;
    request->cq = nullptr; // this is no operation of the application
    request->counter = nullptr;
    if (put_words(ch, Type::fence, static_cast<std::uint8_t>(flag_ack | (matched ? flag_match : 0)),
                  std::bit_cast<std::uint64_t>(Ack{request->fin, request->seq})) != 0) {
        requests_.drop(*request);
        return;
    }
    ch.mark[0] = ch.next_seq; // true as soon as nothing is outstanding
    if (matched)
        ch.mark[1] = ch.next_seq;
    requests_.await_completion(*request);
}

ssize_t Sender::send_tracked(Channel& ch, const SendCall& call, std::uint64_t level) noexcept
{
    SendRequest* request = requests_.make(ch, call);
    if (request == nullptr)
        return tx_.again(Stat::again_operations);
    ssize_t ret;
    if (level & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) {
        const Ack ack{request->fin, request->seq};
        auto flags = static_cast<std::uint8_t>(call.packet_flags | flag_ack);
        if (level & FI_MATCH_COMPLETE)
            flags |= flag_match;
        ret = put_packet(ch, call, &ack, flags, nullptr);
        if (ret == 0)
            requests_.await_completion(*request);
    } else {
        ret = put_packet(ch, call, nullptr, call.packet_flags, request);
        if (ret == 0)
            ch.outstanding++;
    }
    if (ret != 0)
        requests_.drop(*request);
    return ret;
}

ssize_t Sender::send_rendezvous(Channel& ch, const SendCall& call) noexcept
{
    if (!out_.room(ch, 1))
        return ch.refusal();
    SendRequest* request = requests_.make(ch, call);
    if (request == nullptr)
        return tx_.again(Stat::again_operations);
    Segment segments[max_segments];
    if (call.silent || (call.flags & levels) == 0) {
        if (is_by_get(ch, call) || (tx_.domain().crowded() && call.length <= Copies::longest))
            request->copy = requests_.make_copy(call.length);
    }
    const bool kept = request->copy != nullptr;
    // A message of eager size completes at once even without a ring: the receiver fetches it from a block of ours. So
    // does a message that is not much longer, where processes outnumber processors and the receiver needs ours before
    // it can fetch.
    if (kept) {
        Copy& copy = *request->copy;
        gather(copy.block.data, call.iov, call.count, call.length);
        copy.fin = request->fin;
        copy.seq = request->seq;
        copy.home = ch.peer.home;
        copy.area = ch.area;
        copy.nonce = ch.peer.nonce;
        segments[0] = {copy.block.stadd, call.length};
        request->cq = nullptr;
        request->counter = nullptr;
    } else {
        request->rail = tx_.rails().take(Rails::By::peer, ch.peer.home, call.length);
    }
    for (std::size_t i = 0; !kept && i < call.count; i++) {
        if (call.iov[i].iov_len == 0)
            continue;
        const unsigned n = request->ref_count;
        if (int ret = tx_.rails().memory(request->rail).acquire(call.iov[i].iov_base, call.iov[i].iov_len, true,
                                                             request->refs[n],
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

ssize_t Sender::put_rts(Channel& ch, const SendCall& call, SendRequest& request,
                           const Segment* segments) noexcept
{
    PacketBuffer* block = buffers_.alloc(slot_size);
    if (block == nullptr)
        return -FI_EAGAIN;
    PacketWriter packet(block->block.data + slot_size);
    const bool by_get = is_by_get(ch, call);
    const auto flags = static_cast<std::uint8_t>(call.packet_flags | flag_ack |
                                                 (by_get && (call.flags & FI_MATCH_COMPLETE) ? flag_match : 0));
    const Ack ack{request.fin, request.seq};
    const bool copied = request.copy != nullptr;
    const unsigned count = copied ? 1 : request.ref_count;
    write_head(packet, out_, ch, by_get ? Type::eager_by_get : Type::rts, flags, count);
    write_fields(packet, call, &ack, flags);
    for (unsigned i = count; i-- > 0;)
        packet.put(segments[i]);
    packet.put(Rts{copied ? rings_.port.self.home.id() : tx_.rails().vcq(request.rail).id()});
    // release: a receiver at which the message had to wait Gets this word before it Gets from our segments
    rings_.port.area.fin(request.fin).store(completion_word(request.seq, completion_pending), std::memory_order_release);
    if (vcq::Post post = put_block(ch, packet, *block, nullptr); post != vcq::Post::done)
        return out_.post_failed(ch, post);
    out_.sent(ch);
    return 0;
}

} // namespace tofu::proto
