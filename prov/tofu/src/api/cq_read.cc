// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cq_read and fi_cntr_read from the call down to the VCQ, in one file so that one compilation sees all of it: they
// are the calls that programs make most. The tables are in cq/cq.cc and cq/counter.cc.
#include <rdma/fi_errno.h>

#include "api/endpoint.h"
#include "atomic/atomic.h"
#include "coll/collectives.h"
#include "cq/counter.h"
#include "cq/cq.h"
#include "cq/progress.h"
#include "msg/message_engine.h"
#include "rma/rma.h"

namespace tofu {

// --- the fast path: no other thread, nothing in the queue, no full round due, and the endpoint that filled the queue
// last

/// What a poll of the endpoint finds, when it looks at nothing that can wait for a full round.
[[gnu::always_inline]] inline PollHint Endpoint::poll_hint() noexcept
{
    const vcq::Vcq& vcq = tx_.vcq();
    if (vcq.has_work() || !tx_.pending().empty()) [[unlikely]]
        return {PollHint::work};
    if (!vcq.completions().all_free())
        return {PollHint::notices};
    return engines_.messages ? engines_.messages->poll_hint() : PollHint{PollHint::nothing};
}

[[gnu::always_inline]] inline void Endpoint::accept_packets(const PollHint& hint) noexcept
{
    engines_.messages->receiver().accept_packets(*hint.ring);
}

[[gnu::always_inline]] inline bool Endpoint::accept_notices() noexcept
{
    return tx_.vcq().poll_notices() != 0;
}

void Endpoint::accept_messages() noexcept
{
    if (engines_.messages)
        engines_.messages->progress();
}

[[gnu::always_inline]] inline ssize_t CompletionQueue::read(void* buffer, std::size_t count) noexcept
{
    if (count == 0 || lock_.enabled()) [[unlikely]]
        return read_slowly(buffer, count, reader_.sources);
    if (entries_.has_some()) [[unlikely]]
        return read_waiting(buffer, count);
    auto* const endpoint = static_cast<Endpoint*>(progress_.first_due());
    if (endpoint == nullptr) [[unlikely]]
        return read_slowly(buffer, count, reader_.sources);
    const PollHint hint = endpoint->poll_hint();
    switch (hint.what) {
    case PollHint::nothing:
        if (progress_.has_others()) [[unlikely]]
            break;
        return -FI_EAGAIN;
    case PollHint::packets: return read_packets(buffer, count, *endpoint, hint);
    case PollHint::notices: return read_notices(buffer, count, *endpoint);
    case PollHint::work: break;
    }
    return read_slowly(buffer, count, reader_.sources);
}

/// Takes entries that wait. Where locks are off.
ssize_t CompletionQueue::read_waiting(void* buffer, std::size_t count) noexcept
{
    progress_.found();
    return drain(buffer, count, reader_.sources);
}

ssize_t CompletionQueue::read_packets(void* buffer, std::size_t count, Endpoint& endpoint, PollHint hint) noexcept
{
    begin_read(buffer, count);
    endpoint.accept_packets(hint);
    return close_read();
}

ssize_t CompletionQueue::read_notices(void* buffer, std::size_t count, Endpoint& endpoint) noexcept
{
    begin_read(buffer, count);
    (void)endpoint.accept_notices();
    if (reader_is_empty())
        [[unlikely]] // and then `endpoint`, which is the first, is found again, so that it is not saved
        static_cast<Endpoint*>(progress_.first())->accept_messages();
    return close_read();
}

/// The result of a read that found the queue empty. What stands in the queue now begins with an error, if the reader
/// has nothing.
[[gnu::always_inline]] inline ssize_t CompletionQueue::close_read() noexcept
{
    const std::size_t taken = end_read();
    if (taken == 0) [[unlikely]]
        return empty() ? -FI_EAGAIN : drain(nullptr, 0, nullptr);
    progress_.found();
    return static_cast<ssize_t>(taken);
}

ssize_t CompletionQueue::read_from(void* buffer, std::size_t count, fi_addr_t* sources) noexcept
{
    if (lock_.enabled()) // other threads read, too
        return read_slowly(buffer, count, sources);
    reader_.sources = sources;
    reader_.is_plain = is_longest() && sources == nullptr;
    const ssize_t ret = read(buffer, count);
    reader_.sources = nullptr;
    reader_.is_plain = is_longest();
    return ret;
}

// --- all other reads

[[gnu::always_inline]] inline void Endpoint::poll(const CompletionQueue& queue) noexcept
{
    if (!tx_.lock().try_lock())
        return;
    const PollHint seen = enabled_ ? poll_hint() : PollHint{PollHint::nothing};
    if (seen.what == PollHint::packets) {
        accept_packets(seen);
    } else if (seen.what != PollHint::nothing) {
        (void)tx_.vcq().poll_inline();
        if (!tx_.pending().empty()) [[unlikely]]
            tx_.pending().resume();
        if (engines_.atomic)
            engines_.atomic->progress();
        if (engines_.messages && queue.reader_is_empty())
            engines_.messages->progress();
        if (engines_.collectives) [[unlikely]]
            engines_.collectives->progress();
    }
    tx_.lock().unlock();
}

void ProgressSet::poll(const CompletionQueue& queue) noexcept
{
    if (!lock_.try_lock())
        return;
    if (full_round_due()) [[unlikely]]
        (void)poll_all();
    else
        poll_round_robin(queue);
    lock_.unlock();
}

/// Looks at one endpoint after the other until the queue has an entry. The endpoint that filled it comes first next
/// time, until the next full round.
void ProgressSet::poll_round_robin(const CompletionQueue& queue) noexcept
{
    const std::size_t count = endpoints_.size();
    for (std::size_t i = 0; i < count && queue.reader_is_empty(); i++) {
        if (next_ >= count)
            next_ = 0;
        static_cast<Endpoint*>(endpoints_[next_])->poll(queue);
        if (queue.reader_is_empty())
            next_++;
        else
            first_ = endpoints_[next_];
    }
}

ssize_t CompletionQueue::read_slowly(void* buffer, std::size_t count, fi_addr_t* sources) noexcept
{
    // Without locks no other thread completes operations, and read() has counted the poll.
    const bool locked = lock_.enabled();
    if (count == 0) { // the application asks for progress only
        progress_.count_poll();
        progress_.run();
    } else if (empty()) {
        if (locked) {
            progress_.count_poll();
        } else {
            progress_.begin_poll();
            begin_read(buffer, count);
        }
        progress_.poll(*this);
        const std::size_t taken = locked ? 0 : end_read();
        if (taken != 0) {
            progress_.found();
            return static_cast<ssize_t>(taken);
        }
    }
    if (empty()) {
        progress_.found_nothing();
        return -FI_EAGAIN;
    }
    progress_.found();
    return drain(buffer, count, sources);
}

// --- counters

std::uint64_t Counter::read() noexcept
{
    Endpoint* const endpoint = first_due();
    if (endpoint == nullptr) [[unlikely]]
        make_round();
    else if (const PollHint hint = endpoint->poll_hint(); hint.what != PollHint::nothing) [[unlikely]]
        poll(*endpoint, hint);
    const std::uint64_t value = value_.load(std::memory_order_acquire);
    if (wait_.watched()) [[unlikely]]
        seen_value_.store(value, std::memory_order_relaxed);
    return value;
}

/// The endpoint to poll, where that is enough, as for a queue. Null: it takes a full round.
[[gnu::always_inline]] inline Endpoint* Counter::first_due() noexcept
{
    if (progress_.locked() || counts_remote_events_.load(std::memory_order_relaxed)) [[unlikely]] {
        progress_.count_poll();
        return nullptr;
    }
    auto* const endpoint = static_cast<Endpoint*>(progress_.first_due());
    return progress_.has_others() || owner().deferred().any() ? nullptr : endpoint;
}

void Counter::make_round() noexcept
{
    if (!progress_.locked())
        progress_.begin_poll();
    progress_.run() ? progress_.found() : progress_.found_nothing();
}

void Counter::poll(Endpoint& endpoint, const PollHint& hint) noexcept
{
    switch (hint.what) {
    case PollHint::nothing: break;
    case PollHint::notices:
        if (endpoint.accept_notices())
            progress_.found();
        endpoint.accept_messages();
        break;
    case PollHint::packets: endpoint.accept_packets(hint); break;
    case PollHint::work: make_round(); break;
    }
}

ssize_t read_cq(fid_cq* cq, void* buffer, std::size_t count) noexcept
{
    return CompletionQueue::of(cq).read(buffer, count);
}

} // namespace tofu
