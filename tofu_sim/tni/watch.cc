// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posts and polls of a VCQ that instruments watch (job/instruments.h): the one place where these are called.
#include "tni/watch.h"

#include "clock/arrivals.h"
#include "clock/clock.h"
#include "job/instruments.h"
#include "tni/exact.h"
#include "tni/notices.h"
#include "topology/ids.h"
#include "trace/recorder.h"

#include <algorithm>
#include <new>

namespace tofu::sim {

void WatchedDeleter::operator()(Watched* watched) const noexcept
{
    watched->tcq.close();
    watched->local_notices.close();
    delete watched;
}

bool open_watch(Vcq& vcq) noexcept
{
    if (is_exact())
        open_exact();
    vcq.watch.reset(new (std::nothrow) Watched);
    return vcq.watch != nullptr && vcq.watch->tcq.open(toq_entries) && vcq.watch->local_notices.open(vcq.mrq_capacity);
}

namespace {

[[nodiscard]] bool traces() noexcept
{
    return (instruments & instrument_trace) != 0;
}

/// Payload, or how many atomic operations; and what the trace wants to know besides: what its poster finds of it.
[[nodiscard]] uint32_t traced_bytes(const Descriptor& d, Failure failure) noexcept
{
    const bool atomic = d.op >= Op::armw4 && d.op <= Op::cswap8;
    const bool tcq = (d.flags & notice_tcq) != 0 || failure == Failure::unsent;
    const bool mine = failure == Failure::none ? (d.flags & notice_local) != 0 : failure == Failure::later;
    return (atomic ? 1 : d.length) | (failure != Failure::none ? trace::flag_failed : 0) |
           ((d.flags & notice_remote) != 0 ? trace::flag_told : 0) |
           ((d.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0 ? trace::flag_strong : 0) | (tcq ? trace::flag_tcq : 0) |
           (mine ? trace::flag_mine : 0);
}

[[nodiscard]] trace::Record record_of(trace::Type type, uint64_t peer, unsigned vcq, uint8_t what) noexcept
{
    trace::Record record{};
    record.time = trace::now();
    record.peer = peer;
    record.vcq = static_cast<uint16_t>(vcq);
    record.type = type;
    record.what = what;
    return record;
}

/// A VCQ that an instruction leaves from or goes to.
struct Place {
    uint32_t node;
    uint8_t tni;
};

Place place_of(uint64_t vcq_id) noexcept
{
    return {Process::self().topology().node_of(decode_coords(vcq_id)), static_cast<uint8_t>(decode_tni(vcq_id))};
}

WatchedWay& find_way(Watched& watched, uint32_t from, uint32_t to, unsigned path) noexcept
{
    const uint64_t key = uint64_t{from} << 32 | uint64_t{to} << 4 | path; // a node has 18 bits
    const auto known = watched.ways.find(key);
    return known != watched.ways.end()
               ? known->second
               : watched.ways.emplace(key, WatchedWay{clock_network().way(from, path, to)}).first->second;
}

Transit::Kind kind_of(Op op) noexcept
{
    switch (op) {
    case Op::put: return Transit::Kind::put;
    case Op::put_piggyback: return Transit::Kind::piggyback;
    case Op::get: return Transit::Kind::get;
    case Op::armw4:
    case Op::armw8:
    case Op::cswap4:
    case Op::cswap8:
    case Op::nop: break;
    }
    return Transit::Kind::armw;
}

Times carry(Watched& watched, uint64_t from_id, const Descriptor& d, Picoseconds start) noexcept
{
    const Place from = place_of(from_id);
    const Place to = place_of(d.rmt_vcq_id);
    // A path in the flags wins over that of the ID (guide 3.7.1).
    const unsigned path = d.path != 0 ? d.path : static_cast<unsigned>(d.rmt_vcq_id >> 28 & 0xf);
    WatchedWay& way = find_way(watched, from.node, to.node, path);
    Times times = clock_network().carry(way.way, {kind_of(d.op), d.gap, d.mtu, d.length, from.tni, to.tni}, start);
    // With strong order, written after all that was posted before to that VCQ by that path (guide 2.2.10).
    if ((d.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0 && times.arrived < way.arrived) {
        const Picoseconds later = way.arrived - times.arrived;
        times.arrived += later;
        times.noted += later;
        times.told += later;
    }
    way.arrived = std::max(way.arrived, times.arrived);
    if (is_exact()) {
        times.noted = way.noted = std::max(way.noted, times.noted);
        times.told = way.told = std::max(way.told, times.told);
    }
    return times;
}

/// Before the bytes are written: a program may poll memory instead of waiting for a notice.
void note_arrival(AddressCache& addresses, const RemoteVcq& vcq, std::byte* segment, uint64_t stadd,
                  const Descriptor& d, const Times& times, uint32_t notice) noexcept
{
    uint64_t address = 0;
    const uint32_t length = is_put(d.op) || d.op == Op::get ? d.length : 8;
    const uint32_t registered = d.op == Op::armw4 || d.op == Op::cswap4 ? 4 : length;
    if (length != 0 && addresses.check(vcq, stadd, registered, Need::write, &address) == AccessStatus::ok)
        segment_arrivals(segment).note(address, registered, times.arrived, (d.flags & notice) != 0);
}

void note_arrival(Vcq& vcq, const RemoteVcq& source, const Descriptor& d, const Remote& to, const Times& times) noexcept
{
    if (d.op == Op::get)
        note_arrival(*vcq.addresses, source, Process::self().segment().base, d.lcl_stadd, d, times, notice_local);
    else
        note_arrival(*vcq.addresses, to.memory, to.peer->base, d.rmt_stadd, d, times, notice_remote);
}

} // namespace

Watch watch_post(Vcq& vcq, const Descriptor& d, const Remote* remote) noexcept
{
    Watch watch;
    watch.began = watch_moment();
    if (has_clock()) {
        ClockedCall call;
        watch.posted = clock_now();
        watch.began = watch.posted / 1000;
        watch.started = call.spend(figures::post_call);
        watch.times = {watch.started, watch.started, watch.started, watch.started};
        // One of session mode begins when a put starts it: watch_session.
        if (d.op != Op::nop && remote != nullptr && (vcq.special & Vcq::session) == 0) {
            watch.times = carry(*vcq.watch, vcq.id, d, watch.started);
            if (!is_exact()) // a reader of bytes has a clock of that time
                note_arrival(vcq, vcq.own_memory, d, *remote, watch.times);
        }
    }
    return watch;
}

Times watch_session(Vcq& poster, const Remote& from, const Descriptor& d, const Remote* to, Picoseconds start) noexcept
{
    if (!has_clock() || poster.watch == nullptr || to == nullptr)
        return {start, start, start, start};
    const Times times = carry(*poster.watch, from.key, d, start);
    if (!is_exact())
        note_arrival(poster, from.memory, d, *to, times);
    return times;
}

uint64_t watch_moment() noexcept
{
    return traces() ? trace::now() : 0;
}

void watch_posted(const Vcq& vcq, const Descriptor& d, const Watch& watch, const Done& outcome) noexcept
{
    if (!traces())
        return;
    // By the virtual clock a call is over long before what it posts arrives; in real time it carries it out.
    const auto since_then = [&](uint64_t time) {
        return static_cast<uint32_t>(std::min<uint64_t>(time - std::min(time, watch.began), UINT32_MAX));
    };
    const uint32_t call = since_then(has_clock()    ? watch.started / 1000
                                     : outcome.late ? trace::now()
                                                    : outcome.arrived);
    const uint32_t arrival = has_clock() ? since_then(watch.times.arrived / 1000) : call;
    trace::Record record{};
    record.time = watch.began;
    // A path in the flags wins over that of the ID (guide 3.7.1).
    record.peer = d.path != 0 ? vcq_key(d.rmt_vcq_id) | uint64_t{d.path} << 28 : d.rmt_vcq_id;
    record.duration = call;
    record.arrival = outcome.late ? outcome.position : arrival;
    record.bytes = traced_bytes(d, outcome.failure) | (outcome.late ? trace::flag_late : 0);
    record.vcq = static_cast<uint16_t>(vcq.index);
    record.type = trace::Type::post;
    record.what = static_cast<uint8_t>(d.op);
    trace::add(record);
}

void watch_arrival(const Vcq& vcq, const Descriptor& d, const Done& outcome) noexcept
{
    if (!traces())
        return;
    trace::Record record = record_of(trace::Type::arrival, d.rmt_vcq_id, vcq.index, static_cast<uint8_t>(d.op));
    record.arrival = outcome.position;
    record.bytes = traced_bytes(d, outcome.failure);
    trace::add(record);
}

void watch_relay(const Relayed& relayed, const Descriptor& d) noexcept
{
    if (!traces())
        return;
    trace::Record record = record_of(trace::Type::relay, d.rmt_vcq_id, relayed.index, static_cast<uint8_t>(d.op));
    record.time = has_clock() ? relayed.arrived / 1000 : record.time;
    record.duration = relayed.node;
    record.bytes = traced_bytes(d, relayed.failure);
    trace::add(record);
}

namespace {

void poll_in_vain() noexcept
{
    if (!is_exact()) // there the wait itself is recorded, which has an end (clock/clock)
        trace::poll_in_vain();
}

void move_clock(int result, const Stamp& stamp, bool hidden) noexcept
{
    if (has_clock()) {
        ClockedCall call;
        if (result == UTOFU_ERR_NOT_FOUND) {
            call.found_nothing();
            (void)call.spend(hidden ? figures::look_at_clock : 0); // time must advance for a program that only polls
        } else {
            if (traces() && stamp.time > clock_now())
                trace::begin_wait(trace::now());
            call.wait_until(stamp.time);
            (void)call.spend(figures::found);
        }
    }
}

} // namespace

void watch_poll_tcq(Vcq& vcq, int result, const Stamp& stamp, bool hidden) noexcept
{
    move_clock(result, stamp, hidden);
    if (!traces())
        return;
    if (result == UTOFU_ERR_NOT_FOUND)
        poll_in_vain();
    else
        trace::add(record_of(trace::Type::tcq, 0, vcq.index, 0));
}

void watch_poll_mrq(Vcq& vcq, int result, const Stamp& stamp, const utofu_mrq_notice& notice, bool hidden) noexcept
{
    move_clock(result, stamp, hidden);
    if (!traces())
        return;
    if (result == UTOFU_ERR_NOT_FOUND)
        poll_in_vain();
    else
        trace::add(record_of(trace::Type::notice, notice.vcq_id, vcq.index, notice.notice_type));
}

void watch_vcq(const Vcq& vcq, bool opened) noexcept
{
    if (traces())
        trace::add(record_of(opened ? trace::Type::open_vcq : trace::Type::close_vcq, vcq.id, vcq.index, 0));
}

} // namespace tofu::sim
