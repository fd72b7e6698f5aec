// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode: what was posted waits until its time has come, and then takes effect step by step. See exact.h.
#include "tni/exact.h"

#include "clock/clock.h"
#include "tni/execute.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tofu::sim {
namespace {

// One instruction under way.
struct Flying {
    Descriptor d;
    Vcq* vcq;         // that has posted it, or whose post started it
    Remote* owner;    // of session mode: the VCQ that it belongs to; else null
    void* cbdata;
    std::byte* bytes; // of a put or get, in between
    uint64_t number;  // of session mode
    Times times;
    uint64_t origin;
    uint64_t old_value;
    uint32_t position;
    uint32_t events; // that are still to come
    int tcq_error;
    int mrq_error;
};

enum class Step : uint8_t { send, read, take_effect, note, tell, chaos };

struct Event {
    Picoseconds when;
    uint64_t number;
    Flying* what;
    Vcq* vcq;
    Step step;

    // For a heap with the earliest in front.
    [[nodiscard]] bool operator<(const Event& other) const noexcept
    {
        return when != other.when ? when > other.when : number > other.number;
    }
};

struct Events {
    Event* heap = nullptr;
    size_t count = 0;
    size_t room = 0;
    uint64_t numbers = 0;
};
Events events;

constexpr size_t most_events_of_one = 8;

[[nodiscard]] bool make_room() noexcept
{
    if (events.room - events.count >= most_events_of_one) {
        return true;
    }
    const size_t room = std::max<size_t>(256, events.room * 2);
    auto* const heap = static_cast<Event*>(std::realloc(static_cast<void*>(events.heap), room * sizeof(Event)));
    if (heap == nullptr) {
        return false;
    }
    events.heap = heap;
    events.room = room;
    return true;
}

// There is room.
void add(Picoseconds when, Step step, Flying* what, Vcq* vcq) noexcept
{
    events.heap[events.count++] = {when, events.numbers++, what, vcq, step};
    std::push_heap(events.heap, events.heap + events.count);
    if (what != nullptr) {
        what->events++;
    }
}

Picoseconds next_event() noexcept
{
    return events.count != 0 ? events.heap[0].when : never;
}

void release(Flying* flying) noexcept
{
    std::free(flying->bytes);
    delete flying;
}

uint32_t self() noexcept
{
    return Process::self().job().process();
}

// The VCQ that it goes to, now.
Remote* target_of(const Descriptor& d) noexcept
{
    Remote* remote = nullptr;
    return find_remote(d.rmt_vcq_id, remote) == RemoteStatus::found ? remote : nullptr;
}

// The owner of the originating memory and queues.
const RemoteVcq& source_of(const Flying& f) noexcept
{
    return f.owner != nullptr ? f.owner->memory : f.vcq->own_memory;
}
uint32_t origin_process(const Flying& f) noexcept
{
    return f.owner != nullptr ? f.owner->peer->process : self();
}

// What a put writes, read now. False: no memory. An error of the source is one of the instruction.
[[nodiscard]] bool read_source(Flying& f) noexcept
{
    if (f.d.op != Op::put || f.d.length == 0) {
        if (f.d.op == Op::put) {
            f.tcq_error = local_tcq_error(f.vcq->addresses->check(source_of(f), f.d.lcl_stadd, 0, Need::read));
        }
        return true;
    }
    AddressCache& addresses = *f.vcq->addresses;
    f.tcq_error = local_tcq_error(addresses.check(source_of(f), f.d.lcl_stadd, f.d.length, Need::read));
    if (f.tcq_error != UTOFU_SUCCESS) {
        return true;
    }
    f.bytes = static_cast<std::byte*>(std::malloc(f.d.length));
    if (f.bytes == nullptr) {
        return false;
    }
    f.tcq_error =
        local_tcq_error(addresses.get(source_of(f), f.d.lcl_stadd, f.bytes, f.d.length, CopyOrder::relaxed));
    return true;
}

// ---- The steps ----

void send(Flying& f, Picoseconds when) noexcept
{
    Vcq& vcq = *f.vcq;
    if (f.owner != nullptr) {
        SessionControl& control = vcq_control(f.owner->peer->vcq_region(f.owner->index)).session;
        session_slots(f.owner->peer->vcq_region(f.owner->index))[f.number % toq_entries].result = f.tcq_error;
        control.done.store_release(f.number + 1);
        wake_actor(f.owner->peer->process, when);
        return;
    }
    const bool was_full = toq_entries == vcq.toq_tail - vcq.toq_head;
    vcq.watch->sent = f.position + 1;
    if (f.tcq_error != UTOFU_SUCCESS || (f.d.flags & notice_tcq) != 0) {
        vcq.tcq.push({f.cbdata, f.position, f.tcq_error});
        stamp_tcq(vcq, {when, f.origin});
        wake_actor(self(), when);
    } else if (was_full) {
        wake_actor(self(), when);
    }
}

void read_there(Flying& f) noexcept
{
    Remote* const remote = target_of(f.d);
    if (remote == nullptr) {
        f.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    AddressCache& addresses = *f.vcq->addresses;
    f.mrq_error = remote_mrq_error(addresses.check(remote->memory, f.d.rmt_stadd, f.d.length, Need::read));
    if (f.mrq_error != UTOFU_SUCCESS || f.d.length == 0) {
        return;
    }
    f.bytes = static_cast<std::byte*>(std::malloc(f.d.length));
    if (f.bytes == nullptr) {
        f.mrq_error = UTOFU_ERR_MRQ_OTHER;
        return;
    }
    f.mrq_error =
        remote_mrq_error(addresses.get(remote->memory, f.d.rmt_stadd, f.bytes, f.d.length, CopyOrder::relaxed));
}

void write_here(Flying& f, Picoseconds when) noexcept
{
    if (f.mrq_error == UTOFU_SUCCESS) {
        AddressCache& addresses = *f.vcq->addresses;
        AccessStatus status = addresses.check(f.vcq->own_memory, f.d.lcl_stadd, f.d.length, Need::write);
        if (status == AccessStatus::ok && f.d.length != 0) {
            status = addresses.put(f.vcq->own_memory, f.d.lcl_stadd, f.bytes, f.d.length, CopyOrder::last_line);
        }
        f.mrq_error = local_mrq_error(status);
        wake_actor(self(), when);
    }
}

void take_effect_there(Flying& f, Picoseconds when) noexcept
{
    Remote* const remote = target_of(f.d);
    if (remote == nullptr) {
        f.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    if (is_put(f.d.op)) {
        const std::byte* const bytes =
            f.d.op == Op::put ? f.bytes : reinterpret_cast<const std::byte*>(f.d.data);
        AddressCache& addresses = *f.vcq->addresses;
        AccessStatus status = addresses.check(remote->memory, f.d.rmt_stadd, f.d.length, Need::write);
        if (status == AccessStatus::ok && f.d.length != 0) {
            status = addresses.put(remote->memory, f.d.rmt_stadd, bytes, f.d.length, CopyOrder::last_line);
        }
        f.mrq_error = remote_mrq_error(status);
    } else {
        Execution e{*f.vcq, f.d, remote};
        execute_armw(e);
        f.old_value = e.old_value;
        f.mrq_error = e.mrq_error;
    }
    if (f.mrq_error == UTOFU_SUCCESS) {
        wake_actor(remote->peer->process, when);
        if (f.d.sps != 0 && f.d.op == Op::put && remote->session) {
            start_session(*f.vcq, *remote, f.d.sps, when);
        }
    }
}

void take_effect(Flying& f, Picoseconds when) noexcept
{
    f.d.op == Op::get ? write_here(f, when) : take_effect_there(f, when);
    if (f.mrq_error != UTOFU_SUCCESS && (f.d.flags & notice_local) == 0) {
        add(std::max(when, f.times.told), Step::tell, &f, f.vcq); // there is room: this event's place is free
    }
}

void note(Flying& f, Picoseconds when) noexcept
{
    Remote* const remote = f.mrq_error == UTOFU_SUCCESS ? target_of(f.d) : nullptr;
    if (remote == nullptr) {
        return;
    }
    const uint64_t origin = f.owner != nullptr ? with_default_path(f.owner->key) : f.vcq->id;
    if (!remote->mrq.push(f.vcq->me, remote_entry(f.d, origin), {when, f.origin})) {
        report_remote_overflow(*remote);
    }
    wake_actor(remote->peer->process, when);
}

void tell(Flying& f, Picoseconds when) noexcept
{
    if (f.owner != nullptr) {
        if (f.owner->alive() && !f.owner->mrq.push(f.vcq->me, local_entry(f.d, 0, f.mrq_error), {when, f.origin})) {
            report_remote_overflow(*f.owner);
        }
    } else if (f.vcq->local_notices.full()) {
        end_by_own_overflow(*f.vcq);
    } else {
        f.vcq->local_notices.push({local_entry(f.d, f.old_value, f.mrq_error)});
        stamp_local(*f.vcq, {when, f.origin});
    }
    wake_actor(origin_process(f), when);
}

void carry_out_one(const Event& event) noexcept
{
    Flying& f = *event.what;
    switch (event.step) {
    case Step::send: send(f, event.when); break;
    case Step::read: read_there(f); break;
    case Step::take_effect: take_effect(f, event.when); break;
    case Step::note: note(f, event.when); break;
    case Step::tell: tell(f, event.when); break;
    case Step::chaos: break;
    }
    if (--f.events == 0) {
        release(&f);
    }
}

Picoseconds carry_out(Picoseconds until) noexcept
{
    while (events.count != 0 && events.heap[0].when <= until) {
        const Event event = events.heap[0];
        std::pop_heap(events.heap, events.heap + events.count--);
        if (event.step == Step::chaos) {
            event.vcq->watch->ticks = false;
            carry_on_chaos(*event.vcq, event.when);
        } else {
            (void)make_room(); // for what one step adds: at most one for each that it takes away, and a session's
            carry_out_one(event);
        }
    }
    return next_event();
}

// All events of an instruction whose times are known.
void schedule(Flying& f) noexcept
{
    const Times& t = f.times;
    add(t.sent, Step::send, &f, f.vcq);
    if (f.tcq_error != UTOFU_SUCCESS || f.d.op == Op::nop) {
        return;
    }
    if (f.d.op == Op::get) {
        add(t.there, Step::read, &f, f.vcq);
    }
    add(t.arrived, Step::take_effect, &f, f.vcq);
    if ((f.d.flags & notice_remote) != 0) {
        add(t.noted, Step::note, &f, f.vcq);
    }
    if ((f.d.flags & notice_local) != 0) {
        add(t.told, Step::tell, &f, f.vcq);
    }
}

} // namespace

void open_exact() noexcept
{
    set_schedule_host({carry_out});
}

int post_exact(Vcq& vcq, const Descriptor& d, Remote* remote, void* cbdata, Watch& watch) noexcept
{
    auto* const f = new (std::nothrow) Flying{};
    if (f == nullptr || !make_room()) {
        delete f;
        return UTOFU_ERR_BUSY;
    }
    f->d = d;
    f->vcq = &vcq;
    f->cbdata = cbdata;
    f->times = watch.times;
    f->origin = watch.origin;
    if (!read_source(*f)) {
        release(f);
        return UTOFU_ERR_BUSY;
    }
    // Entries of a TCQ come in the order of posting.
    f->times.sent = vcq.watch->last_sent = std::max(vcq.watch->last_sent, f->times.sent);
    f->position = vcq.toq_tail++;
    schedule(*f);
    set_next_event(next_event());
    count(flow_of(vcq, remote, d), d.op, d.length);
    return UTOFU_SUCCESS;
}

bool relay_exact(const SessionPut& put) noexcept
{
    auto* const f = new (std::nothrow) Flying{};
    if (f == nullptr || !make_room()) {
        delete f;
        return false;
    }
    f->d = put.descriptor;
    f->vcq = &put.poster;
    f->owner = &put.owner;
    f->times = put.times;
    f->origin = put.origin;
    f->number = put.number;
    f->tcq_error = put.error;
    if (f->tcq_error == UTOFU_SUCCESS && !read_source(*f)) {
        release(f);
        return false;
    }
    schedule(*f);
    set_next_event(next_event());
    return true;
}

void tick_exact(Vcq& vcq, Picoseconds when) noexcept
{
    if (!vcq.watch->ticks && make_room()) {
        vcq.watch->ticks = true;
        add(when, Step::chaos, nullptr, &vcq);
        set_next_event(next_event());
    }
}

uint32_t settled_exact(const Vcq& vcq) noexcept
{
    return vcq.watch->sent;
}

void drain_exact(const Vcq* vcq) noexcept
{
    // How a process ends is a matter of its launcher: without anything under way it takes no turn for it.
    while (vcq != nullptr || events.count != 0) {
        TurnedCall call(TurnedCall::Kind::acts); // each time anew: a wait may end without the turn
        Picoseconds last = 0;
        for (size_t i = 0; i < events.count; i++) {
            const Event& event = events.heap[i];
            last = vcq == nullptr || event.vcq == vcq ? std::max(last, event.when) : last;
        }
        if (last == 0 || call.is_refused()) {
            return;
        }
        (void)call.wait_until(last + 1);
    }
}

void forget_exact_in_child() noexcept
{
    events = Events{}; // what it consists of was the parent's
}

} // namespace tofu::sim
