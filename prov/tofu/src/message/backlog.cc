// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sends that found no room at their peer and wait here, in their order, until it has read (tx_attr.size of
// fi_endpoint(3) bounds them): a program that posts and then waits for its completions need not be refused. Part of the
// sender.
#include "message/sender.h"

#include <algorithm>

#include <rdma/fi_errno.h>

#include "queue/cntr.h"

namespace tofu::proto {

/// Who injects has no completion that would tell when the message has left, and may never call again; whoever is told
/// makes progress until then. Deferred work (FI_TRIGGER) waits where it is, and reports elsewhere.
bool Sender::can_wait(const SendCall& call) const noexcept
{
    if (call.silent || (call.flags & (FI_INJECT | FI_TRIGGER)) != 0)
        return false;
    const Binding& tx = tx_.reports().binding;
    return (tx.cq != nullptr && tx.reports(call.flags)) || tx_.reports().counters.send != nullptr;
}

[[gnu::noinline]] ssize_t Sender::put_aside(const SendCall& call) noexcept
{
    Channel* ch = nullptr;
    if (int ret = channel_to(call.dest, ch); ret != 0)
        return ret;
    const std::uint64_t line = Pending::line_of(ch->peer);
    if (ch->state == ChannelState::failed && !waiting_.has_line(line))
        return -ch->err;
    PendingSend* const made = backlog_.alloc();
    if (made == nullptr)
        return tx_.again(Stat::again_operations);
    made->call = call;
    made->to = ch;
    std::copy_n(call.iov, call.count, made->iov);
    made->call.iov = made->iov;
    if (call.desc != nullptr) {
        std::copy_n(call.desc, call.count, made->desc);
        made->call.desc = made->desc;
    }
    ch->outstanding++; // it is not given to another peer meanwhile
    vcq_.statistics().count(Stat::send_waited);
    waiting_.push(*made, line, Lack::peer);
    return 0;
}

constexpr Pending::Stream::Steps Sender::steps{
    [](void* sender, PendingOp& op) noexcept { return static_cast<Sender*>(sender)->go_on(static_cast<PendingSend&>(op)); },
    [](void* sender, PendingOp& op) noexcept { static_cast<Sender*>(sender)->through(static_cast<PendingSend&>(op)); },
    [](void* sender, PendingOp& op) noexcept { static_cast<Sender*>(sender)->give_back(static_cast<PendingSend&>(op)); },
};

Lack Sender::go_on(PendingSend& send) noexcept
{
    send.ret = try_send(send.call, true);
    return send.ret == -FI_EAGAIN ? Lack::peer : Lack::nothing;
}

void Sender::through(PendingSend& send) noexcept
{
    if (send.ret != 0) { // it was taken: an entry tells
        Request failed;
        failed.cq = tx_.reports().binding.cq;
        failed.counter = tx_.reports().counters.send;
        failed.completion = {.context = send.call.context,
                             .flags = FI_SEND | ((send.call.packet_flags & flag_tag) ? FI_TAGGED : FI_MSG)};
        failed.err = static_cast<int>(-send.ret);
        failed.prov_errno = send.to->prov_errno;
        complete(failed);
    }
    give_back(send);
}

void Sender::give_back(PendingSend& send) noexcept
{
    send.to->outstanding--;
    backlog_.release(&send);
}

} // namespace tofu::proto
