// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the adversarial mode (TOFU_SIM_CHAOS=seed): every freedom that guide 2.2.10 and 6.1.3.1 leave, used.
// Called by: tni/engine, tni/vcq. Calls: tni/remote, memory/.
#include "tni/chaos.h"

#include "tni/execute.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <deque>
#include <new>
#include <pthread.h>
#include <vector>

namespace tofu::sim {

namespace {

constexpr size_t line = 256;        // utofu_onesided_caps::cache_line_size
constexpr size_t page = 65536;      // of the system of the guide
constexpr unsigned max_pieces = 24; // of one transfer; longer ones move in runs of lines
constexpr size_t window = 24;       // instructions that may overtake each other
constexpr size_t backlog = 64;      // more than this does not pile up
constexpr long tick_ns = 100'000;   // of the thread that carries on while the program does nothing

// xorshift64*: small, and the same everywhere.
class Dice {
  public:
    explicit Dice(uint64_t seed) noexcept : state_((seed + 1) * 0x9e3779b97f4a7c15u | 1) {}
    uint32_t below(uint32_t limit) noexcept
    {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return static_cast<uint32_t>((state_ * 0x2545f4914f6cdd1du) >> 33) % limit;
    }

  private:
    uint64_t state_;
};

struct Piece {
    uint32_t offset;
    uint32_t length;
};

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
    std::vector<Piece> pieces; // still to move, from the back

    [[nodiscard]] bool failed() const noexcept
    {
        return tcq_error != UTOFU_SUCCESS || mrq_error != UTOFU_SUCCESS;
    }
    [[nodiscard]] bool finished() const noexcept
    {
        return data == Start::complete && tcq_written && remote_told && local_told;
    }
};

} // namespace

struct ChaosQueue {
    explicit ChaosQueue(uint64_t seed) noexcept : dice(seed) {}
    Dice dice;
    std::deque<Pending> pending; // in the order of posting
    uint32_t busy_left = 0;      // posts still refused
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

// The lines of the destination, shuffled; with strong order the last one comes last. What comes from two pages of the
// source makes two pieces of a line, of which strong order holds back the second (guide 6.1.3.1). `source`: address
// of the first byte in the process it is read from.
void cut(Pending& p, uint64_t source, Dice& dice) noexcept
{
    const uint64_t start = p.d.op == Op::get ? p.d.lcl_stadd : p.d.rmt_stadd;
    const uint64_t lines = ((start % line) + p.d.length + line - 1) / line;
    const uint64_t lines_per_piece = std::max<uint64_t>(1, lines / max_pieces);
    uint32_t offset = 0;
    while (offset < p.d.length) {
        const uint64_t at = start + offset;
        const uint64_t end = (at / line + (p.d.length - offset > lines_per_piece * line ? lines_per_piece : 1)) * line;
        auto length = static_cast<uint32_t>(std::min<uint64_t>(end - at, p.d.length - offset));
        const uint64_t in_page = page - (source + offset) % page;
        if (in_page < length && (at + in_page) % line != 0) {
            length = static_cast<uint32_t>(in_page);
        }
        p.pieces.push_back({offset, length});
        offset += length;
    }
    // Moved from the back: the last line first in the vector is the last to go.
    std::reverse(p.pieces.begin(), p.pieces.end());
    const bool strong = (p.d.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0;
    for (size_t i = p.pieces.size(); i > (strong ? 2u : 1u); i--) {
        const size_t low = strong ? 1 : 0;
        std::swap(p.pieces[i - 1], p.pieces[low + dice.below(static_cast<uint32_t>(i - low))]);
    }
}

// Both ends are checked when the transfer starts, as the first packet would find out.
void begin(Vcq& vcq, Pending& p, Dice& dice) noexcept
{
    p.data = Start::complete;
    if (p.d.op == Op::nop) {
        return;
    }
    AddressCache& addresses = *vcq.addresses;
    uint64_t source = 0; // a piggybacked put has no pages
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
    if (is_put(p.d.op) || p.d.op == Op::get) {
        const bool get = p.d.op == Op::get;
        p.mrq_error = remote_mrq_error(addresses.check(p.remote->memory, p.d.rmt_stadd, p.d.length,
                                                       get ? Need::read : Need::write,
                                                       get ? &source : nullptr));
        if (get && p.mrq_error == UTOFU_SUCCESS) {
            p.mrq_error =
                local_mrq_error(addresses.check(vcq.own_memory, p.d.lcl_stadd, p.d.length, Need::write));
        }
        if (p.mrq_error == UTOFU_SUCCESS && p.d.length != 0) {
            cut(p, source, dice);
            p.data = Start::moving;
        }
        return;
    }
    Execution e{vcq, p.d, p.remote};
    execute_armw(e);
    p.old_value = e.old_value;
    p.mrq_error = e.mrq_error;
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
    switch (p.d.op) {
    case Op::put: execute_put(e); break;
    case Op::put_piggyback:
        std::memmove(part.data, reinterpret_cast<const std::byte*>(p.d.data) + piece.offset, piece.length);
        execute_put_piggyback(e);
        break;
    case Op::get: execute_get(e); break;
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
    if (p.data == Start::moving) {
        move_piece(vcq, p);
        return true;
    }
    const bool strong = (p.d.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0;
    if (strong &&
        !all_before(queue, index, [](const Pending& q) { return q.data == Start::complete; })) {
        return false;
    }
    begin(vcq, p, queue.dice);
    return true;
}

bool step_tcq(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending& p = queue.pending[index];
    // Only a put reads memory before it is sent; errors are known once it has started.
    const bool sent = p.d.op == Op::put ? p.data == Start::complete : p.data != Start::not_yet;
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
        !p.remote->mrq.push(vcq.me, remote_entry(p.d, vcq.id))) {
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

bool open_chaos(Vcq& vcq, uint64_t seed) noexcept
{
    const uint64_t mixed = seed * 1'000'003 + Process::self().job().placement().rank * 1009 + vcq.index;
    vcq.chaos_queue.reset(new (std::nothrow) ChaosQueue(mixed));
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

void post_chaos(Vcq& vcq, const Descriptor& descriptor, Remote* remote, void* cbdata) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending p{};
    p.d = descriptor;
    p.cbdata = cbdata;
    p.remote = remote;
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

void drain_chaos(Vcq& vcq) noexcept
{
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

void drain_all_chaos() noexcept
{
    const timespec pause{0, 1'000'000};
    for (Vcq& vcq : vcq_table) {
        // Not for ever: exit may have been called from a signal handler inside a call that holds the lock.
        for (int attempt = 0; attempt < 500 && may_carry_on(vcq); attempt++) {
            if (vcq.lock.try_lock()) {
                if (may_carry_on(vcq)) {
                    drain_chaos(vcq);
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
