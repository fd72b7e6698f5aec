// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The adversarial mode (TOFU_SIM_CHAOS=seed): which step is next, notices, polls that find nothing (poll), and the end
// of a VCQ (drop). How data move is in chaos_data.cc.
#include "tni/chaos.h"

#include "clock/clock.h"
#include "tni/chaos_queue.h"
#include "tni/exact.h"
#include "tni/execute.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <new>
#include <pthread.h>

namespace tofu::sim {

namespace {

constexpr size_t window = 24;     ///< instructions that may overtake each other
constexpr size_t backlog = 64;    ///< more than this does not pile up
constexpr long tick_ns = 100'000; ///< of the thread that carries on while the program does nothing

bool step_tcq(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending& p = queue.pending[index];
    // Only a put reads memory before it is sent; errors are known once it has started.
    const bool sent = p.d.op == Op::put ? p.read() : p.data != Start::not_yet;
    if (p.held || p.tcq_written || !sent)
        return false;
    for (size_t i = 0; i < index; i++)
        if (!queue.pending[i].tcq_written)
            return false;
    if (p.tcq_error != UTOFU_SUCCESS || (p.d.flags & notice_tcq) != 0) {
        vcq.tcq.push({p.cbdata, p.position, p.tcq_error});
        stamp_tcq(vcq, {0, p.origin});
        ring_doorbell(Process::self().segment().header()); // its program may sleep
        arrived_chaos(vcq, nullptr);
    }
    p.tcq_written = true;
    return true;
}

bool step_remote(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending& p = queue.pending[index];
    if (p.remote_told || p.data != Start::complete ||
        !all_before(queue, index, [](const Pending& q) { return q.remote_told; }))
        return false;
    p.remote_told = true;
    if ((vcq.special & Vcq::watched) != 0)
        watch_arrival(vcq, p.d, {false, 0, failure_of(p.tcq_error, p.mrq_error), p.position});
    if (p.failed() || p.d.op == Op::nop)
        return true;
    if ((p.d.flags & notice_remote) != 0 && !p.remote->mrq.push(vcq.me, remote_entry(p.d, vcq.id), {0, p.origin}))
        report_remote_overflow(*p.remote);
    ring_doorbell(*p.remote->header);
    arrived_chaos(vcq, p.remote);
    if (p.d.sps != 0 && p.remote->session && p.d.op == Op::put)
        start_session(vcq, *p.remote, p.d.sps);
    return true;
}

bool step_local(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending& p = queue.pending[index];
    if (p.local_told || !p.remote_told || !all_before(queue, index, [](const Pending& q) { return q.local_told; }))
        return false;
    p.local_told = true;
    if (p.d.op != Op::nop && p.tcq_error == UTOFU_SUCCESS &&
        (p.mrq_error != UTOFU_SUCCESS || (p.d.flags & notice_local) != 0)) {
        if (vcq.local_notices.full())
            end_by_own_overflow(vcq);
        vcq.local_notices.push({local_entry(p.d, p.old_value, p.mrq_error)});
        stamp_local(vcq, {0, p.origin});
        ring_doorbell(Process::self().segment().header());
        arrived_chaos(vcq, nullptr);
    }
    return true;
}

/// One step of the instruction at `index`, of a random kind if that is possible.
bool step(Vcq& vcq, size_t index) noexcept
{
    using Step = bool (*)(Vcq&, size_t) noexcept;
    static constexpr Step steps[] = {step_data, step_tcq, step_remote, step_local};
    const uint32_t first = vcq.chaos_queue->dice.below(4);
    for (uint32_t i = 0; i < 4; i++) {
        if (steps[(first + i) % 4](vcq, index)) {
            Pending& p = vcq.chaos_queue->pending[index];
            if (p.finished()) {
                count(flow_of(vcq, p.remote, p.d), p.d.op, p.d.length);
                vcq.chaos_queue->pending.erase(vcq.chaos_queue->pending.begin() + static_cast<ptrdiff_t>(index));
            }
            return true;
        }
    }
    return false;
}

/// In exact mode time goes on by steps, and a seed decides by how much; the next ones are not sooner than anything else
/// that a process can do to another.
constexpr Picoseconds next_steps = figures::post_call + figures::fetch + figures::wire;
constexpr uint32_t latest_steps = 4'000'000; ///< behind that

void run_steps(Vcq& vcq, uint32_t count) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    if (is_exact()) {
        queue.now = std::max<uint64_t>(queue.now, clock_now());
        if (std::any_of(queue.pending.begin(), queue.pending.end(), [](const Pending& p) { return !p.held; }))
            tick_exact(vcq, queue.now + next_steps + queue.dice.below(latest_steps));
    }
    for (; count != 0 && !queue.pending.empty(); count--) {
        const size_t choices = std::min(queue.pending.size(), window);
        if (!step(vcq, queue.dice.below(static_cast<uint32_t>(choices))))
            (void)step(vcq, 0); // the oldest can always go on, unless it is held
    }
}

/// Asked twice: without the lock, to pass by most VCQs, and with it, after which it stays true until the lock is left
/// (partners: create_vcq, free_vcq).
bool may_carry_on(const Vcq& vcq) noexcept
{
    return vcq.carried_on.load_acquire() != 0;
}

/// Carries on while the program computes: hardware would.
void* chaos_main(void*) noexcept
{
    (void)::pthread_setname_np(::pthread_self(), "tofu-chaos");
    const timespec pause{0, tick_ns};
    for (;;) {
        (void)::nanosleep(&pause, nullptr);
        for (Vcq& vcq : vcq_table) {
            if (may_carry_on(vcq)) {
                const std::lock_guard guard(vcq.lock);
                if (may_carry_on(vcq) && !vcq.chaos_queue->pending.empty())
                    run_steps(vcq, 1 + vcq.chaos_queue->dice.below(128));
            }
        }
    }
    return nullptr;
}

bool thread_runs = false; ///< guarded by Process::slow_path
uint64_t opened = 0;      ///< VCQs so far, likewise: the next one of the same place decides otherwise

bool start_thread() noexcept
{
    if (thread_runs)
        return true;
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    (void)::pthread_sigmask(SIG_SETMASK, &all, &before); // inherited: signals are the program's
    pthread_t thread;
    thread_runs = ::pthread_create(&thread, nullptr, &chaos_main, nullptr) == 0;
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (thread_runs)
        (void)::pthread_detach(thread);
    return thread_runs;
}

} // namespace

