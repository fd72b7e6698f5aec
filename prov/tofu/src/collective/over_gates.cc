// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A group's barrier circuit: gates taken and wired as it joins, operations over them, and when they may be given back. See
// group.h.
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "collective/engine.h"
#include "collective/group.h"
#include "context/tx_context.h"
#include "progress/domain_base.h"
#include "provider/error.h"
#include "provider/param.h"

namespace tofu::coll {

namespace {

/// FI_TOFU_GATES
bool refused() noexcept
{
    const char* const asked = param_string("gates", "auto");
    return std::strcmp(asked, "0") == 0 || std::strcmp(asked, "no") == 0 || std::strcmp(asked, "off") == 0;
}

} // namespace

/// Gates of one TNI for the circuit, if there are any. -FI_ENOMEM.
int Group::take_gates() noexcept
{
    if (refused())
        return 0;
    const vcq::Backend& backend = tx_.domain().backend();
    circuit_.reset(new (std::nothrow) Circuit);
    if (!circuit_ || !circuit_->reserve(size()))
        return -FI_ENOMEM;
    for (const Peer& peer : members_) {
        vcq::Coords coords{};
        if (!vcq::coords_of(backend, peer.home, coords))
            return 0;
        circuit_->add(coords);
    }
    if (!circuit_->lay())
        return -FI_ENOMEM;
    Circuit::Wires wires;
    circuit_->wires_of(rank(), wires);
    width_ = circuit_->most_gates();
    // Groups of the same members begin at different TNIs, and so do the processes of a node.
    const auto spread = static_cast<unsigned>(join_.key % 0x10000) + circuit_->index_in_node(rank());
    if (!gates_.alloc(backend, wires.count, spread))
        return 0;
    row_.reset(new (std::nothrow) utofu_vbg_id_t[width_]());
    rows_.reset(new (std::nothrow) utofu_vbg_id_t[std::size_t{width_} * size()]);
    if (!row_ || !rows_)
        return -FI_ENOMEM;
    std::memcpy(row_.get(), gates_.ids(), gates_.count() * sizeof(utofu_vbg_id_t));
    agreed_ = 1;
    return 0;
}

/// All members' gates are known. What a member says of its gates is believed if they are on its node.
bool Group::wire() noexcept
{
    const vcq::Backend& backend = tx_.domain().backend();
    Circuit::Wires wires;
    circuit_->wires_of(rank(), wires);
    bool good = true;
    const auto own = [&](unsigned gate) { return gate == GateAt::none ? UTOFU_VBG_ID_NULL : gates_.ids()[gate]; };
    const auto theirs = [&](const GateAt& at) {
        if (at.member == GateAt::none)
            return UTOFU_VBG_ID_NULL;
        const utofu_vbg_id_t id = rows_[std::size_t{at.member} * width_ + at.gate];
        vcq::Coords there{}, claimed{};
        good = good && vcq::coords_of(backend, members_[at.member].home, there) &&
               vcq::coords_of_gate(backend, id, claimed) && std::memcmp(there, claimed, sizeof(there)) == 0;
        return id;
    };
    utofu_vbg_setting settings[vcq::Gates::most] = {};
    for (unsigned i = 0; i < wires.count; i++) {
        const GatePlan& plan = wires.gate[i];
        settings[i] = {own(i),           own(plan.signal_from),  theirs(plan.packet_from),
                       own(plan.signal_to), theirs(plan.packet_to), {UTOFU_PATH_COORD_NULL, 0, 0}};
    }
    return good && gates_.set(settings) == UTOFU_SUCCESS;
}

/// Starts a round, or looks whether it has ended. False: nothing can be done at present.
bool Group::step_over_gates() noexcept
{
    CollectiveOp& op = *first_;
    const bool source = op.shape.coll != FI_BROADCAST || op.shape.root == rank();
    vcq::GateData data;
    int code = UTOFU_SUCCESS;
    if (!begun_) {
        const void* const in = op.shape.coll == FI_BROADCAST ? op.out : op.in;
        const unsigned used = pack(op.native, op.shape, op.round, source ? static_cast<const std::byte*>(in) : nullptr,
                                   op.signature, data);
        code = gates_.start(op.native.op, data, used);
        if (code == UTOFU_ERR_BUSY)
            return false;
        begun_ = code == UTOFU_SUCCESS;
    }
    if (code == UTOFU_SUCCESS)
        code = gates_.poll(op.native.op, data);
    if (code == UTOFU_ERR_NOT_COMPLETED) {
        wait(polls_per_look);
        return false;
    }
    begun_ = false;
    in_vain_ = 0;
    const bool wanted = op.shape.coll == FI_BROADCAST ? !source : op.shape.coll != FI_REDUCE || op.shape.root == rank();
    if (code == UTOFU_SUCCESS && !unpack(op.native, op.shape, op.round, wanted ? static_cast<std::byte*>(op.out) : nullptr,
                                         op.signature, size(), data))
        code = UTOFU_ERR_BARRIER_MISMATCH;
    if (code == UTOFU_ERR_BARRIER_MISMATCH)
        fail(FI_EINVAL, code);
    else if (code != UTOFU_SUCCESS)
        break_up(fi_error_of(code), code);
    else if (++op.round == op.native.rounds)
        end_first(0, 0);
    return true;
}

/// An operation has failed, for all members: somewhere a round may have begun that never ends. What comes goes by Puts.
void Group::retire_gates() noexcept
{
    if (!over_gates_)
        return;
    over_gates_ = false;
    for (CollectiveOp* op = first_->next; op != nullptr; op = op->next) {
        if (op->native.rounds == 0)
            continue;
        op->native = {};
        op->signature = signature_of(op->shape);
        if (op->plan.open(op->shape, rank(), size(), op->in, op->out) != 0) {
            break_up(FI_ENOMEM, 0);
            return;
        }
    }
}

/// A neighbour is done with the operation: it has ended for all, or has failed there without our hearing of it.
bool Group::overtaken() const noexcept
{
    for (unsigned i = 0; i < lane_count_; i++) {
        const std::uint64_t at = std::atomic_ref(area(lanes_[i]).probe).load(std::memory_order_acquire);
        if (passed_by(lanes_[i]) || (at != 0 && static_cast<std::int32_t>(op_of(at) - now_) > 0))
            return true;
    }
    return false;
}

/// Packets come to our gates until all members have left: none starts anything then. Who has left says of how many it has
/// heard likewise, from itself down: twice as many if the last of them has heard of as many.
void Group::hear_leaves() noexcept
{
    const unsigned all = bits_of(size());
    const unsigned before = heard_;
    for (; heard_ < all; heard_++) {
        const std::uint64_t word = word_from(lanes_[down(heard_)]);
        if (kind_of(word) != Word::left || heard_of(word) < heard_)
            break;
    }
    if (heard_ == all)
        gates_.free();
    if (heard_ != before)
        tell(Word::left, op_of(lanes_[0].own_word), static_cast<int>(heard_));
}

} // namespace tofu::coll
