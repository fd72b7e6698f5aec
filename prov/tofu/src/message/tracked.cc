// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sends that are not over when the call returns: those that wait for their arrival, and the sending side of a
// rendezvous; and the FIN words that end what waits for a peer. Part of the sender; called by send.cc; calls vcq.
#include "message/send.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <rdma/fi_errno.h>

#include "local/iov.h"
#include "progress/domain_base.h"
#include "provider/error.h"

namespace tofu::proto {

namespace {
/// To it, or to one of its contexts.
bool leads_to(const Channel& ch, const Peer& peer) noexcept
{
    return ch.peer.home == peer.home && ch.peer.nonce == peer.nonce &&
           static_cast<unsigned>(ch.peer.index - peer.index) <= peer.further;
}

/// Does the receiver fetch it before it looks whose it is, as it would have it in a ring?
bool is_far(const Channel& ch, const SendCall& call) noexcept
{
    return ch.state != ChannelState::open && call.length <= max_eager;
}
} // namespace

bool Sender::idle_towards(const Peer& peer) const noexcept
{
    if (waiting_fin_.empty() && all_has_left())
        return true;
    return std::none_of(out_.channels().begin(), out_.channels().end(), [&](const Channel* ch) {
        return (ch->outstanding != 0 || ch->deferred.size != 0) && leads_to(*ch, peer);
    });
}

/// The completion of a fenced operation says of those before it that they have reached its level, too, whatever theirs
/// was (fi_cq(3), FI_FENCE). A ring is read in order, so a packet behind them is answered when they have been taken.
bool Sender::settled(const Peer& peer, bool matched) noexcept
{
    bool all = true;
    for (Channel* ch : out_.channels()) {
        if (!leads_to(*ch, peer) || ch->state == ChannelState::failed || ch->mark[matched] == ch->next_seq)
            continue;
        const int ready = out_.approach(*ch);
        if (ch->mark[matched] == ch->next_seq) // what a former ring brought was taken with it
            continue;
        all = false;
        if (ready == 0)
            ask_settled(*ch, matched);
    }
    return all;
}

/// Without room it is tried again.
void Sender::ask_settled(Channel& ch, bool matched) noexcept
{
    SendRequest* const request = make_request(ch, {.silent = true});
    if (request == nullptr)
        return;
    request->cq = nullptr; // no operation of the application
    request->counter = nullptr;
    if (put_words(ch, Type::fence, static_cast<std::uint8_t>(flag_ack | (matched ? flag_match : 0)),
                  std::bit_cast<std::uint64_t>(Ack{request->fin, request->seq})) != 0) {
        drop(*request);
        return;
    }
    ch.mark[0] = ch.next_seq; // as soon as nothing is outstanding
    if (matched)
        ch.mark[1] = ch.next_seq;
    await_fin(*request);
}

ssize_t Sender::send_tracked(Channel& ch, const SendCall& call, std::uint64_t level) noexcept
{
    SendRequest* request = make_request(ch, call);
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
            await_fin(*request);
    } else {
        ret = put_packet(ch, call, nullptr, call.packet_flags, request);
        if (ret == 0)
            ch.outstanding++;
    }
    if (ret != 0)
        drop(*request);
    return ret;
}

ssize_t Sender::send_rendezvous(Channel& ch, const SendCall& call) noexcept
{
    if (!out_.room(ch, 1))
        return Outbound::refusal(ch);
    SendRequest* request = make_request(ch, call);
    if (request == nullptr)
        return tx_.again(Stat::again_operations);
    Segment segments[max_segments];
    if (is_far(ch, call) && (call.silent || (call.flags & levels) == 0))
        request->block = alloc_buffer(call.length);
    const bool kept = request->block != nullptr;
    if (kept) { // what would go into a ring is over at once here, too: it is fetched from a block of ours
        Bounce& block = request->block->block;
        gather(block.data, call.iov, call.count, call.length);
        segments[0] = {block.stadd, call.length};
        request->cq = nullptr;
        request->counter = nullptr;
    }
    for (std::size_t i = 0; !kept && i < call.count; i++) {
        if (call.iov[i].iov_len == 0)
            continue;
        const unsigned n = request->ref_count;
        if (int ret = tx_.local_memory().acquire(call.iov[i].iov_base, call.iov[i].iov_len, true,
                                                 request->refs[n],
                                                 call.desc != nullptr ? call.desc[i] : nullptr);
            ret != 0) {
            drop(*request);
            return ret;
        }
        segments[n] = {request->refs[n].stadd, call.iov[i].iov_len};
        request->ref_count++;
    }
    ssize_t ret = put_rts(ch, call, *request, segments);
    if (ret != 0) {
        drop(*request);
        return ret;
    }
    vcq_.statistics().count(Stat::send_rendezvous);
    kept_ += kept;
    await_fin(*request);
    if (kept)
        report_sent(call);
    return 0;
}

