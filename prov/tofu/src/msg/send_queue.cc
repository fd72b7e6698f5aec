// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See send_queue.h.
#include "msg/send_queue.h"

#include <algorithm>

#include <rdma/fi_errno.h>

#include "core/limits.h"
#include "cq/counter.h"
#include "msg/sender.h"

namespace tofu::proto {

Backlog::Backlog(TxContext& tx, Sender& sender) noexcept
    : tx_(tx), sender_(sender), waiting_(tx.pending(), this, steps),
      pool_(at_most(tx.plan().attr.size, limits::tx_size))
{
}

/// A send may wait only if its caller is told of its end, and so makes progress until then. After an inject nothing
/// tells the caller when the message has left, and it may never call again. Deferred work (FI_TRIGGER) waits in its own
/// list.
bool Backlog::takes(const SendCall& call) const noexcept
{
    if (call.silent || (call.flags & (FI_INJECT | FI_TRIGGER)) != 0)
        return false;
    const Binding& tx = tx_.reports().binding;
    return (tx.cq != nullptr && tx.reports(call.flags)) || tx_.reports().counters.send != nullptr;
}

[[gnu::noinline]] ssize_t Backlog::put_aside(Channel& ch, const SendCall& call) noexcept
{
    const std::uint64_t line = Pending::line_of(ch.peer);
    if (ch.state == ChannelState::failed && !waiting_.has_line(line))
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
    ch.outstanding++; // keeps the channel from being given to another peer meanwhile
    tx_.vcq().statistics().count(Stat::send_waited);
    waiting_.push(*made, line, Lack::peer);
    return 0;
}

constexpr Pending::Stream::Steps Backlog::steps{
    [](void* self, PendingOp& op) noexcept { return static_cast<Backlog*>(self)->go_on(static_cast<PendingSend&>(op)); },
    [](void* self, PendingOp& op) noexcept { static_cast<Backlog*>(self)->through(static_cast<PendingSend&>(op)); },
    [](void* self, PendingOp& op) noexcept { static_cast<Backlog*>(self)->give_back(static_cast<PendingSend&>(op)); },
};

Lack Backlog::go_on(PendingSend& send) noexcept
{
    send.ret = sender_.try_send(send.call, true);
    return send.ret == -FI_EAGAIN ? Lack::peer : Lack::nothing;
}

void Backlog::through(PendingSend& send) noexcept
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
    give_back(send);
}

void Backlog::give_back(PendingSend& send) noexcept
{
    send.to->outstanding--;
    pool_.release(&send);
}

} // namespace tofu::proto
