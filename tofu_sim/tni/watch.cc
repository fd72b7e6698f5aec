// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: posts and polls of a VCQ that instruments watch (job/instruments.h): the one place where these are called.
// Called by: tni/. Calls: the instruments.
#include "tni/watch.h"

#include "job/instruments.h"
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
    vcq.watch.reset(new (std::nothrow) Watched);
    return vcq.watch != nullptr && vcq.watch->tcq.open(toq_entries) &&
           vcq.watch->local_notices.open(vcq.mrq_capacity);
}

namespace {

[[nodiscard]] bool traces() noexcept
{
    return (instruments & instrument_trace) != 0;
}

// Payload, or how many atomic operations; and what the trace wants to know besides.
[[nodiscard]] uint32_t traced_bytes(const Descriptor& d, bool failed) noexcept
{
    const bool atomic = d.op >= Op::armw4 && d.op <= Op::cswap8;
    return (atomic ? 1 : d.length) | (failed ? trace::flag_failed : 0) |
           ((d.flags & notice_remote) != 0 ? trace::flag_told : 0) |
           ((d.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0 ? trace::flag_strong : 0);
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

} // namespace

Watch watch_post(Vcq&, const Descriptor&, const Remote*) noexcept
{
    Watch watch;
    watch.began = watch_moment();
    return watch;
}

uint64_t watch_moment() noexcept
{
    return traces() ? trace::now() : 0;
}

void watch_posted(const Vcq& vcq, const Descriptor& d, const Watch& watch, const Done& outcome) noexcept
{
    if (!traces()) {
        return;
    }
    const bool late = outcome.arrived == 0;
    const uint64_t length = late ? 0 : outcome.arrived - watch.began;
    trace::Record record{};
    record.time = watch.began;
    // A path in the flags wins over that of the ID (guide 3.7.1).
    record.peer = d.path != 0 ? vcq_key(d.rmt_vcq_id) | uint64_t{d.path} << 28 : d.rmt_vcq_id;
    record.duration = static_cast<uint32_t>(std::min<uint64_t>(length, UINT32_MAX));
    record.arrival = late ? outcome.position : record.duration;
    record.bytes = traced_bytes(d, outcome.failed) | (late ? trace::flag_late : 0);
    record.vcq = static_cast<uint16_t>(vcq.index);
    record.type = trace::Type::post;
    record.what = static_cast<uint8_t>(d.op);
    trace::add(record);
}

void watch_arrival(const Vcq& vcq, const Descriptor& d, const Done& outcome) noexcept
{
    if (!traces()) {
        return;
    }
    trace::Record record = record_of(trace::Type::arrival, d.rmt_vcq_id, vcq.index, static_cast<uint8_t>(d.op));
    record.arrival = outcome.position;
    record.bytes = traced_bytes(d, outcome.failed);
    trace::add(record);
}

void watch_relay(uint32_t node, unsigned index, const Descriptor& d, bool failed) noexcept
{
    if (!traces()) {
        return;
    }
    trace::Record record = record_of(trace::Type::relay, d.rmt_vcq_id, index, static_cast<uint8_t>(d.op));
    record.duration = node;
    record.bytes = traced_bytes(d, failed);
    trace::add(record);
}

void watch_poll_tcq(Vcq& vcq, int result, const Stamp&) noexcept
{
    if (!traces()) {
        return;
    }
    if (result == UTOFU_ERR_NOT_FOUND) {
        trace::poll_in_vain();
    } else {
        trace::add(record_of(trace::Type::tcq, 0, vcq.index, 0));
    }
}

void watch_poll_mrq(Vcq& vcq, int result, const Stamp&, const utofu_mrq_notice& notice) noexcept
{
    if (!traces()) {
        return;
    }
    if (result == UTOFU_ERR_NOT_FOUND) {
        trace::poll_in_vain();
    } else {
        trace::add(record_of(trace::Type::notice, notice.vcq_id, vcq.index, notice.notice_type));
    }
}

void watch_vcq(const Vcq& vcq, bool opened) noexcept
{
    if (traces()) {
        trace::add(record_of(opened ? trace::Type::open_vcq : trace::Type::close_vcq, vcq.id, vcq.index, 0));
    }
}

} // namespace tofu::sim
