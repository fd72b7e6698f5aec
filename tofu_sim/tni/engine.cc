// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Executes descriptors: the posting thread moves the bytes and writes the notices.
#include "tni/engine.h"

#include "clock/clock.h"
#include "job/oversubscription.h"
#include "tni/exact.h"
#include "tni/execute.h"
#include "tni/watch.h"

namespace tofu::sim {
namespace {

/// The target may have changed, in exact mode while other processes ran.
Remote* remote_now(const Descriptor& descriptor) noexcept
{
    Remote* remote = nullptr;
    return descriptor.op != Op::nop && find_remote(descriptor.rmt_vcq_id, remote) == RemoteStatus::found ? remote
                                                                                                         : nullptr;
}

} // namespace

int post(Vcq& vcq, const Descriptor& descriptor, void* cbdata) noexcept
{
    return post_inline(vcq, descriptor, cbdata);
}

int post_accepted(Vcq& vcq, const Descriptor& descriptor, void* cbdata) noexcept
{
    return post_to(vcq, descriptor, remote_now(descriptor), cbdata);
}

int post_by_detour(Vcq& vcq, const Descriptor& descriptor, Remote* remote, void* cbdata) noexcept
{
    const TurnedCall call(TurnedCall::Kind::acts);
    if (is_exact()) {
        if (call.is_refused())
            return UTOFU_ERR_NOT_AVAILABLE;
        remote = remote_now(descriptor);
    }
    Watch watch = (vcq.special & Vcq::watched) != 0 ? watch_post(vcq, descriptor, remote) : Watch{};
    const uint32_t position = vcq.toq_tail;
    if ((vcq.special & Vcq::session) != 0) {
        const int rc = post_session(vcq, descriptor, remote, cbdata, watch);
        if (rc == UTOFU_SUCCESS)
            watch_posted(vcq, descriptor, watch, {true, 0, Failure::none, position});
        return rc;
    }
    if ((vcq.special & Vcq::chaos) != 0) {
        post_chaos(vcq, descriptor, remote, cbdata, watch);
        watch_posted(vcq, descriptor, watch, {true, 0, Failure::none, position});
        return UTOFU_SUCCESS;
    }
    if (is_exact()) {
        const int rc = post_exact(vcq, descriptor, remote, cbdata, watch);
        if (rc == UTOFU_SUCCESS)
            watch_posted(vcq, descriptor, watch, {false, 0, watch.unsent ? Failure::unsent : Failure::none, position});
        return rc;
    }
    vcq.toq_tail++;
    Execution e{vcq, descriptor, remote};
    execute(e);
    const Done outcome = {false, watch_moment(), failure_of(e.tcq_error, e.mrq_error), position};
    finish(e, cbdata, position, &watch);
    watch_posted(vcq, descriptor, watch, outcome);
    return UTOFU_SUCCESS;
}

namespace {

[[gnu::always_inline]] inline int take_tcq(Vcq& vcq, void*& cbdata) noexcept
{
    const TcqEntry& entry = vcq.tcq.front();
    const int result = entry.result;
    cbdata = entry.cbdata;
    vcq.toq_head = entry.toq_position + 1;
    vcq.tcq.pop();
    return result;
}

/// One look at the TCQ. `hidden`: the adversarial mode lets it find nothing.
int look_at_tcq(Vcq& vcq, void*& cbdata, Stamp& stamp, bool& hidden) noexcept
{
    const bool chaos = (vcq.special & Vcq::chaos) != 0;
    hidden = false;
    if (chaos) {
        stir_chaos(vcq);
        if (hide_chaos(vcq)) {
            hidden = true;
            return UTOFU_ERR_NOT_FOUND;
        }
    }
    if ((vcq.special & Vcq::session) != 0)
        return poll_tcq_session(vcq, cbdata, stamp);
    if (!vcq.tcq.empty()) {
        stamp = take_tcq_stamp(vcq);
        return take_tcq(vcq, cbdata);
    }
    // As below; or what has got so far.
    vcq.toq_head = chaos ? settled_chaos(vcq) : is_exact() ? settled_exact(vcq) : vcq.toq_tail;
    return UTOFU_ERR_NOT_FOUND;
}

int poll_tcq_watched(Vcq& vcq, void*& cbdata) noexcept
{
    TurnedCall call(TurnedCall::Kind::looks);
    Stamp stamp{};
    bool hidden = false;
    if (call.is_refused())
        return UTOFU_ERR_NOT_AVAILABLE;
    int result = call.may_look() ? look_at_tcq(vcq, cbdata, stamp, hidden) : UTOFU_ERR_NOT_FOUND;
    if (result == UTOFU_ERR_NOT_FOUND && !hidden && is_exact() && call.wait(vcq.watch->vain_tcq))
        result = look_at_tcq(vcq, cbdata, stamp, hidden);
    if (hidden) // what is hidden is visible to a later poll
        call.hid();
    else if (result != UTOFU_ERR_NOT_FOUND)
        call.found();
    if ((vcq.special & Vcq::watched) != 0)
        watch_poll_tcq(vcq, result, stamp, hidden);
    return result;
}

[[gnu::always_inline]] inline int poll_tcq_unwatched(Vcq& vcq, void*& cbdata) noexcept
{
    if (vcq.tcq.empty()) {
        vcq.toq_head = vcq.toq_tail; // all that was posted is complete: room for as much again
        return UTOFU_ERR_NOT_FOUND;
    }
    return take_tcq(vcq, cbdata);
}

[[gnu::noinline]] int poll_tcq_by_detour(Vcq& vcq, void*& cbdata) noexcept
{
    const VcqGuard guard(vcq);
    return (vcq.special & Vcq::detour) != 0 ? poll_tcq_watched(vcq, cbdata) : poll_tcq_unwatched(vcq, cbdata);
}

} // namespace

int poll_tcq(Vcq& vcq, void*& cbdata) noexcept
{
    if ((vcq.special & (Vcq::locked | Vcq::detour)) != 0) [[unlikely]]
        return poll_tcq_by_detour(vcq, cbdata);
    return poll_tcq_unwatched(vcq, cbdata);
}

namespace {

int deliver(const MrqEntry& entry, utofu_mrq_notice& notice) noexcept
{
    notice.notice_type = entry.type;
    notice.vcq_id = entry.vcq_id;
    notice.edata = entry.edata;
    notice.rmt_value = entry.rmt_value;
    notice.lcl_stadd = entry.lcl_stadd;
    notice.rmt_stadd = entry.rmt_stadd;
    return entry.result;
}

/// The entry in front is being written. Its writer needs nanoseconds, unless it was stopped or killed: ask
/// the process table now and then, and skip what a dead one left.
[[gnu::noinline]] void examine_claim(Vcq& vcq) noexcept
{
    if (++vcq.claimed_polls % 1024 != 0)
        return;
    bool valid = false;
    const Claimant holder = vcq.mrq.claimant_at(vcq.mrq_head, valid);
    if (!valid || !may_run(Process::self().job().life(holder.process(), holder.incarnation(), 14)))
        vcq.mrq.abort_claim(vcq.mrq_head, holder);
}

/// A CQ has one MRQ (guide, glossary), whose entries the notices of all its VCQs share, local ones and remote ones.
/// Here each VCQ has a ring for remote ones and another for local ones, and none of them alone may be full. Notices
/// become fewer by polls alone: a poll now and then looks, having taken one, whether there were too many, to within 64.
/// Returns what the poll is to return, so that it needs no frame to call this.
constexpr uint32_t fill_look = 64;

[[gnu::noinline]] int look_at_fill(const Vcq& vcq, int result) noexcept
{
    uint64_t sum = 1;
    const unsigned first = vcq.index / vcqs_per_cq * vcqs_per_cq;
    for (unsigned index = first; index < first + vcqs_per_cq; index++) {
        const Vcq& other = vcq_table[index];
        if (other.live.load_acquire() == 0)
            continue;
        // Tail first: what its thread takes out meanwhile makes it fewer, not more.
        const MrqControl& control = vcq_control(Process::self().segment().vcq_region(index)).mrq;
        const uint64_t tail = control.tail.load_acquire();
        const uint64_t remote = tail - control.head_hint.load_relaxed();
        sum += other.local_notices.size() + (remote <= vcq.mrq_capacity ? remote : 0); // an invalid value counts as 0
    }
    if (sum > vcq.mrq_capacity)
        end_by_own_overflow(vcq);
    return result;
}

/// Other processes write once they have a processor, which the polling thread may occupy.
constexpr uint32_t polls_before_yield = 64;

[[gnu::noinline]] void yield_after_idle_polls() noexcept
{
    if (is_exact())
        return; // they have the turn when it is theirs
    Process& self = Process::self();
    (void)yield_processor(self.job().oversubscription(), self.segment().header(), 0);
}

/// Nothing was there. The caller does not hold the VCQ's lock.
[[gnu::always_inline]] inline int nothing_found(Vcq& vcq) noexcept
{
    const uint32_t idle = vcq.idle_mrq_polls.load_relaxed() + 1;
    vcq.idle_mrq_polls.store_relaxed(idle);
    if (idle % polls_before_yield == 0) [[unlikely]]
        yield_after_idle_polls();
    return UTOFU_ERR_NOT_FOUND;
}

/// Not when there is none.
[[gnu::always_inline]] inline int take_local(Vcq& vcq, utofu_mrq_notice& notice, Stamp* stamp = nullptr) noexcept
{
    const uint32_t count = vcq.local_notices.size();
    const int result = deliver(vcq.local_notices.front().entry, notice);
    if (stamp != nullptr)
        *stamp = take_local_stamp(vcq);
    vcq.local_notices.pop();
    vcq.idle_mrq_polls.store_relaxed(0);
    return count % fill_look == 0 ? look_at_fill(vcq, result) : result;
}

[[gnu::always_inline]] inline int take_remote(Vcq& vcq, utofu_mrq_notice& notice, Stamp* stamp = nullptr) noexcept
{
    MrqEntry entry;
    switch (vcq.mrq.poll(vcq.mrq_head, entry, stamp)) {
    case MrqRing::Poll::found:
        vcq.claimed_polls = 0;
        vcq.idle_mrq_polls.store_relaxed(0);
        deliver(entry, notice);
        return vcq.mrq_head % fill_look == 1 ? look_at_fill(vcq, entry.result) : entry.result;
    case MrqRing::Poll::nothing: vcq.claimed_polls = 0; break;
    case MrqRing::Poll::claimed: examine_claim(vcq); break;
    }
    return UTOFU_ERR_NOT_FOUND;
}

/// Our own notices first: that of a put must not come after the peer's answer to it.
int take_mrq(Vcq& vcq, utofu_mrq_notice& notice, Stamp* stamp = nullptr) noexcept
{
    return vcq.local_notices.empty() ? take_remote(vcq, notice, stamp) : take_local(vcq, notice, stamp);
}

int look_at_mrq(Vcq& vcq, utofu_mrq_notice& notice, Stamp& stamp, bool& hidden) noexcept
{
    hidden = false;
    if ((vcq.special & Vcq::chaos) != 0) {
        stir_chaos(vcq);
        if (hide_chaos(vcq)) {
            hidden = true;
            return UTOFU_ERR_NOT_FOUND;
        }
    }
    return take_mrq(vcq, notice, &stamp);
}

int poll_mrq_watched(Vcq& vcq, utofu_mrq_notice& notice) noexcept
{
    TurnedCall call(TurnedCall::Kind::looks);
    Stamp stamp{};
    bool hidden = false;
    if (call.is_refused())
        return UTOFU_ERR_NOT_AVAILABLE;
    int result = call.may_look() ? look_at_mrq(vcq, notice, stamp, hidden) : UTOFU_ERR_NOT_FOUND;
    if (result == UTOFU_ERR_NOT_FOUND && !hidden && is_exact() && call.wait(vcq.watch->vain_mrq))
        result = look_at_mrq(vcq, notice, stamp, hidden);
    if (hidden) // what is hidden is visible to a later poll
        call.hid();
    else if (result != UTOFU_ERR_NOT_FOUND)
        call.found();
    if ((vcq.special & Vcq::watched) != 0)
        watch_poll_mrq(vcq, result, stamp, notice, hidden);
    return result;
}

[[gnu::noinline]] int poll_mrq_by_detour(Vcq& vcq, utofu_mrq_notice& notice) noexcept
{
    int result = UTOFU_SUCCESS;
    {
        const VcqGuard guard(vcq);
        const bool watched = (vcq.special & (Vcq::chaos | Vcq::watched)) != 0;
        result = watched ? poll_mrq_watched(vcq, notice) : take_mrq(vcq, notice);
    }
    return result == UTOFU_ERR_NOT_FOUND ? nothing_found(vcq) : result;
}

} // namespace

int poll_mrq(Vcq& vcq, utofu_mrq_notice& notice) noexcept
{
    if ((vcq.special & (Vcq::locked | Vcq::chaos | Vcq::watched)) != 0) [[unlikely]]
        return poll_mrq_by_detour(vcq, notice);
    if (!vcq.local_notices.empty())
        return take_local(vcq, notice);
    const int result = take_remote(vcq, notice);
    return result == UTOFU_ERR_NOT_FOUND ? nothing_found(vcq) : result;
}

} // namespace tofu::sim
