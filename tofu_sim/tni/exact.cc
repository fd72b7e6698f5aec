// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: what was posted waits until its time has come, and then takes effect step by step. See exact.h.
#include "tni/exact.h"

#include "clock/clock.h"
#include "tni/execute.h"
#include "tni/inbox.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tofu::sim {
namespace {

/// An entry of the target's inbox, as its poster knows it.
struct Sent {
    Inbox* inbox = nullptr; ///< null: the poster carries it out itself
    uint32_t process = 0;   ///< of the target
    uint32_t incarnation = 0;
    uint32_t index = 0;
    uint32_t serial = 0;
    uint64_t number = 0;
};

/// One instruction under way.
struct Flying {
    Descriptor d;
    Vcq* vcq;      ///< that has posted it, or whose post started it
    Remote* owner; ///< of session mode: the VCQ that it belongs to; else null
    void* cbdata;
    std::byte* bytes; ///< of a put or get, in between
    uint64_t number;  ///< of session mode
    Times times;
    Sent sent;
    uint64_t origin;
    uint64_t old_value;
    uint32_t position;
    uint32_t events; ///< that are still to come
    int tcq_error;
    int mrq_error;
};

enum class Step : uint8_t { send, read, take_effect, note, tell, confirm, chaos };

struct Event {
    Picoseconds when;
    uint64_t number;
    Flying* what;
    Vcq* vcq;
    Step step;

    /// For a heap with the earliest in front.
    [[nodiscard]] bool operator<(const Event& other) const noexcept
    {
        return when != other.when ? when > other.when : number > other.number;
    }
};

class EventHeap {
  public:
    [[nodiscard]] bool make_room() noexcept
    {
        if (room_ - count_ >= most_events_of_one)
            return true;
        const size_t room = std::max<size_t>(256, room_ * 2);
        auto* const heap = static_cast<Event*>(std::realloc(static_cast<void*>(heap_), room * sizeof(Event)));
        if (heap == nullptr)
            return false;
        heap_ = heap;
        room_ = room;
        return true;
    }
    void push(const Event& event) noexcept
    {
        heap_[count_++] = event;
        std::push_heap(heap_, heap_ + count_);
    }
    Event pop() noexcept
    {
        const Event event = heap_[0];
        std::pop_heap(heap_, heap_ + count_--);
        return event;
    }
    [[nodiscard]] Picoseconds due() const noexcept { return count_ != 0 ? heap_[0].when : never; }
    [[nodiscard]] size_t count() const noexcept { return count_; }
    [[nodiscard]] const Event& at(size_t i) const noexcept { return heap_[i]; }

  private:
    static constexpr size_t most_events_of_one = 8;

    Event* heap_ = nullptr;
    size_t count_ = 0;
    size_t room_ = 0;
};

/// What others can see is carried out when its time is the smallest in the job. What this process alone can see waits
/// until it has the turn: so no turn is needed for that. `silent`: nothing that a waiting thread is waiting for.
struct Events {
    EventHeap shared;
    EventHeap own;
    EventHeap silent;
    uint64_t numbers = 0;
    InboxKey current{};    ///< of the event that is being carried out
    bool toq_full = false; ///< a waiting thread may wait for room

