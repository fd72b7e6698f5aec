// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See rounds.h.
#include "coll/rounds.h"

#include <algorithm>
#include <cstring>

#include "core/log.h"

namespace tofu::coll {

using enum Outcome::Kind;
constexpr unsigned rounds_per_look = 8;     // rounds without progress between two checks of all neighbours' words
constexpr unsigned rounds_per_clock = 1024; // and between two reads of the clock
constexpr unsigned polls_per_look = 64;     // of gates between two checks of all neighbours' words
constexpr std::uint64_t probe_after_ms = 10;
constexpr unsigned probes_overtaken = 100; // that a round of gates may last after a neighbour has left it behind
constexpr unsigned probes_alone = 100;     // that it may last before members that are no neighbours are asked

// --- LivenessCheck

Outcome LivenessCheck::step() noexcept
{
    if (found_.kind != pending || asking_)
        return found_;
    if (next_ == roster_.size())
        return {done};
    asked_ = next_;
    asking_ = true; // the notice may come within the post
    const vcq::Post post = lanes_.probe(asked(), *this);
    asking_ &= post == vcq::Post::done;
    return post == vcq::Post::error ? Outcome{group_failed, FI_EHOSTDOWN, 0} : found_;
}

void LivenessCheck::on_answer(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    LivenessCheck& check = *static_cast<LivenessCheck*>(handler);
    const int gone = check.lanes_.answer_of(check.asked(), notice);
    check.asking_ = false;
    if (gone != 0)
        check.found_ = {group_failed, gone, static_cast<int>(notice.code)};
    else
        check.next_ += check.next_ == check.asked_;
}

// --- Rounds

Outcome Rounds::wait(const CollectiveOp& op, unsigned per_look) noexcept
{
    if (++idle_ % per_look == 0)
        if (const Outcome out = check_neighbours(op); out.kind != pending)
            return out;
    if (liveness_check_.under_way())
        if (const Outcome out = liveness_check_.step(); out.kind != pending)
            return out.kind == done ? mismatch : out;
    if (idle_ % rounds_per_clock != 0)
        return {pending};
    const std::uint64_t time = clock_ms();
    if (time < probed_ + probe_after_ms)
        return {pending};
    probed_ = time;
    const std::uint32_t now = lanes_.current_op();
    lanes_.probe(op.signature);
    if (now != lanes_.current_op())
        return {progressed};
    if (op.native.rounds == 0)
        return {pending};
    probes_++;
    overtaken_ = overtaken() ? overtaken_ + 1 : 0;
    if (overtaken_ == probes_overtaken) {
        liveness_check_.begin();
    } else if (probes_ > probes_alone && !liveness_check_.under_way()) {
        // Asks one member after the other, one for each probe. The packet that a round lacks may be that of a member
        // that is no neighbour. If all others have ended the operation, none of them looks for its death.
        if (const Outcome out = liveness_check_.step(); out.kind != done)
            return out;
        liveness_check_.start_over();
    }
    return {pending};
}

Outcome Rounds::find_death(const CollectiveOp& op) noexcept
{
    if (++idle_ % polls_per_look == 0)
        if (const Outcome out = check_neighbours(op); out.kind != pending)
            return out;
    if (!liveness_check_.under_way())
        liveness_check_.begin();
    return liveness_check_.step();
}

/// True if the neighbour's messages or its probe belong to another call than ours.
bool Rounds::contradicts(const CollectiveOp& op, Lane& lane) noexcept
{
    const std::uint64_t other = lanes_.area(lane).awaited();
    const std::uint32_t now = lanes_.current_op();
    Tail tail;
    return (op_of(other) == now && other != 0 && static_cast<std::uint32_t>(other) != op.signature) ||
           (lanes_.head(lane, tail) == Lanes::Head::there && tail.op == now && tail.signature != op.signature);
}

/// True if a neighbour is beyond the operation: it has ended for all, or it has failed there and no word has arrived.
bool Rounds::overtaken() const noexcept
{
    return std::ranges::any_of(lanes_.all(), [&](const Lane& lane) {
        const std::uint64_t at = lanes_.area(lane).awaited();
        return lanes_.passed_by(lane) || (at != 0 && static_cast<std::int32_t>(op_of(at) - lanes_.current_op()) > 0);
    });
}

/// What the neighbour's word says of the operation under way, or of the next one.
Outcome Rounds::read_state(const Lane& lane) const noexcept
{
    const std::uint64_t word = lanes_.area(lane).state_word();
    const auto ahead = static_cast<std::int32_t>(op_of(word) - lanes_.current_op());
    switch (kind_of(word)) {
    case Word::none: break;
    case Word::failed:
        if (ahead == 0)
            return {op_failed, error_of(word), 0};
        break;
    case Word::left:
    case Word::broken:
        if (ahead <= 0)
            return {group_failed, kind_of(word) == Word::left ? FI_ESHUTDOWN : error_of(word), 0};
        break;
    }
    return {pending};
}

Outcome Rounds::read_states() const noexcept
{
    for (const Lane& lane : lanes_.all())
        if (const Outcome out = read_state(lane); out.kind != pending)
            return out;
    return {pending};
}

/// Checks the words and the messages of all neighbours.
Outcome Rounds::check_neighbours(const CollectiveOp& op) noexcept
{
    const std::uint32_t now = lanes_.current_op();
    for (Lane& lane : lanes_.all()) {
        if (const Outcome out = read_state(lane); out.kind != pending)
            return out;
        const bool contradiction = contradicts(op, lane);
        if (now != lanes_.current_op())
            return {progressed};
        if (contradiction)
            return mismatch;
    }
    return {pending};
}

/// Posts the chunks that have room at the receiver. True: all have been posted.
[[gnu::always_inline]] inline bool Rounds::send_some(const CollectiveOp& op, Transfer& t, Outcome& out) noexcept
{
    Lane& lane = lanes_.all()[t.lane];
    const std::size_t bytes = t.view.bytes();
    while (!t.over) {
        if (lane.step != Lane::Step::known) {
            if (lanes_.passed_by(lane))
                out = {op_failed, FI_ESHUTDOWN, 0};
            return false;
        }
        if (!lanes_.has_room(lane)) {
            if (idle_ != 0 && lanes_.passed_by(lane))
                out = mismatch;
            return false;
        }
        const std::size_t size = std::min(chunk, bytes - t.done);
        if (lanes_.send(lane, t.view, t.done, size, op.signature) != vcq::Post::done)
            return false;
        t.done += size;
        t.over = t.done == bytes;
        out.kind = progressed;
    }
    return true;
}

/// Consumes the chunks that have arrived. True: all have arrived.
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
            // Reads the word first, then the lane again: the peer's last message was put before the word.
            if (found == Lanes::Head::none && idle_ != 0 && lanes_.passed_by(lane) &&
                lanes_.head(lane, tail) == Lanes::Head::none)
                out = mismatch;
            return false;
        }
        const std::size_t size = std::min(chunk, bytes - t.done);
        if (tail.op != lanes_.current_op() || tail.signature != op.signature || tail.length != size) {
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
        out.kind = progressed;
        if (!lanes_.accept(lane))
            return false;
    }
    return true;
}

