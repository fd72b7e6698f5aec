// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cq_read from the call down to the VCQ, in one file so that one compilation sees all of it: it is the call that
// programs make most. Called through the table of cq.cc; calls the VCQ and the engines.
#include <rdma/fi_errno.h>

#include "atomic/engine.h"
#include "collective/engine.h"
#include "endpoint/endpoint.h"
#include "message/messenger.h"
#include "progress/progress.h"
#include "queue/cq.h"
#include "rma/engine.h"

namespace tofu {

[[gnu::always_inline]] inline void Endpoint::look(const CompletionQueue& queue) noexcept
{
    if (!tx_.lock().try_lock())
        return;
    if (enabled_) [[likely]] {
        (void)tx_.vcq().poll_inline();
        if (!tx_.pending().empty()) [[unlikely]]
            tx_.pending().resume();
        if (engines_.atomic)
            engines_.atomic->progress();
        if (engines_.messages && queue.reader_waits())
            engines_.messages->progress();
        if (engines_.collectives) [[unlikely]]
            engines_.collectives->progress();
    }
    tx_.lock().unlock();
}

[[gnu::always_inline]] inline void ProgressSet::look(const CompletionQueue& queue) noexcept
{
    if (!lock_.try_lock())
        return;
    if (++looks_ % full_round == 0) [[unlikely]]
        (void)look_everywhere();
    else if (endpoints_.size() == 1) [[likely]]
        static_cast<Endpoint*>(endpoints_[0])->look(queue);
    else
        look_in_turn(queue);
    lock_.unlock();
}

/// Looks at one endpoint after the other until the queue has an entry. The endpoint that filled it comes first next
/// time, until the next full round.
[[gnu::noinline]] void ProgressSet::look_in_turn(const CompletionQueue& queue) noexcept
{
    const std::size_t count = endpoints_.size();
    for (std::size_t i = 0; i < count && queue.reader_waits(); i++) {
        if (next_ >= count)
            next_ = 0;
        static_cast<Endpoint*>(endpoints_[next_])->look(queue);
        next_ += queue.reader_waits() ? 1 : 0;
    }
}

ssize_t CompletionQueue::read_from(void* buffer, std::size_t count, fi_addr_t* sources) noexcept
{
    if (count == 0) [[unlikely]] { // the application asks for progress only
        progress_.run();
    } else if (empty()) [[likely]] {
        // Without locks no other thread completes operations: entries may go straight into the reader's buffer.
        const bool direct = !lock_.enabled();
        if (direct)
            reader_ = {buffer, sources, count, 0};
        progress_.look(*this);
        if (direct) {
            const std::size_t taken = reader_.taken;
            reader_.room = reader_.taken = 0;
            if (taken != 0) {
                progress_.found();
                return static_cast<ssize_t>(taken);
            }
        }
    }
    if (empty()) {
        progress_.found_nothing();
        return -FI_EAGAIN;
    }
    progress_.found();
    return take({buffer, sources, count, 0});
}

ssize_t read_cq(fid_cq* cq, void* buffer, std::size_t count) noexcept
{
    return CompletionQueue::of(cq).read_from(buffer, count, nullptr);
}

} // namespace tofu