    [[nodiscard]] bool make_room() noexcept { return shared.make_room() && own.make_room() && silent.make_room(); }
    [[nodiscard]] size_t count() const noexcept { return shared.count() + own.count() + silent.count(); }
};
Events events;

uint32_t own_rank() noexcept
{
    return Process::self().job().placement().rank;
}

EventHeap& heap_of(Step step, const Flying* what) noexcept
{
    if (what == nullptr || what->owner != nullptr)
        return events.shared;
    switch (step) {
    case Step::send:
        return what->tcq_error != UTOFU_SUCCESS || (what->d.flags & notice_tcq) != 0 ? events.own : events.silent;
    case Step::tell: return events.own;
    case Step::confirm: return (what->d.flags & notice_local) != 0 ? events.own : events.silent;
    case Step::read:
    case Step::take_effect:
    case Step::note:
    case Step::chaos: break;
    }
    return events.shared;
}

/// There is room.
void add(Picoseconds when, Step step, Flying* what, Vcq* vcq) noexcept
{
    EventHeap& heap = heap_of(step, what);
    heap.push({when, events.numbers++, what, vcq, step});
    if (&heap != &events.shared)
        expect_own(when);
    if (what != nullptr)
        what->events++;
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

/// The owner of the originating memory and queues.
const RemoteVcq& source_of(const Flying& f) noexcept
{
    return f.owner != nullptr ? f.owner->memory : f.vcq->own_memory;
}
uint64_t origin_vcq(const Flying& f) noexcept
{
    return f.owner != nullptr ? with_default_path(f.owner->key) : f.vcq->id;
}

/// Something is there for this process; `waited`: its thread has been idle until then, and continues anyhow.
void arrived_here(Picoseconds when, bool waited) noexcept
{
    if (!waited)
        wake_actor(self(), when);
}

/// What a put writes, read now, to `room` or to memory of its own. False: no memory. An error of the source is one of
/// the instruction.
[[nodiscard]] bool read_source(Flying& f, std::byte* room) noexcept
{
    if (f.d.op != Op::put || f.d.length == 0) {
        if (f.d.op == Op::put)
            f.tcq_error = local_tcq_error(f.vcq->addresses->check(source_of(f), f.d.lcl_stadd, 0, Need::read));
        return true;
    }
    AddressCache& addresses = *f.vcq->addresses;
    f.tcq_error = local_tcq_error(addresses.check(source_of(f), f.d.lcl_stadd, f.d.length, Need::read));
    if (f.tcq_error != UTOFU_SUCCESS)
        return true;
    if (room == nullptr)
        room = f.bytes = static_cast<std::byte*>(std::malloc(f.d.length));
    if (room == nullptr)
        return false;
    f.tcq_error = local_tcq_error(addresses.get(source_of(f), f.d.lcl_stadd, room, f.d.length, CopyOrder::relaxed));
    return true;
}

/// Before an event of ours accesses memory or queues there.
void bring_up_to_now(const Remote& remote, Vcq& poster) noexcept
{
    bring_up_to({segment_inbox(remote.peer->base), remote.peer->process, &poster}, events.current);
}

/// Fills a free entry of the target's inbox; its bytes are there. The caller adds it.
void fill_entry(InboxEntry& e, const Flying& f, InboxStage stage, uint64_t number) noexcept
{
    e.key = {stage == InboxStage::write ? f.times.arrived : f.times.noted, own_rank(), number};
    e.stage = stage;
    e.poster = self();
    e.error = UTOFU_SUCCESS;
    e.noted = f.times.noted;
    e.told = f.times.told;
    e.vcq_id = origin_vcq(f);
    e.origin = f.origin;
    e.d = f.d;
}

// ---- The steps ----

void send(Flying& f, Picoseconds when, bool waited) noexcept
{
    Vcq& vcq = *f.vcq;
    if (f.owner != nullptr) {
        SessionControl& control = vcq_control(f.owner->peer->vcq_region(f.owner->index)).session;
        session_slots(f.owner->peer->vcq_region(f.owner->index))[f.number % toq_entries].result = f.tcq_error;
        // The next one may be there already: its poster's event has the same time, and a smaller rank.
        control.done.store_release(std::max(control.done.load_relaxed(), f.number + 1));
        wake_actor(f.owner->peer->process, when);
        return;
    }
    const bool was_full = toq_entries == vcq.toq_tail - vcq.toq_head;
    events.toq_full = false;
    vcq.watch->sent = f.position + 1;
    if (f.tcq_error != UTOFU_SUCCESS || (f.d.flags & notice_tcq) != 0) {
        vcq.tcq.push({f.cbdata, f.position, f.tcq_error});
        stamp_tcq(vcq, {when, f.origin});
        arrived_here(when, waited);
    } else if (was_full) {
        arrived_here(when, waited);
    }
}

void read_there(Flying& f) noexcept
{
    Remote* const remote = target_of(f.d);
    if (remote == nullptr) {
        f.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    bring_up_to_now(*remote, *f.vcq);
    AddressCache& addresses = *f.vcq->addresses;
    f.mrq_error = remote_mrq_error(addresses.check(remote->memory, f.d.rmt_stadd, f.d.length, Need::read));
    if (f.mrq_error != UTOFU_SUCCESS || f.d.length == 0)
        return;
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
    if (f.mrq_error != UTOFU_SUCCESS)
        return;
    bring_up_to({own_inbox(), self()}, events.current);
    AddressCache& addresses = *f.vcq->addresses;
    AccessStatus status = addresses.check(f.vcq->own_memory, f.d.lcl_stadd, f.d.length, Need::write);
    if (status == AccessStatus::ok && f.d.length != 0)
        status = addresses.put(f.vcq->own_memory, f.d.lcl_stadd, f.bytes, f.d.length, CopyOrder::last_line);
    f.mrq_error = local_mrq_error(status);
    const bool notices = (f.d.flags & notice_local) != 0;
    notices ? touch_actor(self(), when) : wake_actor(self(), when);
}

void put_there(Flying& f, const Remote& remote) noexcept
{
    const std::byte* const bytes = f.d.op == Op::put ? f.bytes : reinterpret_cast<const std::byte*>(f.d.data);
    AddressCache& addresses = *f.vcq->addresses;
    AccessStatus status = addresses.check(remote.memory, f.d.rmt_stadd, f.d.length, Need::write);
    if (status == AccessStatus::ok && f.d.length != 0)
        status = addresses.put(remote.memory, f.d.rmt_stadd, bytes, f.d.length, CopyOrder::last_line);
    f.mrq_error = remote_mrq_error(status);
}

/// The remote notice: by the target's inbox, or as an event of ours where that is full.
void notice_later(Flying& f, const Remote& remote) noexcept
{
    Inbox& inbox = segment_inbox(remote.peer->base);
    uint32_t index = 0;
    InboxEntry* const e = inbox.allocate(index);
    if (e == nullptr) {
        add(f.times.noted, Step::note, &f, f.vcq); // there is room: this event's place is free
        return;
    }
    fill_entry(*e, f, InboxStage::notice, events.numbers++);
    add_entry(remote, inbox, index);
}

void take_effect_there(Flying& f, Picoseconds when) noexcept
{
    Remote* const remote = target_of(f.d);
    if (remote == nullptr) {
        f.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    bring_up_to_now(*remote, *f.vcq);
    if (is_put(f.d.op)) {
        put_there(f, *remote);
    } else {
        Execution e{*f.vcq, f.d, remote};
        execute_armw(e);
        f.old_value = e.old_value;
        f.mrq_error = e.mrq_error;
    }
    if (f.mrq_error != UTOFU_SUCCESS)
        return;
    if ((f.d.flags & notice_remote) != 0) {
        touch_actor(remote->peer->process, when);
        notice_later(f, *remote);
    } else {
        wake_actor(remote->peer->process, when);
    }
    if (f.d.sps != 0 && f.d.op == Op::put && remote->session)
        start_session(*f.vcq, *remote, f.d.sps, when);
}

void take_effect(Flying& f, Picoseconds when) noexcept
{
    f.d.op == Op::get ? write_here(f, when) : take_effect_there(f, when);
    if (f.mrq_error != UTOFU_SUCCESS && (f.d.flags & notice_local) == 0)
        add(std::max(when, f.times.told), Step::tell, &f, f.vcq);
    if (f.mrq_error == UTOFU_SUCCESS && f.d.op == Op::get && (f.d.flags & notice_remote) != 0) {
        if (Remote* const remote = target_of(f.d))
            notice_later(f, *remote);
    }
}

void note(Flying& f, Picoseconds when) noexcept
{
    Remote* const remote = f.mrq_error == UTOFU_SUCCESS ? target_of(f.d) : nullptr;
    if (remote == nullptr)
        return;
    bring_up_to_now(*remote, *f.vcq);
    if (!remote->mrq.push(f.vcq->me, remote_entry(f.d, origin_vcq(f)), {when, f.origin}))
        report_remote_overflow(*remote);
    wake_actor(remote->peer->process, when);
}

void tell(Flying& f, Picoseconds when, bool waited) noexcept
{
    if (f.owner != nullptr) {
        if (f.owner->alive() && !f.owner->mrq.push(f.vcq->me, local_entry(f.d, 0, f.mrq_error), {when, f.origin}))
            report_remote_overflow(*f.owner);
        wake_actor(f.owner->peer->process, when);
        return;
    }
    if (f.vcq->local_notices.full()) {
        end_by_own_overflow(*f.vcq);
    } else {
        f.vcq->local_notices.push({local_entry(f.d, f.old_value, f.mrq_error)});
        stamp_local(*f.vcq, {when, f.origin});
    }
    arrived_here(when, waited);
}

/// What has become of an entry of the target's inbox.
void confirm(Flying& f, Picoseconds when, bool waited) noexcept
{
    const Sent& sent = f.sent;
    if (!has_departed(sent.process, sent.incarnation))
        bring_up_to({*sent.inbox, sent.process, f.vcq}, {f.times.arrived, own_rank(), sent.number + 1});
    const InboxEntry& e = sent.inbox->entry(sent.index); // its pages stay, also those of a process that has ended
    if (e.serial == sent.serial && e.stage == InboxStage::failed) {
        f.mrq_error = e.error;
        sent.inbox->free(sent.index);
    } else if (e.serial == sent.serial && e.stage == InboxStage::write) {
        f.mrq_error = UTOFU_ERR_MRQ_PEER; // the target has left before its arrival
    }
    if (f.mrq_error != UTOFU_SUCCESS || (f.d.flags & notice_local) != 0)
        tell(f, when, waited);
}

void carry_out_one(const Event& event, bool waited) noexcept
{
    Flying& f = *event.what;
    switch (event.step) {
    case Step::send: send(f, event.when, waited); break;
    case Step::read: read_there(f); break;
    case Step::take_effect: take_effect(f, event.when); break;
    case Step::note: note(f, event.when); break;
    case Step::tell: tell(f, event.when, waited); break;
    case Step::confirm: confirm(f, event.when, waited); break;
    case Step::chaos: break;
    }
    if (--f.events == 0)
        release(&f);
}

/// What others can see.
Picoseconds carry_out(Picoseconds until) noexcept
{
    while (events.shared.due() <= until && events.shared.count() != 0) {
        const Event event = events.shared.pop();
        events.current = {event.when, own_rank(), event.number};
        if (event.step == Step::chaos) {
            event.vcq->watch->ticks = false;
            carry_on_chaos(*event.vcq, event.when);
        } else {
            (void)
                events.make_room(); // for what one step adds: at most one for each that it takes away, and a session's
            carry_out_one(event, false);
        }
    }
    return events.shared.due();
}

/// What this process alone can see, and what has arrived here.
Picoseconds receive(Picoseconds until, bool waited) noexcept
{
    Inbox& inbox = own_inbox();
    bool any = false;
    for (;;) {
        EventHeap& heap = events.own.due() <= events.silent.due() ? events.own : events.silent;
        const Picoseconds arrives = inbox.due();
        const Picoseconds next = std::min(heap.due(), arrives);
        if (next > until || next == never) {
            if (any)
                set_due(self(), arrives);
            return next;
        }
        if (arrives <= heap.due()) {
            carry_out_first({inbox, self(), nullptr, waited});
            any = true;
        } else {
            carry_out_one(heap.pop(), waited);
        }
    }
}

void empty_inbox(Picoseconds until) noexcept
{
    bring_up_to({own_inbox(), self()}, {until, UINT32_MAX, UINT64_MAX});
}

/// When a waiting thread finds something.
Picoseconds next_arrival() noexcept
{
    Picoseconds next = std::min(events.own.due(), events.toq_full ? events.silent.due() : never);
    Inbox& inbox = own_inbox();
    for (uint32_t i = 0; i < inbox.count(); i++) {
        const InboxEntry& e = inbox.entry(inbox.index_at(i));
        if (e.key.when >= next)
            break;
        const bool notices = e.stage == InboxStage::write && (e.d.flags & notice_remote) != 0;
        next = std::min(next, notices ? std::max(e.noted, e.key.when) : e.key.when);
    }
    return next;
}

/// All events of an instruction whose times are known.
void schedule(Flying& f) noexcept
{
    const Times& t = f.times;
    add(t.sent, Step::send, &f, f.vcq);
    if (f.tcq_error != UTOFU_SUCCESS || f.d.op == Op::nop)
        return;
    if (f.sent.inbox != nullptr) {
        add(std::max(t.told, t.arrived), Step::confirm, &f, f.vcq);
        return;
    }
    if (f.d.op == Op::get)
        add(t.there, Step::read, &f, f.vcq);
    add(t.arrived, Step::take_effect, &f, f.vcq);
    if ((f.d.flags & notice_local) != 0)
        add(t.told, Step::tell, &f, f.vcq);
}

/// A put that needs no event of its poster at the target.
bool fits_inbox(const Descriptor& d, const Remote* remote) noexcept
{
    return remote != nullptr && is_put(d.op) && d.sps == 0 && d.length <= InboxEntry::room;
}

/// By the target's inbox if it fits and there is room; else as events of ours. False: no memory.
[[nodiscard]] bool begin(Flying& f, const Remote* remote) noexcept
{
    Inbox* const inbox = fits_inbox(f.d, remote) ? &segment_inbox(remote->peer->base) : nullptr;
    uint32_t index = 0;
    InboxEntry* const e = inbox != nullptr ? inbox->allocate(index) : nullptr;
    if (!read_source(f, e != nullptr ? e->bytes : nullptr))
        return false; // for want of memory of its own: it has no entry
    if (e != nullptr && f.tcq_error != UTOFU_SUCCESS) {
        inbox->free(index);
    } else if (e != nullptr) {
        f.sent = {inbox, remote->peer->process, remote->peer->incarnation, index, e->serial, events.numbers++};
        fill_entry(*e, f, InboxStage::write, f.sent.number);
        add_entry(*remote, *inbox, index);
    }
    return true;
}

} // namespace

void open_exact() noexcept
{
    set_schedule_host({carry_out, receive, next_arrival, empty_inbox});
}

int post_exact(Vcq& vcq, const Descriptor& d, Remote* remote, void* cbdata, Watch& watch) noexcept
{
    auto* const f = new (std::nothrow) Flying{};
    if (f == nullptr || !events.make_room()) {
        delete f;
        return UTOFU_ERR_BUSY;
    }
    f->d = d;
    f->vcq = &vcq;
    f->cbdata = cbdata;
    f->times = watch.times;
    f->origin = watch.origin;
    if (!begin(*f, remote)) {
        release(f);
        return UTOFU_ERR_BUSY;
    }
    watch.unsent = f->tcq_error != UTOFU_SUCCESS;
    // Entries of a TCQ come in the order of posting.
    f->times.sent = vcq.watch->last_sent = std::max(vcq.watch->last_sent, f->times.sent);
    f->position = vcq.toq_tail++;
    events.toq_full = events.toq_full || vcq.toq_tail - vcq.toq_head == toq_entries;
    schedule(*f);
    set_next_event(events.shared.due());
    count(flow_of(vcq, remote, d), d.op, d.length);
    return UTOFU_SUCCESS;
}

bool relay_exact(const SessionPut& put) noexcept
{
    auto* const f = new (std::nothrow) Flying{};
    if (f == nullptr || !events.make_room()) {
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
    if (f->tcq_error == UTOFU_SUCCESS) {
        bring_up_to_now(put.owner, put.poster);
        if (!read_source(*f, nullptr)) {
            release(f);
            return false;
        }
    }
    schedule(*f);
    set_next_event(events.shared.due());
    return true;
}

void tick_exact(Vcq& vcq, Picoseconds when) noexcept
{
    if (!vcq.watch->ticks && events.make_room()) {
        vcq.watch->ticks = true;
        add(when, Step::chaos, nullptr, &vcq);
        set_next_event(events.shared.due());
    }
}

uint32_t settled_exact(const Vcq& vcq) noexcept
{
    return vcq.watch->sent;
}

void drain_exact(const Vcq* vcq) noexcept
{
    // How a process ends is a matter of its launcher: without anything under way it takes no turn for it.
    while (vcq != nullptr || events.count() != 0) {
        TurnedCall call(TurnedCall::Kind::acts); // each time anew: a wait may end without the turn
        Picoseconds last = 0;
        for (const EventHeap* const heap : {&events.shared, &events.own, &events.silent}) {
            for (size_t i = 0; i < heap->count(); i++) {
                const Event& event = heap->at(i);
                last = vcq == nullptr || event.vcq == vcq ? std::max(last, event.when) : last;
            }
        }
        if (last == 0 || call.is_refused())
            return;
        (void)call.wait_until(last + 1);
    }
}

void forget_exact_in_child() noexcept
{
    events = Events{}; // what it consists of was the parent's
}

} // namespace tofu::sim