ssize_t Sender::put_rts(Channel& ch, const SendCall& call, SendRequest& request,
                           const Segment* segments) noexcept
{
    PacketBuffer* block = alloc_buffer(slot_size);
    if (block == nullptr)
        return -FI_EAGAIN;
    PacketWriter packet(block->block.data + slot_size);
    const bool far = is_far(ch, call);
    const auto flags = static_cast<std::uint8_t>(call.packet_flags | flag_ack |
                                                 (far && (call.flags & FI_MATCH_COMPLETE) ? flag_match : 0));
    const Ack ack{request.fin, request.seq};
    const unsigned count = request.block != nullptr ? 1 : request.ref_count;
    write_head(packet, ch, far ? Type::far_eager : Type::rts, flags, count);
    write_fields(packet, call, &ack, flags);
    for (unsigned i = count; i-- > 0;)
        packet.put(segments[i]);
    packet.put(Rts{vcq_.id()});
    // release: the receiver Gets it when the message had to wait there, before it Gets from our segments
    rings_.port.area.fin(request.fin).store(fin_word(request.seq, fin_pending), std::memory_order_release);
    if (vcq::Post post = put_block(ch, packet, *block, nullptr); post != vcq::Post::done)
        return out_.post_failed(ch, post);
    out_.sent(ch);
    return 0;
}

// --- requests

SendRequest* Sender::make_request(Channel& ch, const SendCall& call) noexcept
{
    SendRequest* r = requests_.alloc();
    if (r == nullptr)
        return nullptr;
    if (!r->numbered) {
        if (!waiting_fin_.reserve(fins_made_ + 1)) {
            requests_.release(r);
            return nullptr;
        }
        r->numbered = true;
        r->fin = fins_made_++;
        r->seq = first_seq_;
    }
    r->notify = on_delivered;
    r->owner = this;
    r->to = &ch;
    r->seq++;
    r->ref_count = 0;
    r->block = nullptr;
    r->awaits_fin = false;
    r->reports = &tx_.reports();
    r->cq = tx_.reports().binding.cq;
    r->counter = tx_.reports().counters.send;
    r->completion = {.context = call.context,
                     .flags = FI_SEND | ((call.packet_flags & flag_tag) ? FI_TAGGED : FI_MSG)};
    r->wants_entry = !call.silent && tx_.reports().binding.reports(call.flags);
    r->err = 0;
    r->prov_errno = 0;
    return r;
}

void Sender::await_fin(SendRequest& r) noexcept
{
    r.awaits_fin = true;
    r.to->outstanding++;
    r.place = static_cast<std::uint32_t>(waiting_fin_.size());
    waiting_fin_.push_reserved(&r);
}

/// Gives a request back that never came to anything.
void Sender::drop(SendRequest& r) noexcept
{
    for (unsigned i = 0; i < r.ref_count; i++)
        tx_.local_memory().release(r.refs[i]);
    if (r.block != nullptr)
        release(*std::exchange(r.block, nullptr));
    requests_.release(&r);
}

void Sender::end(SendRequest& r, int err, int prov_errno) noexcept
{
    if (r.awaits_fin) {
        SendRequest* last = waiting_fin_.back();
        waiting_fin_[r.place] = last;
        last->place = r.place;
        waiting_fin_.pop_back();
    }
    if (err != 0) // nobody fetches it any more
        rings_.port.area.fin(r.fin).store(0, std::memory_order_release);
    kept_ -= r.awaits_fin && r.block != nullptr;
    r.to->outstanding--;
    r.err = err;
    r.prov_errno = prov_errno;
    complete(r);
    drop(r);
}

void Sender::channel_failed(Channel& ch, vcq::Waiter* waiter) noexcept
{
    if (waiter != nullptr)
        end(*static_cast<SendRequest*>(static_cast<Request*>(waiter)), ch.err, ch.prov_errno);
    // A peer that has closed its endpoint has answered before: what its FIN words say stands.
    for (std::size_t i = waiting_fin_.size(); i-- > 0;)
        if (i < waiting_fin_.size() && waiting_fin_[i]->to == &ch && !take_fin(*waiting_fin_[i]))
            end(*waiting_fin_[i], ch.err, ch.prov_errno);
}

void Sender::on_delivered(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    auto& r = *static_cast<SendRequest*>(static_cast<Request*>(waiter));
    Sender& m = *r.owner;
    if (r.block != nullptr)
        m.release(*r.block);
    r.block = nullptr;
    if (!m.rings_.port.open)
        return;
    Channel& ch = *r.to;
    if (notice.code != UTOFU_SUCCESS)
        m.out_.fail(ch, fi_error_of(notice.code), notice.code);
    m.end(r, notice.code == UTOFU_SUCCESS ? 0 : fi_error_of(notice.code), notice.code);
}

/// Ends the request if its FIN word has come. False: it has not.
bool Sender::take_fin(SendRequest& r) noexcept
{
    // acquire: pairs with the peer's Put of the word; its Gets ended before
    const FinWord word = rings_.port.area.fin(r.fin).load(std::memory_order_acquire);
    const auto status = static_cast<std::uint32_t>(word);
    if (static_cast<std::uint32_t>(word >> 32) != r.seq || status == fin_pending)
        return false;
    if (const auto seen = rings_.port.self.vcq.backend().functions().seen; seen != nullptr)
        (void)seen(rings_.port.area.fin_address(r.fin), sizeof word);
    end(r, status == 0 ? 0 : FI_EREMOTEIO, static_cast<int>(status));
    return true;
}

/// Looks at the FIN words that are awaited; a bounded number of them each time.
void Sender::poll_fins() noexcept
{
    constexpr std::size_t in_a_round = 32;
    std::size_t n = waiting_fin_.size();
    if (n > in_a_round) {
        n = in_a_round;
    } else {
        next_fin_ = 0;
    }
    for (std::size_t i = 0; i < n; i++) {
        if (next_fin_ >= waiting_fin_.size())
            next_fin_ = 0;
        if (waiting_fin_.empty())
            return;
        if (!take_fin(*waiting_fin_[next_fin_])) // else another one takes its place
            next_fin_++;
    }
}

} // namespace tofu::proto
