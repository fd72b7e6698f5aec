// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Session mode (guide 2.2.8): descriptors that wait in a shared TOQ for puts to start them.
#include "tni/session.h"

#include "clock/clock.h"
#include "job/doorbell.h"
#include "job/instruments.h"
#include "tni/copy.h"
#include "tni/exact.h"
#include "tni/flows.h"
#include "tni/notices.h"
#include "tni/overflow.h"
#include "tni/watch.h"

#include <algorithm>
#include <new>

namespace tofu::sim {
namespace {

constexpr uint32_t runner_mark = 0x80000000;
constexpr size_t bounce_bytes = 16 * 1024;

/// How far the descriptor that runs has got. Each value is stored when the step before it is done.
enum Phase : uint64_t { fresh = 0, moved = 1, told_remote = 2, told_local = 3, failed = 4 };

/// A session mode VCQ and its queue, ours or a peer's, and the poster that works for it.
struct Session {
    Vcq& poster;
    Remote& target; ///< the VCQ whose descriptors run
    SessionControl& control;
    SessionSlot* slots;

    Session(Vcq& p, Remote& t) noexcept
        : poster(p), target(t), control(vcq_control(t.peer->vcq_region(t.index)).session),
          slots(session_slots(t.peer->vcq_region(t.index)))
    {
    }
};

/// No direct way to the owner's bytes: in pieces through our own memory.
AccessStatus relay_by_copy(AddressCache& addresses, const RemoteVcq& from, const RemoteVcq& to, const Descriptor& d,
                           bool& source_failed) noexcept
{
    std::byte buffer[bounce_bytes];
    uint32_t at = 0;
    do {
        const uint32_t piece = std::min<uint32_t>(d.length - at, bounce_bytes);
        AccessStatus status = addresses.get(from, d.lcl_stadd + at, buffer, piece, CopyOrder::relaxed);
        source_failed = status != AccessStatus::ok;
        if (!source_failed)
            status = addresses.put(to, d.rmt_stadd + at, buffer, piece, CopyOrder::last_line);
        if (status != AccessStatus::ok)
            return status;
        at += piece;
    } while (at < d.length);
    return AccessStatus::ok;
}

struct Outcome {
    int tcq_error = UTOFU_SUCCESS;
    int mrq_error = UTOFU_SUCCESS;
};

/// Moves the bytes of a put of the session's owner.
Outcome relay(Session& s, const Descriptor& d, Remote* to) noexcept
{
    AddressCache& addresses = *s.poster.addresses;
    const RemoteVcq& from = s.target.memory;
    if (const AccessStatus status = addresses.check(from, d.lcl_stadd, d.length, Need::read);
        status != AccessStatus::ok)
        return {local_tcq_error(status), UTOFU_SUCCESS};
    if (to == nullptr)
        return {UTOFU_SUCCESS, UTOFU_ERR_MRQ_PEER};
    if (const AccessStatus status = addresses.check(to->memory, d.rmt_stadd, d.length, Need::write);
        status != AccessStatus::ok)
        return {UTOFU_SUCCESS, remote_mrq_error(status)};
    std::byte* source = nullptr;
    std::byte* destination = nullptr;
    (void)addresses.translate(from, d.lcl_stadd, d.length, Need::read, &source);
    (void)addresses.translate(to->memory, d.rmt_stadd, d.length, Need::write, &destination);
    if (source != nullptr && destination != nullptr) {
        copy_ordered(destination, source, d.length);
        return {};
    }
    bool source_failed = false;
    const AccessStatus status = relay_by_copy(addresses, from, to->memory, d, source_failed);
    if (status == AccessStatus::ok)
        return {};
    return source_failed ? Outcome{local_tcq_error(status), UTOFU_SUCCESS}
                         : Outcome{UTOFU_SUCCESS, remote_mrq_error(status)};
}

void set_progress(Session& s, uint64_t number, Phase phase) noexcept
{
    // Release: the step is visible before the next holder skips it (partner: run_one of a successor).
    s.control.progress.store_release(number * 8 + phase);
}

/// Carries out descriptor `number`, from where a killed runner left it.
void run_one(Session& s, uint64_t number) noexcept
{
    SessionSlot& slot = s.slots[number % toq_entries];
    const uint64_t progress = s.control.progress.load_acquire();
    const uint64_t phase = progress / 8 == number ? progress % 8 : uint64_t{fresh};
    Descriptor d;
    if (!decode_descriptor(slot.descriptor, sizeof slot.descriptor, d) || (d.op != Op::put && d.op != Op::nop)) {
        slot.result = UTOFU_ERR_TCQ_DESC; // nonsense in the owner's segment
        return;
    }
    if (d.op == Op::nop) {
        slot.result = UTOFU_SUCCESS;
        return;
    }
    Remote* to = nullptr;
    const bool found = find_remote(d.rmt_vcq_id, to) == RemoteStatus::found;
    Outcome outcome;
    // It was there, and so was a put that starts it.
    const Times times = watch_session(s.poster, s.target, d, found ? to : nullptr,
                                      std::max(slot.posted_at, s.control.arrived_at.load_acquire()));
    slot.done = {times.sent, slot.done.origin};
    if (phase == fresh) {
        outcome = relay(s, d, found ? to : nullptr);
        slot.result = outcome.tcq_error;
        if (outcome.tcq_error == UTOFU_SUCCESS && outcome.mrq_error == UTOFU_SUCCESS)
            set_progress(s, number, moved);
    }
    const bool sent = outcome.tcq_error == UTOFU_SUCCESS;
    if (instruments != 0) {
        const Failure failure = failure_of(outcome.tcq_error, found ? outcome.mrq_error : int{UTOFU_ERR_MRQ_PEER});
        watch_relay({segment_header(s.target.peer->base).node, s.target.index, times.arrived, failure}, d);
    }
    const bool arrived = sent && outcome.mrq_error == UTOFU_SUCCESS && phase != failed;
    if (arrived && phase < told_remote && found) {
        if ((d.flags & notice_remote) != 0 &&
            !to->mrq.push(s.poster.me, remote_entry(d, with_default_path(s.target.key)),
                          {times.noted, slot.done.origin}))
            report_remote_overflow(*to);
        ring_doorbell(*to->header);
        set_progress(s, number, told_remote);
    }
    if (sent && phase < told_local && (!arrived || (d.flags & notice_local) != 0)) {
        if (!s.target.mrq.push(s.poster.me, local_entry(d, 0, outcome.mrq_error), {times.told, slot.done.origin}))
            report_remote_overflow(s.target);
        set_progress(s, number, arrived ? told_local : failed);
    }
    // Along the chain. A runner killed between here and `done` leaves its successor to count again: a put too
    // many may start, which is better than a chain that stands still.
    if (arrived && d.sps != 0 && found && to->session)
        start_session(s.poster, *to, d.sps, times.arrived);
}

/// In exact mode a descriptor that is started takes effect later; what it leaves in the TCQ comes in order.
void begin_one(Session& s, uint64_t number) noexcept
{
    SessionSlot& slot = s.slots[number % toq_entries];
    Descriptor d;
    const Picoseconds start = std::max(slot.posted_at, s.control.arrived_at.load_relaxed());
    int error = UTOFU_SUCCESS;
    if (!decode_descriptor(slot.descriptor, sizeof slot.descriptor, d) || (d.op != Op::put && d.op != Op::nop)) {
        d = Descriptor{};
        error = UTOFU_ERR_TCQ_DESC; // nonsense in the owner's segment
    }
    Remote* to = nullptr;
    const bool found = d.op == Op::put && find_remote(d.rmt_vcq_id, to) == RemoteStatus::found;
    Times times = d.op == Op::put ? watch_session(s.poster, s.target, d, found ? to : nullptr, start)
                                  : Times{start, start, start, start};
    times.sent = std::max(times.sent, s.control.sent_at.load_relaxed());
    s.control.sent_at.store_relaxed(times.sent);
    slot.done.time = times.sent;
    if (d.op == Op::put) {
        const Failure failure = found ? Failure::none : Failure::later;
        watch_relay({segment_header(s.target.peer->base).node, s.target.index, times.arrived, failure}, d);
    }
    if (!relay_exact({s.poster, s.target, d, times, slot.done.origin, number, error})) {
        slot.result = UTOFU_ERR_TCQ_OTHER; // no memory
        s.control.done.store_release(number + 1);
    }
}

/// More posts than the queue holds are invalid data in the owner's segment, and are not executed.
bool has_work(const SessionControl& control) noexcept
{
    const uint64_t done = is_exact() ? control.begun.load_acquire() : control.done.load_acquire();
    const uint64_t posted = control.posted.load_acquire() - done;
    const auto arrived = static_cast<int64_t>(control.arrived.load_acquire() - done);
    return posted != 0 && posted <= toq_entries && arrived > 0;
}

/// Takes `runner`, if it is free or held by a dead process.
bool take_runner(SessionControl& control, Claimant me) noexcept
{
    uint32_t seen = 0;
    const uint32_t mine = runner_mark | me.bits();
    if (control.runner.compare_exchange(seen, mine))
        return true;
    const Claimant holder(seen & ~runner_mark);
    if (seen == mine || may_run(Process::self().job().life(holder.process(), holder.incarnation(), 14)))
        return false;
    return control.runner.compare_exchange(seen, mine);
}

void run(Session& s) noexcept
{
    // The bound: nonsense may make `done` stand still, or work appear for ever.
    for (unsigned turn = 0; turn < 16 && has_work(s.control) && take_runner(s.control, s.poster.me); turn++) {
        // A whole queue at a time: an owner that continues to post has to wait for the next runner.
        for (uint32_t i = 0; i < toq_entries && has_work(s.control) && s.target.alive(); i++) {
            if (is_exact()) {
                const uint64_t next = s.control.begun.load_relaxed();
                s.control.begun.store_release(next + 1);
                begin_one(s, next);
                continue;
            }
            uint64_t number = s.control.done.load_relaxed();
            run_one(s, number);
            // Release: result and notices before the count (partner: poll_tcq_session). Not if the VCQ was freed in the
            // meantime: another one in its place has set it (open_session).
            (void)s.control.done.compare_exchange(number, number + 1);
            ring_doorbell(*s.target.header);
        }
        s.control.runner.store_seq(0);
        // Pairs with a process that counted its put, found the word held and left (partner: the fence in
        // start_session).
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (!s.target.alive())
            return;
    }
}

Remote* own_remote(Vcq& vcq) noexcept
{
    Remote* remote = nullptr;
    return find_remote(vcq.id, remote) == RemoteStatus::found ? remote : nullptr;
}

} // namespace

void start_session(Vcq& poster, Remote& target, unsigned sps, uint64_t when) noexcept
{
    Session s(poster, target);
    uint64_t last = s.control.arrived_at.load_relaxed();
    while (last < when && !s.control.arrived_at.compare_exchange(last, when)) {
    }
    (void)s.control.arrived.fetch_add(sps);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    run(s);
}

int post_session(Vcq& vcq, const Descriptor& descriptor, const Remote* to, void* cbdata, const Watch& watch) noexcept
{
    if (!takes_session(descriptor))
        return UTOFU_ERR_NOT_SUPPORTED;
    Remote* const self = own_remote(vcq);
    if (self == nullptr)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    Session s(vcq, *self);
    SessionSlot& slot = s.slots[vcq.toq_tail % toq_entries];
    (void)encode_descriptor(descriptor, slot.descriptor);
    slot.posted_at = watch.started;
    slot.done = {0, watch.origin};
    vcq.session_cbdata[vcq.toq_tail % toq_entries] = {cbdata, (descriptor.flags & notice_tcq) != 0, descriptor.length,
                                                      &flow_of(vcq, to, descriptor)};
    vcq.toq_tail++;
    // Release: the descriptor before the count (partner: has_work).
    s.control.posted.store_release(s.control.posted.load_relaxed() + 1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    run(s);
    return UTOFU_SUCCESS;
}

int poll_tcq_session(Vcq& vcq, void*& cbdata, Stamp& stamp) noexcept
{
    std::byte* const region = Process::self().segment().vcq_region(vcq.index);
    SessionControl& control = vcq_control(region).session;
    const SessionSlot* const slots = session_slots(region);
    const auto done = static_cast<uint32_t>(control.done.load_acquire());
    while (vcq.toq_head != vcq.toq_tail && static_cast<int32_t>(done - vcq.toq_head) > 0) {
        const uint32_t position = vcq.toq_head++ % toq_entries;
        const SessionCallback& callback = vcq.session_cbdata[position];
        const int result = slots[position].result;
        count(*callback.flow, Op::put, callback.length);
        if (callback.notice || result != UTOFU_SUCCESS) {
            cbdata = callback.cbdata;
            stamp = slots[position].done;
            return result;
        }
    }
    // A runner may have been killed: now and then see for ourselves.
    if (++vcq.idle_polls % 1024 == 0 && has_work(control)) {
        if (Remote* const self = own_remote(vcq)) {
            Session s(vcq, *self);
            run(s);
        }
    }
    return UTOFU_ERR_NOT_FOUND;
}

bool has_tcq_session(const Vcq& vcq) noexcept
{
    std::byte* const region = Process::self().segment().vcq_region(vcq.index);
    const auto done = static_cast<uint32_t>(vcq_control(region).session.done.load_acquire());
    return vcq.toq_head != vcq.toq_tail && static_cast<int32_t>(done - vcq.toq_head) > 0;
}

bool open_session(Vcq& vcq) noexcept
{
    if (vcq.session_cbdata == nullptr)
        vcq.session_cbdata.reset(new (std::nothrow) SessionCallback[toq_entries]);
    if (vcq.session_cbdata == nullptr)
        return false;
    SessionControl& control = vcq_control(Process::self().segment().vcq_region(vcq.index)).session;
    // Counters go on from one VCQ to the next of this place; what was left of the last one is dropped.
    const uint64_t posted = control.posted.load_relaxed();
    control.arrived.store_seq(posted);
    control.done.store_seq(posted);
    control.begun.store_seq(posted);
    vcq.toq_head = vcq.toq_tail = static_cast<uint32_t>(posted);
    return true;
}

} // namespace tofu::sim