void ChaosDeleter::operator()(ChaosQueue* queue) const noexcept
{
    delete queue;
}

bool open_chaos(Vcq& vcq, const Chaos& chaos) noexcept
{
    const uint64_t mixed =
        chaos.seed * 1'000'003 + Process::self().job().placement().rank * 1009 + vcq.index + ++opened * 10'000'019;
    vcq.chaos_queue.reset(new (std::nothrow) ChaosQueue(mixed, chaos.relaxations));
    return vcq.chaos_queue != nullptr && (is_exact() || start_thread());
}

bool refuse_chaos(Vcq& vcq) noexcept
{
    const TurnedCall call(TurnedCall::Kind::acts);
    if (call.is_refused())
        return false; // the post says so
    ChaosQueue& queue = *vcq.chaos_queue;
    if (queue.busy_left == 0 && queue.dice.below(16) == 0)
        queue.busy_left = 1 + queue.dice.below(3);
    if (queue.busy_left == 0)
        return false;
    queue.busy_left--;
    stir_chaos(vcq);
    return vcq.toq_tail != vcq.toq_head;
}

void post_chaos(Vcq& vcq, const Descriptor& descriptor, Remote* remote, void* cbdata, const Watch& watch) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending p{};
    p.d = descriptor;
    p.cbdata = cbdata;
    p.remote = remote;
    p.origin = watch.origin;
    p.position = vcq.toq_tail++;
    p.held = (descriptor.flags & UTOFU_ONESIDED_FLAG_DELAY_START) != 0;
    queue.pending.push_back(std::move(p));
    if (!queue.pending.back().held)
        start_pending_chaos(vcq);
    run_steps(vcq, queue.dice.below(4));
    while (queue.pending.size() > backlog && !queue.pending.front().held)
        run_steps(vcq, 16);
}

void start_pending_chaos(Vcq& vcq) noexcept
{
    for (Pending& p : vcq.chaos_queue->pending)
        p.held = false;
}

void stir_chaos(Vcq& vcq) noexcept
{
    run_steps(vcq, vcq.chaos_queue->dice.below(8));
}

void carry_on_chaos(Vcq& vcq, uint64_t when) noexcept
{
    if (vcq.chaos_queue != nullptr && !vcq.chaos_queue->pending.empty()) {
        vcq.chaos_queue->now = when;
        run_steps(vcq, 1 + vcq.chaos_queue->dice.below(32));
    }
}

void arrived_chaos(Vcq& vcq, const Remote* remote) noexcept
{
    if (is_exact())
        wake_actor(remote != nullptr ? remote->peer->process : Process::self().job().process(), vcq.chaos_queue->now);
}

bool hide_chaos(Vcq& vcq) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    if (!queue.may(chaos_poll))
        return false;
    if (queue.blind_left == 0 && queue.dice.below(8) == 0)
        queue.blind_left = 1 + queue.dice.below(32);
    if (queue.blind_left == 0)
        return false;
    queue.blind_left--;
    return true;
}

void end_chaos(Vcq& vcq) noexcept
{
    const TurnedCall call(TurnedCall::Kind::acts);
    ChaosQueue& queue = *vcq.chaos_queue;
    if (queue.may(chaos_drop)) {
        run_steps(vcq, queue.dice.below(2) * queue.dice.below(64)); // as far as it has got
        queue.pending.clear();
        return;
    }
    start_pending_chaos(vcq);
    while (!vcq.chaos_queue->pending.empty())
        run_steps(vcq, 64);
}

uint32_t settled_chaos(const Vcq& vcq) noexcept
{
    for (const Pending& p : vcq.chaos_queue->pending)
        if (!p.tcq_written)
            return p.position;
    return vcq.toq_tail;
}

void end_all_chaos() noexcept
{
    const timespec pause{0, 1'000'000};
    for (Vcq& vcq : vcq_table) {
        // Not for ever: exit may have been called from a signal handler inside a call that holds the lock.
        for (int attempt = 0; attempt < 500 && may_carry_on(vcq); attempt++) {
            if (vcq.lock.try_lock()) {
                if (may_carry_on(vcq))
                    end_chaos(vcq);
                vcq.lock.unlock();
                break;
            }
            (void)::nanosleep(&pause, nullptr);
        }
    }
}

void forget_chaos_in_child() noexcept
{
    thread_runs = false;
    for (Vcq& vcq : vcq_table)
        keep_reachable(vcq.chaos_queue.release()); // may have been in the middle of a change
}

} // namespace tofu::sim