Outcome Rounds::step(CollectiveOp& op) noexcept
{
    if (!begun_ && !op.plan.next(round_))
        return {done};
    begun_ = true;
    const std::uint32_t now = lanes_.current_op();
    Outcome out{pending};
    bool all = true;
    const auto going = [&] { return out.kind != op_failed && now == lanes_.current_op(); };
    // Sends first: a receive may wait until a send has read the memory that it overwrites.
    for (unsigned t = 0; t < round_.sends && going(); t++)
        all &= round_.send[t].over || send_some(op, round_.send[t], out);
    for (unsigned t = 0; t < round_.receives && going(); t++)
        all &= round_.receive[t].over || receive_some(op, round_.receive[t], out);
    if (now != lanes_.current_op())
        return {progressed};
    if (out.kind == op_failed)
        return out;
    if (all)
        begun_ = false;
    else if (out.kind == pending)
        return wait(op, rounds_per_look);
    idle_ = 0;
    return {progressed};
}

// --- GateRounds

/// Starts the round of the operation. A barrier has no data, and so no seal.
int GateRounds::start(const CollectiveOp& op, std::uint32_t number, const Roster& roster) noexcept
{
    vcq::GateData data;
    unsigned used = 0;
    if (op.native.form != GateMapping::Form::barrier) {
        const bool source = op.shape.coll != FI_BROADCAST || op.shape.root == roster.rank;
        const void* const in = op.shape.coll == FI_BROADCAST ? op.out : op.in;
        used = pack(op.native, op.shape, op.round, source ? static_cast<const std::byte*>(in) : nullptr,
                    seal_of(group_, number, op.round, op.signature), data);
    }
    return gates_.start(op.native.op, data, used);
}

