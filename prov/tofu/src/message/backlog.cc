// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sends that found no room at their peer and wait here, in their order, until it has read (tx_attr.size of
// fi_endpoint(3) bounds them): a program that posts and then waits for its completions need not be refused. Part of the
// sender.
#include "message/sender.h"

#include <algorithm>
#include <utility>

#include <rdma/fi_errno.h>

#include "queue/cntr.h"

namespace tofu::proto {

/// Who injects has no completion that would tell when the message has left, and may never call again; whoever is told
/// makes progress until then.
bool Sender::can_wait(const SendCall& call) const noexcept
{
    if (call.silent || (call.flags & FI_INJECT) != 0)
        return false;
    const Binding& tx = tx_.binding();
    return (tx.cq != nullptr && tx.reports(call.flags)) || tx_.counters().send != nullptr;
}

[[gnu::noinline]] ssize_t Sender::put_aside(const SendCall& call) noexcept
{
    Destination* ch = nullptr;
    if (int ret = channel_to(call.dest, ch); ret != 0)
        return ret;
    if (ch->state == ChannelState::failed && ch->backlog == nullptr)
        return -ch->err;
    Backlogged* const made = backlog_.alloc();
    if (made == nullptr)
        return -FI_EAGAIN;
    made->next = nullptr;
    made->call = call;
    std::copy_n(call.iov, call.count, made->iov);
    made->call.iov = made->iov;
    if (call.desc != nullptr) {
        std::copy_n(call.desc, call.count, made->desc);
        made->call.desc = made->desc;
    }
    ch->outstanding++; // it is not given to another peer meanwhile
    if (ch->backlog == nullptr) {
        ch->backlog = made;
        congested_.push_reserved(ch);
    } else {
        ch->backlog_end->next = made;
    }
    ch->backlog_end = made;
    return 0;
}

/// As many of a channel's as find room, but not so many that others starve.
void Sender::work_off(Destination& ch) noexcept
{
    constexpr unsigned in_a_round = 32;
    Backlogged* first = std::exchange(ch.backlog, nullptr); // try_send() lets nobody pass it
    for (unsigned n = 0; n < in_a_round && first != nullptr; n++) {
        const ssize_t ret = try_send(first->call);
        if (ret == -FI_EAGAIN)
            break;
        ch.outstanding--;
        if (ret != 0) { // it was taken: an entry tells
            Request failed;
            failed.cq = tx_.binding().cq;
            failed.counter = tx_.counters().send;
            failed.completion = {.context = first->call.context,
                                 .flags = FI_SEND | ((first->call.packet_flags & flag_tag) ? FI_TAGGED : FI_MSG)};
            failed.err = static_cast<int>(-ret);
            failed.prov_errno = ch.prov_errno;
            complete(failed);
        }
        backlog_.release(std::exchange(first, first->next));
    }
    ch.backlog = first;
}

[[gnu::noinline]] void Sender::work_off() noexcept
{
    for (std::size_t i = congested_.size(); i-- > 0;) {
        work_off(*congested_[i]);
        if (congested_[i]->backlog == nullptr) {
            congested_[i] = congested_.back();
            congested_.pop_back();
        }
    }
}

} // namespace tofu::proto
