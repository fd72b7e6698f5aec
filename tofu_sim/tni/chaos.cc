// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the adversarial mode (TOFU_SIM_CHAOS=seed): every freedom that guide 2.2.10 and 6.1.3.1 leave, used.
// Called by: tni/engine, tni/vcq. Calls: tni/remote, memory/.
#include "tni/chaos.h"

#include "tni/execute.h"
#include "tni/pieces.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <deque>
#include <new>
#include <pthread.h>
#include <vector>

namespace tofu::sim {

namespace {

constexpr size_t window = 24;         // instructions that may overtake each other
constexpr size_t backlog = 64;        // more than this does not pile up
constexpr uint32_t most_ahead = 65536; // bytes of a transfer that is read before it is written
constexpr long tick_ns = 100'000;     // of the thread that carries on while the program does nothing

enum class Start : uint8_t { not_yet, moving, complete };

struct Pending {
    Descriptor d;
    void* cbdata;
    Remote* remote; // nullptr: gone when it was posted
    uint32_t position;
    bool held; // DELAY_START
    Start data = Start::not_yet;
    bool tcq_written = false;
    bool remote_told = false;
    bool local_told = false;
    int tcq_error = UTOFU_SUCCESS;
    int mrq_error = UTOFU_SUCCESS;
    uint64_t old_value = 0;
    uint64_t origin = 0; // of its stamps
    std::vector<Piece> pieces; // still to move, from the back
    std::vector<std::byte> ahead; // what was read before the writing began, if it was

    [[nodiscard]] bool failed() const noexcept
    {
        return tcq_error != UTOFU_SUCCESS || mrq_error != UTOFU_SUCCESS;
    }
    [[nodiscard]] bool strong() const noexcept { return (d.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0; }
    // Reads nothing any more, that is.
    [[nodiscard]] bool read() const noexcept
    {
        return data == Start::complete || d.op == Op::put_piggyback || !ahead.empty();
    }
    [[nodiscard]] bool written() const noexcept { return data == Start::complete; }
    [[nodiscard]] bool finished() const noexcept
    {
        return data == Start::complete && tcq_written && remote_told && local_told;
    }
};

} // namespace

struct ChaosQueue {
    ChaosQueue(uint64_t seed, uint32_t f) noexcept : dice(seed), freedoms(f) {}
    Dice dice;
    const uint32_t freedoms;     // of ChaosFreedom
    std::deque<Pending> pending; // in the order of posting
    uint32_t busy_left = 0;      // posts still refused
    uint32_t blind_left = 0;     // polls that still find nothing