/// Polls the round, and writes its result to the memory of a member that wants it.
int GateRounds::poll(const CollectiveOp& op, std::uint32_t number, const Roster& roster) noexcept
{
    vcq::GateData data;
    const int code = gates_.poll(op.native.op, data);
    if (code != UTOFU_SUCCESS || op.native.form == GateMapping::Form::barrier)
        return code;
    const bool ours = op.shape.root == roster.rank;
    const bool wanted = op.shape.coll == FI_BROADCAST ? !ours : op.shape.coll != FI_REDUCE || ours;
    const bool agreed = unpack(op.native, op.shape, op.round, wanted ? static_cast<std::byte*>(op.out) : nullptr,
                               seal_of(group_, number, op.round, op.signature), roster.size(), data);
    return agreed ? UTOFU_SUCCESS : UTOFU_ERR_BARRIER_MISMATCH;
}

Outcome GateRounds::step(CollectiveOp& op, std::uint32_t number, const Roster& roster, Rounds& rounds) noexcept
{
    if (failed_ != UTOFU_SUCCESS) [[unlikely]] {
        const Outcome out = rounds.find_death(op);
        if (out.kind != done)
            return out;
        return used_ ? Outcome{group_failed, fi_error_of(failed_), failed_} : mismatch; // a join goes on without gates
    }
    int code = UTOFU_SUCCESS;
    if (!begun_) {
        code = start(op, number, roster);
        if (code == UTOFU_ERR_BUSY)
            return {pending};
        begun_ = code == UTOFU_SUCCESS;
    }
    if (code == UTOFU_SUCCESS)
        code = poll(op, number, roster);
    if (code == UTOFU_ERR_NOT_COMPLETED)
        return rounds.wait(op, polls_per_look);
    begun_ = false;
    rounds.moved();
    if (code == UTOFU_ERR_BARRIER_MISMATCH)
        return mismatch;
    failed_ = code;
    if (code != UTOFU_SUCCESS)
        return {pending}; // it does not say whether a member has died
    return {++op.round == op.native.rounds ? done : progressed};
}

bool GateRounds::retire(const OpQueue& ops, const Roster& roster) noexcept
{
    if (!used_)
        return true;
    used_ = false;
    for (CollectiveOp* op = ops.first()->next; op != nullptr; op = op->next) {
        if (op->native.rounds == 0)
            continue;
        op->native = {};
        op->signature = signature_of(op->shape);
        if (op->plan.open(op->shape, roster.rank, roster.size(), op->in, op->out) != 0)
            return false;
    }
    return true;
}

/// Packets may arrive at our gates until all members have left. The word of a member that has left says of how many
/// members it knows this, from itself down. That number doubles when the last of these knows of as many.
void GateRounds::collect_leaves(Lanes& lanes, unsigned n) noexcept
{
    const unsigned all = bits_of(n);
    const unsigned before = left_log2_;
    while (left_log2_ < all) {
        const Lane& lane = lanes.all()[down(left_log2_)];
        const std::uint64_t word = lanes.area(lane).state_word();
        const bool left = kind_of(word) == Word::left;
        if (left && left_log2_of(word) != given_up && left_log2_of(word) >= left_log2_)
            left_log2_++;
        else if ((left && left_log2_of(word) == given_up) || !lane.may_be_written)
            give_up();
        else
            break;
    }
    if (left_log2_ == all)
        gates_.free();
    if (left_log2_ != before)
        lanes.write_word(word_of(Word::left, op_of(lanes.all()[0].own_word), static_cast<int>(left_log2_)));
}

} // namespace tofu::coll
