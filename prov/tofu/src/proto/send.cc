// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What goes into a peer's ring: eager messages in one slot or in several, the requests of a rendezvous, CQ data
// of RMA writes; and the FIN words that end what waits for a peer. Part of the messenger; calls vcq.
#include "proto/messenger.h"

#include <rdma/fi_errno.h>

#include "atomic.h"
#include "cntr.h"
#include "domain.h"
#include "endpoint.h"
#include "error.h"
#include "proto/iov.h"
#include "rma.h"

namespace tofu::proto {

namespace {

constexpr std::size_t inline_limit = 32; // caps().max_piggyback_size, checked by open()
constexpr std::uint64_t levels = FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;

/// Control, data, tag, ack: what stands behind the payload.
void write_frame(PacketWriter& packet, Type type, const SendCall& call, const Ack* ack,
                 std::uint8_t flags, std::size_t length, std::uint32_t seq) noexcept
{
    packet.control(type, flags, length, seq);
    if (flags & flag_data)
        packet.put64(call.data);
    if (flags & flag_tag)
        packet.put64(call.tag);
    if (ack != nullptr)
        packet.put(*ack);
}

} // namespace

/// FI_FENCE: RMA and atomics before it have taken effect. Messages are in order anyway, and what goes unattended (inject)
/// is ordered by the strong-order flag of the packet.
[[gnu::noinline]] bool Messenger::fence_passed() noexcept
{
    auto quiet = [this] {
        return vcq_.idle() && ((ep_.caps() & FI_RMA) == 0 || ep_.rma_engine().idle()) &&
               ((ep_.caps() & FI_ATOMIC) == 0 || ep_.atomic_engine().idle());
    };
    if (quiet())
        return true;
    ep_.progress_locked();
    return quiet();
}

ssize_t Messenger::send(const SendCall& call) noexcept
{
    if ((call.flags & FI_FENCE) && !fence_passed()) [[unlikely]]
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
    return ret;
}

ssize_t Messenger::try_send(const SendCall& call) noexcept
{
    Channel* found;
    if (int ret = channel_to(call.dest, found); ret != 0) [[unlikely]]
        return ret;
    Channel& ch = *found;
    if (ch.state != ChannelState::open) [[unlikely]]
        if (int ret = contact(ch); ret != 0)
            return ret;
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

/// The bytes are on their way and the buffer is the user's again: what FI_INJECT_COMPLETE means.
inline void Messenger::report_sent(const SendCall& call) noexcept
{
    const Binding& tx = ep_.tx();
    if (!call.silent && tx.reports(call.flags))
        tx.cq->write({.context = call.context,
                      .flags = FI_SEND | ((call.packet_flags & flag_tag) ? FI_TAGGED : FI_MSG)});
    if (Counter* counter = ep_.counters().send)
        counter->count();
}

/// Is there room for that many slots? Looks into the return block when there seems to be none.
bool Messenger::room(Channel& ch, std::uint32_t slots) noexcept
{
    if (ch.free_slots() >= slots) [[likely]]
        return true;
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
    counts_.eager++;
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
    counts_.long_eager++;
    return 0;
}

ssize_t Messenger::send_tracked(Channel& ch, const SendCall& call, std::uint64_t level) noexcept
{
    SendRequest* request = make_request(ch, call);
    if (request == nullptr)
        return -FI_EAGAIN;
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

ssize_t Messenger::send_rendezvous(Channel& ch, const SendCall& call) noexcept
{
    if (!room(ch, 1))
        return ch.state == ChannelState::failed ? -ch.err : -FI_EAGAIN;
    SendRequest* request = make_request(ch, call);
    if (request == nullptr)
        return -FI_EAGAIN;
    Segment segments[max_segments];
    for (std::size_t i = 0; i < call.count; i++) {
        if (call.iov[i].iov_len == 0)
            continue;
        const unsigned n = request->ref_count;
        if (int ret = ep_.local_memory().acquire(call.iov[i].iov_base, call.iov[i].iov_len, true,
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
    await_fin(*request);
    return 0;
}

ssize_t Messenger::put_rts(Channel& ch, const SendCall& call, SendRequest& request,
                           const Segment* segments) noexcept
{
    Hold* block = hold(slot_size);
    if (block == nullptr)
        return -FI_EAGAIN;
    PacketWriter packet(block->block.data + slot_size);
    const auto flags = static_cast<std::uint8_t>(call.packet_flags | flag_ack);
    const Ack ack{request.fin, request.seq};
    write_frame(packet, Type::rts, call, &ack, flags, request.ref_count, ch.next_seq);
    for (unsigned i = request.ref_count; i-- > 0;)
        packet.put(segments[i]);
    packet.put(Rts{vcq_.id(), offer_help(request, call)});
    if (vcq::Post post = put_block(ch, packet, *block, nullptr); post != vcq::Post::done)
        return post_failed(ch, post);
    ch.next_seq++;
    counts_.rendezvous++;
    return 0;
}

ssize_t Messenger::write_data(fi_addr_t to, std::uint64_t data, std::uint64_t length) noexcept
{
    Channel* ch;
    if (int ret = channel_to(to, ch); ret != 0)
        return ret;
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
    // The peer need not look for new rings: it is told. And we want to know when it knows (turnover.cc, case 2).
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

// --- requests

Hold* Messenger::hold(std::size_t size) noexcept
{
    Hold* h = holds_.alloc();
    if (h == nullptr)
        return nullptr;
    h->block = bounces_.alloc(size);
    if (h->block.data == nullptr) {
        holds_.release(h);
        return nullptr;
    }
    h->notify = on_block_sent;
    h->owner = this;
    return h;
}

void Messenger::release(Hold& block) noexcept
{
    bounces_.release(block.block);
    holds_.release(&block);
}

void Messenger::on_block_sent(vcq::Waiter* waiter, const vcq::Notice&) noexcept
{
    auto* block = static_cast<Hold*>(waiter); // a failure shows at the channel, by the MRQ
    block->owner->release(*block);
}

SendRequest* Messenger::make_request(Channel& ch, const SendCall& call) noexcept
{
    SendRequest* r = sends_.alloc();
    if (r == nullptr)
        return nullptr;
    if (!r->numbered) {
        r->numbered = true;
        r->fin = fins_made_++;
        r->seq = static_cast<std::uint32_t>(ep_.domain().nonce()); // no late FIN of an earlier endpoint fits
    }
    r->notify = on_delivered;
    r->owner = this;
    r->channel = &ch;
    r->seq++;
    r->ref_count = 0;
    r->block = nullptr;
    r->awaits_fin = false;
    r->help.step = Help::Step::none;
    r->help.ending = false;
    r->help.block = ShareBlocks::none;
    r->endpoint = &ep_;
    r->cq = ep_.tx().cq;
    r->counter = ep_.counters().send;
    r->completion = {.context = call.context,
                     .flags = FI_SEND | ((call.packet_flags & flag_tag) ? FI_TAGGED : FI_MSG)};
    r->wants_entry = !call.silent && ep_.tx().reports(call.flags);
    r->err = 0;
    r->prov_errno = 0;
    return r;
}

void Messenger::await_fin(SendRequest& r) noexcept
{
    r.awaits_fin = true;
    r.channel->outstanding++;
    r.place = static_cast<std::uint32_t>(waiting_fin_.size());
    waiting_fin_.push_back(&r);
}

/// Gives a request back that never came to anything.
void Messenger::drop(SendRequest& r) noexcept
{
    for (unsigned i = 0; i < r.ref_count; i++)
        ep_.local_memory().release(r.refs[i]);
    if (r.help.block != ShareBlocks::none)
        offers_.release(r.help.block);
    sends_.release(&r);
}

void Messenger::end(SendRequest& r, int err, int prov_errno) noexcept
{
    if (r.help.busy()) { // poll_fins() ends it when it is not
        r.help.ending = true;
        r.help.end_err = err;
        r.help.end_prov_errno = prov_errno;
        return;
    }
    if (r.awaits_fin) {
        SendRequest* last = waiting_fin_.back();
        waiting_fin_[r.place] = last;
        last->place = r.place;
        waiting_fin_.pop_back();
    }
    r.channel->outstanding--;
    r.err = err;
    r.prov_errno = prov_errno;
    complete(r);
    drop(r);
}

void Messenger::on_delivered(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    auto& r = *static_cast<SendRequest*>(static_cast<Request*>(waiter));
    Messenger& m = *r.owner;
    if (r.block != nullptr)
        m.release(*r.block);
    r.block = nullptr;
    if (!m.open_)
        return;
    Channel& ch = *r.channel;
    if (notice.code != UTOFU_SUCCESS)
        m.fail(ch, fi_error_of(notice.code), notice.code);
    m.end(r, notice.code == UTOFU_SUCCESS ? 0 : fi_error_of(notice.code), notice.code);
}

/// Looks at the FIN words that are awaited; a bounded number of them each time.
void Messenger::poll_fins() noexcept
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
        SendRequest& r = *waiting_fin_[next_fin_];
        if (r.help.step != Help::Step::none)
            help(r);
        if (r.help.busy()) {
            next_fin_++;
            continue;
        }
        if (r.help.ending) [[unlikely]] {
            end(r, r.help.end_err, r.help.end_prov_errno);
            continue;
        }
        // acquire: pairs with the peer's Put of the word; its Gets ended before
        const FinWord word = area_.fin(r.fin).load(std::memory_order_acquire);
        if (static_cast<std::uint32_t>(word >> 32) != r.seq) {
            next_fin_++;
            continue;
        }
        const auto status = static_cast<std::uint32_t>(word);
        end(r, status == 0 ? 0 : FI_EREMOTEIO, static_cast<int>(status)); // another one takes its place
    }
}

} // namespace tofu::proto