    [[nodiscard]] bool may(ChaosFreedom freedom) const noexcept { return (freedoms & freedom) != 0; }
};

namespace {

bool same_way(const Pending& a, const Pending& b) noexcept
{
    return vcq_key(a.d.rmt_vcq_id) == vcq_key(b.d.rmt_vcq_id) && a.d.path == b.d.path &&
           (a.d.path != 0 || a.d.rmt_vcq_id == b.d.rmt_vcq_id);
}

// Everything posted before `index` on the same way satisfies `condition`.
template <typename Condition>
bool all_before(const ChaosQueue& queue, size_t index, Condition&& condition) noexcept
{
    const Pending& p = queue.pending[index];
    return std::all_of(queue.pending.begin(), queue.pending.begin() + static_cast<ptrdiff_t>(index),
                       [&](const Pending& earlier) { return !same_way(earlier, p) || condition(earlier); });
}

// Reads all of a put or get now. Where that fails, it is the end of it.
void read_ahead(Vcq& vcq, Pending& p) noexcept
{
    AddressCache& addresses = *vcq.addresses;
    std::vector<std::byte> bytes(p.d.length);
    if (p.d.op == Op::put) {
        p.tcq_error = local_tcq_error(
            addresses.get(vcq.own_memory, p.d.lcl_stadd, bytes.data(), bytes.size(), CopyOrder::relaxed));
    } else {
        p.mrq_error = remote_mrq_error(
            addresses.get(p.remote->memory, p.d.rmt_stadd, bytes.data(), bytes.size(), CopyOrder::relaxed));
    }
    if (p.failed()) {
        p.data = Start::complete;
        return;
    }
    p.ahead = std::move(bytes);
}

// Guide 2.2.10: with strong order reading starts after the reading, writing after the writing of what was posted before.
bool may_read(const ChaosQueue& queue, size_t index) noexcept
{
    return all_before(queue, index, [](const Pending& q) { return q.read(); });
}
bool may_write(const ChaosQueue& queue, size_t index) noexcept
{
    return all_before(queue, index, [](const Pending& q) { return q.written(); });
}

bool can_be_read_ahead(const ChaosQueue& queue, const Pending& p) noexcept
{
    return (p.d.op == Op::put || (p.d.op == Op::get && queue.may(chaos_raw))) && p.d.length != 0 &&
           p.d.length <= most_ahead;
}

enum class Reading : uint8_t { now, perhaps_now }; // all of it, before anything is written

// Both ends are checked when the transfer starts, as the first packet would find out.
void begin_transfer(Vcq& vcq, Pending& p, Reading reading) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    AddressCache& addresses = *vcq.addresses;
    p.data = Start::complete; // unless all is well
    uint64_t source = 0;      // a piggybacked put has no pages
    if (p.d.op == Op::put) {
        p.tcq_error =
            local_tcq_error(addresses.check(vcq.own_memory, p.d.lcl_stadd, p.d.length, Need::read, &source));
    }
    if (p.tcq_error != UTOFU_SUCCESS) {
        return;
    }
    if (p.remote == nullptr || !p.remote->alive()) {
        p.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    const bool get = p.d.op == Op::get;
    p.mrq_error = remote_mrq_error(addresses.check(p.remote->memory, p.d.rmt_stadd, p.d.length,
                                                   get ? Need::read : Need::write, get ? &source : nullptr));
    if (get && p.mrq_error == UTOFU_SUCCESS) {
        p.mrq_error = local_mrq_error(addresses.check(vcq.own_memory, p.d.lcl_stadd, p.d.length, Need::write));
    }
    if (p.mrq_error != UTOFU_SUCCESS || p.d.length == 0) {
        return;
    }
    p.data = Start::moving;
    p.pieces = cut({.destination = get ? p.d.lcl_stadd : p.d.rmt_stadd,
                    .source = source,
                    .length = p.d.length,
                    .strong = p.strong(),
                    .torn = queue.may(chaos_torn)},
                   queue.dice);
    if (reading == Reading::now || (can_be_read_ahead(queue, p) && queue.dice.below(4) == 0)) {
        read_ahead(vcq, p);
    }
}

// An ARMW is one step that reads and writes: atomic, and towards puts too (guide 2.2.5 says: towards other updates). A
// get behind it waits for its reading (guide 2.2.10), so it sees whatever the ARMW has seen, but not for its writing: it
// may still find the word as it was. It must not read earlier, or a lock taken by a CSWAP would protect nothing.
void let_a_get_pass(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    const Pending& armw = queue.pending[index];
    for (size_t i = index + 1; i < queue.pending.size(); i++) {
        Pending& get = queue.pending[i];
        if (!same_way(get, armw) || get.read()) {
            continue;
        }
        if (get.data == Start::not_yet && !get.held && get.d.op == Op::get && can_be_read_ahead(queue, get) &&
            queue.dice.below(2) == 0) {
            begin_transfer(vcq, get, Reading::now);
            const size_t width = armw.d.op == Op::armw4 || armw.d.op == Op::cswap4 ? 4 : 8;
            const uint64_t offset = armw.d.rmt_stadd - get.d.rmt_stadd;
            if (offset < get.ahead.size() && get.ahead.size() - offset >= width) {
                std::memcpy(get.ahead.data() + offset, &armw.old_value, width); // little-endian, as the machine is
            }
        }
        return;
    }
}

void begin(Vcq& vcq, size_t index) noexcept
{
    Pending& p = vcq.chaos_queue->pending[index];
    if (is_put(p.d.op) || p.d.op == Op::get) {
        begin_transfer(vcq, p, Reading::perhaps_now);
        return;
    }
    p.data = Start::complete;
    if (p.d.op == Op::nop) {
        return;
    }
    if (p.remote == nullptr || !p.remote->alive()) {
        p.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    Execution e{vcq, p.d, p.remote};
    execute_armw(e);
    p.old_value = e.old_value;
    p.mrq_error = e.mrq_error;
    if (p.mrq_error == UTOFU_SUCCESS) {
        let_a_get_pass(vcq, index);
    }
}

// Of a get that was read ahead.
void write_here(Execution& e, const std::byte* bytes) noexcept
{
    std::byte* target = nullptr;
    const AccessStatus status =
        e.vcq.addresses->translate(e.vcq.own_memory, e.d.lcl_stadd, e.d.length, Need::write, &target);
    if (status != AccessStatus::ok) {
        e.mrq_error = local_mrq_error(status);
        return;
    }
    copy_ordered(target, bytes, e.d.length);
}

void move_piece(Vcq& vcq, Pending& p) noexcept
{
    const Piece piece = p.pieces.back();
    p.pieces.pop_back();
    Descriptor part = p.d;
    part.length = piece.length;
    part.lcl_stadd += piece.offset;
    part.rmt_stadd += piece.offset;
    Execution e{vcq, part, p.remote->alive() ? p.remote : nullptr};
    const std::byte* const ahead = p.ahead.empty() ? nullptr : p.ahead.data() + piece.offset;
    switch (p.d.op) {
    case Op::put:
        if (ahead == nullptr) {
            execute_put(e);
        } else if (e.remote == nullptr) {
            e.mrq_error = UTOFU_ERR_MRQ_PEER;
        } else {
            move_put(e, ahead);
        }
        break;
    case Op::put_piggyback:
        std::memmove(part.data, reinterpret_cast<const std::byte*>(p.d.data) + piece.offset, piece.length);
        execute_put_piggyback(e);
        break;
    case Op::get:
        if (ahead == nullptr) {
            execute_get(e);
        } else {
            write_here(e, ahead);
        }
        break;
    case Op::armw4: case Op::armw8: case Op::cswap4: case Op::cswap8: case Op::nop: break; // have no pieces
    }
    p.tcq_error = e.tcq_error;
    p.mrq_error = e.mrq_error;
    if (p.failed() || p.pieces.empty()) {
        p.pieces.clear();
        p.data = Start::complete;
    }
    if (e.remote != nullptr) {
        ring_doorbell(*e.remote->header); // memory may be polled line by line
    }
}

bool step_data(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending& p = queue.pending[index];
    if (p.held || p.data == Start::complete) {
        return false;
    }
    const bool writes = !p.strong() || may_write(queue, index);
    if (p.data == Start::moving) {
        if (writes) {
            move_piece(vcq, p);
        }
        return writes;
    }
    if (writes) {
        begin(vcq, index);
        return true;
    }
    if (!can_be_read_ahead(queue, p) || !may_read(queue, index)) {
        return false;
    }
    begin_transfer(vcq, p, Reading::now);
    return true;
}

bool step_tcq(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending& p = queue.pending[index];
    // Only a put reads memory before it is sent; errors are known once it has started.
    const bool sent = p.d.op == Op::put ? p.read() : p.data != Start::not_yet;
    if (p.held || p.tcq_written || !sent) {
        return false;
    }
    for (size_t i = 0; i < index; i++) {
        if (!queue.pending[i].tcq_written) {
            return false;
        }
    }
    if (p.tcq_error != UTOFU_SUCCESS || (p.d.flags & notice_tcq) != 0) {
        vcq.tcq.push({p.cbdata, p.position, p.tcq_error});
        stamp_tcq(vcq, {0, p.origin});
        ring_doorbell(Process::self().segment().header()); // its program may sleep
    }
    p.tcq_written = true;
    return true;
}

bool step_remote(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending& p = queue.pending[index];
    if (p.remote_told || p.data != Start::complete ||
        !all_before(queue, index, [](const Pending& q) { return q.remote_told; })) {
        return false;
    }
    p.remote_told = true;
    if (p.failed() || p.d.op == Op::nop) {
        return true;
    }
    if ((p.d.flags & notice_remote) != 0 &&
        !p.remote->mrq.push(vcq.me, remote_entry(p.d, vcq.id), {0, p.origin})) {
        report_remote_overflow(*p.remote);
    }
    ring_doorbell(*p.remote->header);
    if (p.d.sps != 0 && p.remote->session && p.d.op == Op::put) {
        start_session(vcq, *p.remote, p.d.sps);
    }
    return true;
}

bool step_local(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending& p = queue.pending[index];
    if (p.local_told || !p.remote_told ||
        !all_before(queue, index, [](const Pending& q) { return q.local_told; })) {
        return false;
    }
    p.local_told = true;
    if (p.d.op != Op::nop && p.tcq_error == UTOFU_SUCCESS &&
        (p.mrq_error != UTOFU_SUCCESS || (p.d.flags & notice_local) != 0)) {
        if (vcq.local_notices.full()) {
            end_by_own_overflow(vcq);
        }
        vcq.local_notices.push({local_entry(p.d, p.old_value, p.mrq_error)});
        stamp_local(vcq, {0, p.origin});
        ring_doorbell(Process::self().segment().header());
    }
    return true;
}

// One step of the instruction at `index`, of a random kind if that is possible.
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

void run_steps(Vcq& vcq, uint32_t count) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    for (; count != 0 && !queue.pending.empty(); count--) {
        const size_t choices = std::min(queue.pending.size(), window);
        if (!step(vcq, queue.dice.below(static_cast<uint32_t>(choices)))) {
            (void)step(vcq, 0); // the oldest can always go on, unless it is held
        }
    }
}

// Asked twice: without the lock, to pass by most VCQs, and with it, after which it stays true until the lock is left
// (partners: create_vcq, free_vcq).
bool may_carry_on(const Vcq& vcq) noexcept
{
    return vcq.carried_on.load_acquire() != 0;
}

// Carries on while the program computes: hardware would.
void* chaos_main(void*) noexcept
{
    (void)::pthread_setname_np(::pthread_self(), "tofu-chaos");
    const timespec pause{0, tick_ns};
    for (;;) {
        (void)::nanosleep(&pause, nullptr);
        for (Vcq& vcq : vcq_table) {
            if (may_carry_on(vcq)) {
                const std::lock_guard guard(vcq.lock);
                if (may_carry_on(vcq) && !vcq.chaos_queue->pending.empty()) {
                    run_steps(vcq, 1 + vcq.chaos_queue->dice.below(128));
                }
            }
        }
    }
    return nullptr;
}

bool thread_runs = false; // guarded by Process::slow_path
uint64_t opened = 0;      // VCQs so far, likewise: the next one of the same place decides otherwise

bool start_thread() noexcept
{
    if (thread_runs) {
        return true;
    }
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    (void)::pthread_sigmask(SIG_SETMASK, &all, &before); // inherited: signals are the program's
    pthread_t thread;
    thread_runs = ::pthread_create(&thread, nullptr, &chaos_main, nullptr) == 0;
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (thread_runs) {
        (void)::pthread_detach(thread);
    }
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
    vcq.chaos_queue.reset(new (std::nothrow) ChaosQueue(mixed, chaos.freedoms));
    return vcq.chaos_queue != nullptr && start_thread();
}

bool refuse_chaos(Vcq& vcq) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    if (queue.busy_left == 0 && queue.dice.below(16) == 0) {
        queue.busy_left = 1 + queue.dice.below(3);
    }
    if (queue.busy_left == 0) {
        return false;
    }
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
    if (!queue.pending.back().held) {
        start_pending_chaos(vcq);
    }
    run_steps(vcq, queue.dice.below(4));
    while (queue.pending.size() > backlog && !queue.pending.front().held) {
        run_steps(vcq, 16);
    }
}

void start_pending_chaos(Vcq& vcq) noexcept
{
    for (Pending& p : vcq.chaos_queue->pending) {
        p.held = false;
    }
}

void stir_chaos(Vcq& vcq) noexcept
{
    run_steps(vcq, vcq.chaos_queue->dice.below(8));
}

bool hide_chaos(Vcq& vcq) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    if (!queue.may(chaos_poll)) {
        return false;
    }
    if (queue.blind_left == 0 && queue.dice.below(8) == 0) {
        queue.blind_left = 1 + queue.dice.below(32);
    }
    if (queue.blind_left == 0) {
        return false;
    }
    queue.blind_left--;
    return true;
}

void end_chaos(Vcq& vcq) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    if (queue.may(chaos_drop)) {
        run_steps(vcq, queue.dice.below(2) * queue.dice.below(64)); // as far as it has got
        queue.pending.clear();
        return;
    }
    start_pending_chaos(vcq);
    while (!vcq.chaos_queue->pending.empty()) {
        run_steps(vcq, 64);
    }
}

uint32_t settled_chaos(const Vcq& vcq) noexcept
{
    for (const Pending& p : vcq.chaos_queue->pending) {
        if (!p.tcq_written) {
            return p.position;
        }
    }
    return vcq.toq_tail;
}

void end_all_chaos() noexcept
{
    const timespec pause{0, 1'000'000};
    for (Vcq& vcq : vcq_table) {
        // Not for ever: exit may have been called from a signal handler inside a call that holds the lock.
        for (int attempt = 0; attempt < 500 && may_carry_on(vcq); attempt++) {
            if (vcq.lock.try_lock()) {
                if (may_carry_on(vcq)) {
                    end_chaos(vcq);
                }
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
    for (Vcq& vcq : vcq_table) {
        keep_reachable(vcq.chaos_queue.release()); // may have been in the middle of a change
    }
}

} // namespace tofu::sim
