// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See over_gates.h.
#include "coll/over_gates.h"

#include <cstddef>
#include <cstdint>

#include <rdma/fi_errno.h>

#include "core/log.h"

namespace tofu::coll {

namespace {
using enum Outcome::Kind;
constexpr unsigned polls_per_look = 64; // of gates between two looks at everybody's words
} // namespace

Outcome OverGates::step(CollectiveOp& op, const Roster& roster, Rounds& rounds) noexcept
{
    const bool ours = op.shape.root == roster.rank;
    const bool source = op.shape.coll != FI_BROADCAST || ours;
    vcq::GateData data;
    int code = UTOFU_SUCCESS;
    if (!begun_) {
        const void* const in = op.shape.coll == FI_BROADCAST ? op.out : op.in;
        const unsigned used = pack(op.native, op.shape, op.round, source ? static_cast<const std::byte*>(in) : nullptr,
                                   op.signature, data);
        code = gates_.start(op.native.op, data, used);
        if (code == UTOFU_ERR_BUSY)
            return {waits};
        begun_ = code == UTOFU_SUCCESS;
    }
    if (code == UTOFU_SUCCESS)
        code = gates_.poll(op.native.op, data);
    if (code == UTOFU_ERR_NOT_COMPLETED)
        return rounds.wait(op, polls_per_look);
    begun_ = false;
    rounds.moved();
    const bool wanted = op.shape.coll == FI_BROADCAST ? !source : op.shape.coll != FI_REDUCE || ours;
    if (code == UTOFU_SUCCESS && !unpack(op.native, op.shape, op.round, wanted ? static_cast<std::byte*>(op.out) : nullptr,
                                         op.signature, roster.size(), data))
        code = UTOFU_ERR_BARRIER_MISMATCH;
    if (code == UTOFU_ERR_BARRIER_MISMATCH)
        return mismatch;
    if (code != UTOFU_SUCCESS)
        return {breaks, fi_error_of(code), code};
    return {++op.round == op.native.rounds ? over : goes_on};
}

bool OverGates::retire(const OpQueue& ops, const Roster& roster) noexcept
{
    if (!used_)
        return true;
    used_ = false;
    for (CollectiveOp* op = ops.first().next; op != nullptr; op = op->next) {
        if (op->native.rounds == 0)
            continue;
        op->native = {};
        op->signature = signature_of(op->shape);
        if (op->plan.open(op->shape, roster.rank, roster.size(), op->in, op->out) != 0)
            return false;
    }
    return true;
}

/// Packets come to our gates until all members have left: none starts anything then. Who has left says of how many it has
/// heard likewise, from itself down: twice as many if the last of them has heard of as many.
void OverGates::hear_leaves(Lanes& lanes, unsigned n) noexcept
{
    const unsigned all = bits_of(n);
    const unsigned before = heard_;
    for (; heard_ < all; heard_++) {
        const std::uint64_t word = lanes.area(lanes.all()[down(heard_)]).said();
        if (kind_of(word) != Word::left || heard_of(word) < heard_)
            break;
    }
    if (heard_ == all)
        gates_.free();
    if (heard_ != before)
        lanes.tell(word_of(Word::left, op_of(lanes.all()[0].own_word), static_cast<int>(heard_)));
}

} // namespace tofu::coll
