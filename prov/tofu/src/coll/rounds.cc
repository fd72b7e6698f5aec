// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See rounds.h.
#include "coll/rounds.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <rdma/fi_errno.h>

namespace tofu::coll {

namespace {
using enum Outcome::Kind;
constexpr unsigned rounds_per_look = 8;     // rounds in vain between two looks at everybody's words
constexpr unsigned rounds_per_clock = 1024; // and between two looks at the clock
constexpr std::uint64_t probe_after_ms = 10;
constexpr unsigned probes_overtaken = 100; // that a round of gates has to end which a neighbour is done with
} // namespace

Outcome Rounds::wait(const CollectiveOp& op, unsigned per_look) noexcept
{
    if (++in_vain_ % per_look == 0)
        if (const Outcome out = ask_all(op); out.kind != waits)
            return out;
    if (in_vain_ % rounds_per_clock != 0)
        return {waits};
    const std::uint64_t time = clock_ms();
    if (time < probed_ + probe_after_ms)
        return {waits};
    probed_ = time;
    const std::uint32_t now = lanes_.now();
    lanes_.probe(op.signature);
    if (now != lanes_.now())
        return {goes_on};
    if (op.native.rounds != 0 && (overtaken_ = overtaken() ? overtaken_ + 1 : 0) == probes_overtaken)
        return mismatch;
    return {waits};
}

/// What the neighbour sends or waits in contradicts what we have called.
bool Rounds::contradicts(const CollectiveOp& op, Lane& lane) noexcept
{
    const std::uint64_t other = lanes_.area(lane).awaited();
    const std::uint32_t now = lanes_.now();
    Tail tail;
    return (op_of(other) == now && other != 0 && static_cast<std::uint32_t>(other) != op.signature) ||
           (lanes_.head(lane, tail) == Lanes::Head::there && tail.op == now && tail.signature != op.signature);
}

/// A neighbour is done with the operation: it has ended for all, or has failed there without our hearing of it.
bool Rounds::overtaken() const noexcept
{
    return std::ranges::any_of(lanes_.all(), [&](const Lane& lane) {
        const std::uint64_t at = lanes_.area(lane).awaited();
        return lanes_.passed_by(lane) || (at != 0 && static_cast<std::int32_t>(op_of(at) - lanes_.now()) > 0);
    });
}

/// Looks at what all neighbours say and send.
Outcome Rounds::ask_all(const CollectiveOp& op) noexcept
{
    const std::uint32_t now = lanes_.now();
    for (Lane& lane : lanes_.all()) {
        const std::uint64_t word = lanes_.area(lane).said();
        const auto ahead = static_cast<std::int32_t>(op_of(word) - now);
        switch (kind_of(word)) {
        case Word::none: break;
        case Word::failed:
            if (ahead == 0)
                return {fails, error_of(word), 0};
            break;
        case Word::left:
        case Word::broken:
            if (ahead <= 0)
                return {breaks, kind_of(word) == Word::left ? FI_ESHUTDOWN : error_of(word), 0};
            break;
        }
        const bool contradiction = contradicts(op, lane);
        if (now != lanes_.now())
            return {goes_on};
        if (contradiction)
            return mismatch;
    }
    return {waits};
}

/// Posts as many chunks as there is room for. True: all of them.
[[gnu::always_inline]] inline bool Rounds::send_some(const CollectiveOp& op, Transfer& t, Outcome& out) noexcept
{
    Lane& lane = lanes_.all()[t.lane];
    const std::size_t bytes = t.view.bytes();
    while (!t.over) {
        if (lane.step != Lane::Step::known) {
            if (lanes_.passed_by(lane))
                out = {fails, FI_ESHUTDOWN, 0};
            return false;
        }
        if (!lanes_.has_room(lane)) {
            if (in_vain_ != 0 && lanes_.passed_by(lane))
                out = mismatch;
            return false;
        }
        const std::size_t size = std::min(chunk, bytes - t.done);
        if (lanes_.send(lane, t.view, t.done, size, op.signature) != vcq::Post::done)
            return false;
        t.done += size;
        t.over = t.done == bytes;
        out.kind = goes_on;
    }
    return true;
}

/// Takes as many chunks as are there. True: all of them.
[[gnu::always_inline]] inline bool Rounds::receive_some(const CollectiveOp& op, Transfer& t, Outcome& out) noexcept
{
    Lane& lane = lanes_.all()[t.lane];
    const std::size_t bytes = t.view.bytes();
    const Transfer* const before = t.behind == Transfer::none ? nullptr : &round_.send[t.behind];
    while (!t.over) {
        if (before != nullptr && !before->over && before->done <= t.done)
            return false;
        Tail tail;
        const Lanes::Head found = lanes_.head(lane, tail);
        if (found != Lanes::Head::there) {
            // The word first, then the lane once more: its last message was put before the word.
            if (found == Lanes::Head::none && in_vain_ != 0 && lanes_.passed_by(lane) &&
                lanes_.head(lane, tail) == Lanes::Head::none)
                out = mismatch;
            return false;
        }
        const std::size_t size = std::min(chunk, bytes - t.done);
        if (tail.op != lanes_.now() || tail.signature != op.signature || tail.length != size) {
            out = mismatch;
            return false;
        }
        const std::byte* const payload = lanes_.area(lane).payload_of(tail);
        if (t.take == Take::copy) {
            t.view.write(t.done, payload, size);
        } else {
            alignas(32) std::byte theirs[chunk];
            std::memcpy(theirs, payload, size);
            op.plan.combine(t.view.base + t.done, theirs, size, t.take);
        }
        t.done += size;
        t.over = t.done == bytes;
        out.kind = goes_on;
        if (!lanes_.take(lane))
            return false;
    }
    return true;
}

Outcome Rounds::step(CollectiveOp& op) noexcept
{
    if (!begun_ && !op.plan.next(round_))
        return {over};
    begun_ = true;
    const std::uint32_t now = lanes_.now();
    Outcome out{waits};
    bool all = true;
    const auto going = [&] { return out.kind != fails && now == lanes_.now(); };
    // Sends first: a receive may wait for what it overwrites to have left.
    for (unsigned t = 0; t < round_.sends && going(); t++)
        all &= round_.send[t].over || send_some(op, round_.send[t], out);
    for (unsigned t = 0; t < round_.receives && going(); t++)
        all &= round_.receive[t].over || receive_some(op, round_.receive[t], out);
    if (now != lanes_.now())
        return {goes_on};
    if (out.kind == fails)
        return out;
    if (all)
        begun_ = false;
    else if (out.kind == waits)
        return wait(op, rounds_per_look);
    in_vain_ = 0;
    return {goes_on};
}

} // namespace tofu::coll
