// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counters of endpoints, and operations that wait until a counter has grown: deferred work and FI_TRIGGER. See
// world_impl.h.
#include <algorithm>

#include "world_impl.h"

namespace swarm {
namespace {

const char* kind_of(const Operation& operation)
{
    return operation.kind == Operation::access ? "access" : operation.kind == Operation::send ? "message" : "receive";
}

} // namespace

// --- counters of endpoints

/// Those that this process may have.
void World::open_counters(unsigned p, Handles& h)
{
    const Setup& s = program_.setup;
    if (s.counters == 0)
        return;
    for (unsigned i = 0; i < counted_kinds; i++) {
        const bool by_peers = (counted[i] & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0;
        if ((by_peers && (s.rma == 0 || s.events == 0 || (s.initiator != 0 && p == 0))) ||
            ((counted[i] & (FI_READ | FI_WRITE)) != 0 && s.rma == 0) || (counted[i] == FI_RECV && shares_rx()) ||
            (counted[i] == FI_WRITE && s.groups != 0)) // collectives count as well
            continue;
        fi_cntr_attr attr{};
        attr.wait_obj = wait_object(program_.setup);
        must(fi_cntr_open(processes_[p].objects->domain, &attr, &h.counters[i], nullptr), "fi_cntr_open");
    }
}

/// Has each counter a value that is possible? `last`: else it is wrong.
bool World::counts_hold(bool last)
{
    counts_hold_ = true;
    for (unsigned p = 0; p < processes_.size(); p++)
        if (processes_[p].objects != nullptr)
            platform_->on(p, [this, p, last] {
                counts_hold_ &= counts_of_hold(p, last);
                counts_hold_ &= remote_.counts_hold(p, last);
            });
    return counts_hold_;
}

bool World::counts_of_hold(unsigned p, bool last)
{
    platform_->enter(p);
    bool all = true;
    for (unsigned s = 0; s < slots; s++)
        for (unsigned i = 0; i < counted_kinds && processes_[p].now[s] != nullptr; i++)
            if (fid_cntr* const counter = processes_[p].handles[s].counters[i]; counter != nullptr)
                all &= model_.count_holds(*processes_[p].now[s], counted[i], fi_cntr_read(counter),
                                          fi_cntr_readerr(counter), last);
    return all;
}

// --- operations that wait

/// An operation that begins later, and the counter that shows its end.
std::unique_ptr<Later> World::hold_back(Operation& operation, fid_ep* ep, const Command& c)
{
    const unsigned p = c.at / slots;
    Objects& o = *processes_[p].objects;
    auto later = std::make_unique<Later>();
    later->operation = &operation;
    later->process = p;
    later->ep = ep;
    later->life = &life(c.at);
    operation.held = operation.was_held = true;
    operation.threshold = fi_cntr_read(o.trigger) + c.later;
    if (c.entry != 0) {
        operation.triggered = {};
        operation.triggered.event_type = FI_TRIGGER_THRESHOLD;
        operation.triggered.trigger.threshold = {o.trigger, operation.threshold};
        return later;
    }
    fi_cntr_attr attr{};
    must(fi_cntr_open(o.domain, &attr, &later->done, nullptr), "fi_cntr_open");
    operation.apart = true;
    later->work.threshold = operation.threshold;
    later->work.triggering_cntr = o.trigger;
    later->work.completion_cntr = later->done;
    return later;
}

/// It has been posted, or has not.
ssize_t World::queue(std::unique_ptr<Later> later, ssize_t result)
{
    if (result == 0) {
        later_.push_back(std::move(later));
        return 0;
    }
    later->operation->held = later->operation->was_held = later->operation->apart = false;
    if (later->done != nullptr)
        must(fi_close(&later->done->fid), "fi_close of a counter");
    return result;
}

ssize_t World::defer(Message& m, fid_ep* ep, fi_addr_t to, const Command& c)
{
    std::unique_ptr<Later> later = hold_back(m, ep, c);
    const iovec vector{m.buffer->at(), m.size};
    const std::uint64_t flags = flags_of(c) | (m.data ? FI_REMOTE_CQ_DATA : 0);
    if (m.tagged) {
        fi_msg_tagged call{};
        call.msg_iov = &vector;
        call.iov_count = 1;
        call.addr = to;
        call.tag = std::uint64_t{m.number} << tag_bits | m.tag;
        call.context = &m;
        call.data = m.number;
        if (later->done == nullptr)
            return queue(std::move(later), fi_tsendmsg(ep, &call, flags | FI_TRIGGER));
        later->tagged = {ep, call, flags};
        later->work.op_type = FI_OP_TSEND;
        later->work.op.tagged = &later->tagged;
    } else {
        fi_msg call{};
        call.msg_iov = &vector;
        call.iov_count = 1;
        call.addr = to;
        call.context = &m;
        call.data = m.number;
        if (later->done == nullptr)
            return queue(std::move(later), fi_sendmsg(ep, &call, flags | FI_TRIGGER));
        later->message = {ep, call, flags};
        later->work.op_type = FI_OP_SEND;
        later->work.op.msg = &later->message;
    }
    return queue_work(std::move(later), c.at / slots);
}

ssize_t World::queue_work(std::unique_ptr<Later> later, unsigned p)
{
    fi_deferred_work* const work = &later->work;
    const ssize_t result = fi_control(&processes_[p].objects->domain->fid, FI_QUEUE_WORK, work);
    later->message = {}; // the provider has a copy
    later->tagged = {};
    later->rma = {};
    later->atomic = {};
    later->fetch = {};
    later->compare = {};
    return queue(std::move(later), result);
}

/// Deferred work asks for an entry as well, which names the message.
ssize_t World::defer(Receive& r, fi_addr_t from, std::uint64_t ignore, const Command& c)
{
    std::unique_ptr<Later> later = hold_back(r, rx(r), c);
    r.apart = false;
    const iovec vector{r.buffer->at(), r.buffer->size()};
    if (r.tagged) {
        fi_msg_tagged call{};
        call.msg_iov = &vector;
        call.iov_count = 1;
        call.addr = from;
        call.tag = r.tag;
        call.ignore = ignore;
        call.context = &r;
        if (later->done == nullptr)
            return queue(std::move(later), fi_trecvmsg(rx(r), &call, FI_TRIGGER));
        later->tagged = {rx(r), call, FI_COMPLETION};
        later->work.op_type = FI_OP_TRECV;
        later->work.op.tagged = &later->tagged;
    } else {
        fi_msg call{};
        call.msg_iov = &vector;
        call.iov_count = 1;
        call.addr = from;
        call.context = &r;
        if (later->done == nullptr)
            return queue(std::move(later), fi_recvmsg(rx(r), &call, FI_TRIGGER));
        later->message = {rx(r), call, FI_COMPLETION};
        later->work.op_type = FI_OP_RECV;
        later->work.op.msg = &later->message;
    }
    return queue_work(std::move(later), c.at / slots);
}

ssize_t World::defer(Access& access, fid_ep* ep, const Remote::AtomicCall& call, const Command& c)
{
    std::unique_ptr<Later> later = hold_back(access, ep, c);
    if (later->done == nullptr)
        return queue(std::move(later), call.post(ep, call.flags | FI_TRIGGER));
    const std::uint64_t flags = call.flags & ~FI_COMPLETION;
    const fi_msg_fetch fetch{const_cast<fi_ioc*>(call.result), nullptr, 1};
    const fi_msg_compare compare{call.compare, nullptr, 1};
    if (call.compare != nullptr) {
        later->compare = {ep, call.message, fetch, compare, flags};
        later->work.op_type = FI_OP_COMPARE_ATOMIC;
        later->work.op.compare_atomic = &later->compare;
    } else if (call.result != nullptr) {
        later->fetch = {ep, call.message, fetch, flags};
        later->work.op_type = FI_OP_FETCH_ATOMIC;
        later->work.op.fetch_atomic = &later->fetch;
    } else {
        later->atomic = {ep, call.message, flags};
        later->work.op_type = FI_OP_ATOMIC;
        later->work.op.atomic = &later->atomic;
    }
    return queue_work(std::move(later), c.at / slots);
}

ssize_t World::defer(Access& access, fid_ep* ep, const fi_msg_rma& call, std::uint64_t flags, const Command& c)
{
    std::unique_ptr<Later> later = hold_back(access, ep, c);
    const bool reads = access.what == Access::read;
    if (later->done == nullptr)
        return queue(std::move(later),
                     reads ? fi_readmsg(ep, &call, flags | FI_TRIGGER) : fi_writemsg(ep, &call, flags | FI_TRIGGER));
    later->rma = {ep, call, flags & ~FI_COMPLETION}; // which asks for an entry besides
    later->work.op_type = reads ? FI_OP_READ : FI_OP_WRITE;
    later->work.op.rma = &later->rma;
    return queue_work(std::move(later), c.at / slots);
}

void World::raise(const Command& c)
{
    const unsigned p = c.at / slots;
    if (!is_usable(c.at) || processes_[p].objects->trigger == nullptr)
        return;
    platform_->enter(p);
    fid_cntr* const counter = processes_[p].objects->trigger;
    const std::uint64_t value = fi_cntr_read(counter) + c.count;
    for (const auto& later : later_)
        if (later->process == p && later->operation->threshold <= value)
            later->operation->held = false;
    must(fi_cntr_add(counter, c.count), "fi_cntr_add");
    if (c.entry != 0) // what has been reached stays so
        must(fi_cntr_set(counter, value - c.count), "fi_cntr_set");
}

void World::recall(const Command& c)
{
    const unsigned p = c.at / slots;
    if (!is_usable(c.at))
        return;
    unsigned left = c.count;
    const auto wanted = [&](const auto& later) {
        return later->process == p && later->life->state == Endpoint::open && !later->operation->done &&
               !later->operation->recalled && left-- == 0;
    };
    const auto found = std::find_if(later_.rbegin(), later_.rend(), wanted);
    if (found == later_.rend())
        return;
    platform_->enter(p);
    Operation& operation = *(*found)->operation;
    const bool apart = (*found)->done != nullptr;
    const ssize_t result = apart ? fi_control(&processes_[p].objects->domain->fid, FI_CANCEL_WORK, &(*found)->work)
                                 : fi_cancel(&(*found)->ep->fid, &operation);
    say("  %s %u: %s", kind_of(operation), operation.number, fi_strerror(static_cast<int>(-result)));
    if (result != 0 && (operation.held || result != -FI_ENOENT))
        contradict("%s %u waits for its counter and cannot be cancelled: %s", kind_of(operation), operation.number,
                   fi_strerror(static_cast<int>(-result)));
    if (result != 0)
        return;
    operation.recalled = true;
    operation.done = apart; // else its entry comes
    if (operation.kind == Operation::receive) {
        auto& r = static_cast<Receive&>(operation);
        r.cancelled = true;
        if (r.done)
            r.seal();
    }
}

/// Counters that show the ends of operations.
void World::look_at_ends(unsigned p)
{
    for (const auto& later : later_) {
        Operation& operation = *later->operation;
        if (later->process != p || later->done == nullptr || !operation.apart || operation.done ||
            later->life->state != Endpoint::open)
            continue;
        if (fi_cntr_read(later->done) != 0)
            model_.on_count(operation);
    }
}

/// The process closes all: nothing waits any more.
void World::forget_later(unsigned p)
{
    if (processes_[p].objects->trigger != nullptr)
        must(fi_control(&processes_[p].objects->domain->fid, FI_FLUSH_WORK, nullptr), "FI_FLUSH_WORK");
    std::erase_if(later_, [&](const auto& later) {
        if (later->process != p)
            return false;
        if (later->done == nullptr)
            return true;
        const std::uint64_t good = fi_cntr_read(later->done), bad = fi_cntr_readerr(later->done);
        const Operation& operation = *later->operation;
        if (good + bad > 1 || (good + bad != 0 && operation.recalled))
            contradict("%s %u counts %llu successes and %llu errors%s", kind_of(operation), operation.number,
                       static_cast<unsigned long long>(good), static_cast<unsigned long long>(bad),
                       operation.recalled ? ", and was cancelled" : "");
        must(fi_close(&later->done->fid), "fi_close of a counter");
        return true;
    });
}

} // namespace swarm
