// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sends that wait, for their peer (SendRequests) or for room (SendQueue). See sender.h.
#include "msg/sender.h"

#include <atomic>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"

namespace tofu::proto {

/// A number that differs between the senders of this process, even if they have the same target VCQ and endpoint
/// number.
static std::uint32_t serial(std::uint64_t nonce) noexcept
{
    static std::atomic<std::uint32_t> made{0};
    return static_cast<std::uint32_t>(nonce) + 0x9e3779b9 * made.fetch_add(1, std::memory_order_relaxed);
}

SendRequests::SendRequests(TxContext& tx, RingSet& rings, PacketBuffers& buffers) noexcept
    : tx_(tx), rings_(rings), buffers_(buffers), pool_(at_most(tx.config().attr.size, completion_count)),
      first_seq_(serial(rings.own.nonce))
{
}

SendRequests::~SendRequests()
{
    for (SendRequest* r : awaited_)
        for (unsigned i = 0; i < r->ref_count; i++)
            tx_.rails().memory(r->rail).release(r->refs[i]);
}

SendRequest* SendRequests::make(TxChannel& ch, const SendCall& call) noexcept
{
    SendRequest* r = pool_.alloc();
    if (r == nullptr)
        return nullptr;
    if (!r->numbered) {
        if (!awaited_.reserve(made_ + 1)) {
            pool_.release(r);
            return nullptr;
        }
        r->numbered = true;
        r->word = made_++;
        r->seq = first_seq_;
    }
    r->seq++;
    begin(*r, ch, call);
    return r;
}

void SendRequests::begin(SendRequest& r, TxChannel& ch, const SendCall& call) noexcept
{
    r.notify = on_delivered;
    r.owner = this;
    r.to = &ch;
    r.ref_count = 0;
    r.rail = 0;
    r.block = nullptr;
    r.copy = nullptr;
    r.awaits_completion = r.completion_has_come = false;
    r.report_to(tx_.reports(), call.entry_flags(), call.context,
                !call.is_inject && tx_.reports().binding.reports(call.flags));
    r.err = 0;
    r.prov_errno = 0;
}

SendRequest* SendRequests::make_late(TxChannel& ch, const SendCall& call) noexcept
{
    SendRequest* const r = late_.alloc();
    if (r == nullptr)
        return nullptr;
    begin(*r, ch, call);
    r->late = true;
    ch.outstanding++;
    return r;
}

Copy* SendRequests::make_copy(std::size_t size) noexcept
{
    if (copies_ == nullptr) {
        const LocalEndpoint& self = rings_.own;
        copies_.reset(new (std::nothrow) Copies(self.target_vcq, self.target_lock));
    }
    return copies_ != nullptr ? copies_->alloc(size) : nullptr;
}

std::unique_ptr<Copies> SendRequests::hand_over_copies() noexcept
{
    if (copies_ == nullptr || copies_->in_use() == 0)
        return nullptr;
    for (const SendRequest* r : awaited_)
        if (r->copy == nullptr)
            (void)rings_.own.area.completion(r->word).exchange(0, std::memory_order_relaxed);
    // The stores come before anything that the application writes into those buffers next (end()).
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return std::move(copies_);
}

void SendRequests::await_completion(SendRequest& r) noexcept
{
    r.awaits_completion = true;
    r.to->outstanding++;
    r.place = static_cast<std::uint32_t>(awaited_.size());
    awaited_.push_reserved(&r);
    tx_.vcq().set_busy();
}

void SendRequests::drop(SendRequest& r) noexcept
{
    release(r);
    (r.late ? late_ : pool_).release(&r);
}

void SendRequests::release(SendRequest& r) noexcept
{
    for (unsigned i = 0; i < r.ref_count; i++)
        tx_.rails().memory(r.rail).release(r.refs[i]);
    tx_.rails().release(Rails::By::peer, r.rail);
    if (r.block != nullptr)
        buffers_.release(*std::exchange(r.block, nullptr));
    if (r.copy != nullptr)
        copies_->release(*std::exchange(r.copy, nullptr));
}

void SendRequests::end(SendRequest& r, int err, int prov_errno) noexcept
{
    if (r.awaits_completion) {
        SendRequest* last = awaited_.back();
        awaited_[r.place] = last;
        last->place = r.place;
        awaited_.pop_back();
    }
    if (err != 0 && !r.late) { // the receiver must not use what it fetches from now on
        (void)rings_.own.area.completion(r.word).exchange(
            0, std::memory_order_relaxed); // a CSWAP of the receiver may come
        // The exchange comes before anything that is written into the block or the user's buffer next: a receiver that
        // Gets such bytes then finds the word changed.
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    r.to->outstanding--;
    r.err = err;
    r.prov_errno = prov_errno;
    complete(r);
    release(r);
    // A peer that lives may still write the completion word, and would destroy that of a later request.
    if (r.awaits_completion && r.to->state == ChannelState::failed && r.to->err != FI_EHOSTDOWN &&
        !r.completion_has_come)
        retired_++;
    else
        (r.late ? late_ : pool_).release(&r);
}

void SendRequests::channel_failed(TxChannel& ch, vcq::CompletionHandler* handler) noexcept
{
    if (handler != nullptr)
        end(*static_cast<SendRequest*>(static_cast<Request*>(handler)), ch.err, ch.prov_errno);
    // A peer that has closed its endpoint answered before it closed: its completion words count.
    for (std::size_t i = awaited_.size(); i-- > 0;)
        if (i < awaited_.size() && awaited_[i]->to == &ch && !poll_completion(*awaited_[i]))
            end(*awaited_[i], ch.err, ch.prov_errno);
}

void SendRequests::on_delivered(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    auto& r = *static_cast<SendRequest*>(static_cast<Request*>(handler));
    SendRequests& m = *r.owner;
    if (r.block != nullptr)
        m.buffers_.release(*r.block);
    r.block = nullptr;
    if (!m.rings_.own.open)
        return;
    TxChannel& ch = *r.to;
    if (notice.code != UTOFU_SUCCESS)
        m.rings_.out.fail(ch, fi_error_of(notice.code), notice.code);
    m.end(r, notice.code == UTOFU_SUCCESS ? 0 : fi_error_of(notice.code), notice.code);
}

/// Ends the request if its completion word has come. False: the word has not come.
bool SendRequests::poll_completion(SendRequest& r) noexcept
{
    // acquire: pairs with the peer's Put of the word; its Gets ended before
    const CompletionWord word = rings_.own.area.completion(r.word).load(std::memory_order_acquire);
    const auto status = static_cast<std::uint32_t>(word);
    if (static_cast<std::uint32_t>(word >> 32) != r.seq || status == completion_pending)
        return false;
    r.completion_has_come = true;
    if (const auto seen = rings_.own.vcq.backend().functions().seen; seen != nullptr)
        (void)seen(rings_.own.area.completion_address(r.word), sizeof word);
    end(r, status == 0 ? 0 : FI_EREMOTEIO, static_cast<int>(status));
    return true;
}

void SendRequests::poll() noexcept
{
    constexpr std::size_t in_a_round = 32;
    std::size_t n = awaited_.size();
    if (n > in_a_round)
        n = in_a_round;
    else
        next_ = 0;
    for (std::size_t i = 0; i < n; i++) {
        if (next_ >= awaited_.size())
            next_ = 0;
        if (awaited_.empty())
            return;
        if (!poll_completion(*awaited_[next_])) // else another request has its place now
            next_++;
    }
}

// --- SendQueue

SendQueue::SendQueue(TxContext& tx, Sender& sender) noexcept
    : tx_(tx), sender_(sender), waiting_(tx.pending(), this, PendingQueue::SubQueue::steps_of<SendQueue, PendingSend>),
      pool_(at_most(tx.config().attr.size, limits::tx_size))
{
}

/// A send may wait only if its caller gets an entry, and so makes progress until then. After an inject nothing
/// shows the caller when the message has left, and it may never call again. Deferred work (FI_TRIGGER) waits in its own
/// list.
bool SendQueue::takes(const SendCall& call) const noexcept
{
    if (call.is_inject || (call.flags & (FI_INJECT | FI_TRIGGER)) != 0)
        return false;
    const Binding& tx = tx_.reports().binding;
    return (tx.cq != nullptr && tx.reports(call.flags)) || tx_.reports().counters.send != nullptr;
}

[[gnu::noinline]] ssize_t SendQueue::enqueue(TxChannel& ch, const SendCall& call) noexcept
{
    if (ch.state == ChannelState::failed && ch.waiting == 0)
        return -ch.err;
    PendingSend* const made = pool_.alloc();
    if (made == nullptr)
        return tx_.again(Stat::again_operations);
    made->call = call;
    made->to = &ch;
    std::copy_n(call.iov, call.count, made->iov);
    made->call.iov = made->iov;
    if (call.desc != nullptr) {
        std::copy_n(call.desc, call.count, made->desc);
        made->call.desc = made->desc;
    }
    ch.waiting++;
    ch.outstanding++; // keeps the channel from being given to another peer meanwhile
    tx_.vcq().statistics().count(Stat::send_waited);
    waiting_.push(*made, PendingQueue::queue_key(ch.peer), BlockReason::peer);
    return 0;
}

BlockReason SendQueue::resume(PendingSend& send) noexcept
{
    send.ret = sender_.try_send(send.call, true);
    return send.ret == -FI_EAGAIN ? BlockReason::peer : BlockReason::nothing;
}

void SendQueue::unblocked(PendingSend& send) noexcept
{
    if (send.ret != 0) { // the call was accepted, so an error entry reports the failure
        Request failed;
        failed.cq = tx_.reports().binding.cq;
        failed.counter = tx_.reports().counters.send;
        failed.completion = {.context = send.call.context, .flags = send.call.entry_flags()};
        failed.err = static_cast<int>(-send.ret);
        failed.prov_errno = send.to->prov_errno;
        complete(failed);
    }
    cancel(send);
}

void SendQueue::cancel(PendingSend& send) noexcept
{
    send.to->waiting--;
    send.to->outstanding--;
    pool_.release(&send);
}

} // namespace tofu::proto
