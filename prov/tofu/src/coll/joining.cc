// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See joining.h.
#include "coll/joining.h"

#include <cstddef>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/params.h"
#include "cq/domain_base.h"
#include "cq/eq.h"
#include "tx/tx_context.h"

namespace tofu::coll {

Joining::Joining(TxContext& tx, const Join& join, Lanes& lanes, OverGates& gates) noexcept
    : backend_(tx.domain().backend()), search_(tx, lanes, join.key), join_(join), gates_(gates)
{
}

int Joining::open(const Roster& roster) noexcept
{
    if (!search_.open(roster))
        return -FI_ENOMEM;
    if (param_off("gates"))
        return 0;
    circuit_.reset(new (std::nothrow) Circuit);
    if (!circuit_ || !circuit_->reserve(roster.size()))
        return -FI_ENOMEM;
    for (const Peer& peer : roster.members) {
        vcq::Coords coords{};
        if (!vcq::coords_of(backend_, peer.home, coords))
            return 0;
        circuit_->add(coords);
    }
    if (!circuit_->lay())
        return -FI_ENOMEM;
    Circuit::Wires wires;
    circuit_->wires_of(roster.rank, wires);
    width_ = circuit_->most_gates();
    // Groups of the same members begin at different TNIs, and so do the processes of a node.
    const auto spread = static_cast<unsigned>(join_.key % 0x10000) + circuit_->index_in_node(roster.rank);
    if (!gates_.gates().alloc(backend_, wires.count, spread))
        return 0;
    row_.reset(new (std::nothrow) utofu_vbg_id_t[width_]());
    rows_.reset(new (std::nothrow) utofu_vbg_id_t[std::size_t{width_} * roster.size()]);
    if (!row_ || !rows_)
        return -FI_ENOMEM;
    std::memcpy(row_.get(), gates_.gates().ids(), gates_.gates().count() * sizeof(utofu_vbg_id_t));
    agreed_ = 1;
    return 0;
}

/// All members' gates are known. What a member says of its gates is believed if they are on its node.
bool Joining::wire(const Roster& roster) noexcept
{
    Circuit::Wires wires;
    circuit_->wires_of(roster.rank, wires);
    bool good = true;
    const auto own = [&](unsigned gate) { return gate == GateAt::none ? UTOFU_VBG_ID_NULL : gates_.gates().ids()[gate]; };
    const auto theirs = [&](const GateAt& at) {
        if (at.member == GateAt::none)
            return UTOFU_VBG_ID_NULL;
        const utofu_vbg_id_t id = rows_[std::size_t{at.member} * width_ + at.gate];
        vcq::Coords there{}, claimed{};
        good = good && vcq::coords_of(backend_, roster.members[at.member].home, there) &&
               vcq::coords_of_gate(backend_, id, claimed) && std::memcmp(there, claimed, sizeof(there)) == 0;
        return id;
    };
    utofu_vbg_setting settings[vcq::Gates::most] = {};
    for (unsigned i = 0; i < wires.count; i++) {
        const GatePlan& plan = wires.gate[i];
        settings[i] = {own(i),           own(plan.signal_from),  theirs(plan.packet_from),
                       own(plan.signal_to), theirs(plan.packet_to), {UTOFU_PATH_COORD_NULL, 0, 0}};
    }
    return good && gates_.gates().set(settings) == UTOFU_SUCCESS;
}

void Joining::ask(OpQueue& ops, const Roster& roster) noexcept
{
    const bool rows = stage_ == Stage::tells;
    question_.shape = rows ? Shape{FI_ALLGATHER, FI_UINT64, FI_NOOP, width_, 0} : Shape{FI_ALLREDUCE, FI_UINT64, FI_BAND, 1, 0};
    // Neither of them needs memory.
    (void)question_.plan.open(question_.shape, roster.rank, roster.size(), rows ? row_.get() : &agreed_,
                              rows ? rows_.get() : &agreed_);
    ops.append(question_);
}

bool Joining::answered(struct fid& group, const Roster& roster, int err, int prov_errno) noexcept
{
    switch (err != 0 ? Stage::over : stage_) {
    case Stage::asks: stage_ = agreed_ != 0 ? Stage::tells : Stage::over; break;
    case Stage::tells:
        agreed_ = wire(roster);
        stage_ = Stage::confirms;
        break;
    case Stage::confirms:
        gates_.use(agreed_ != 0);
        stage_ = Stage::over;
        break;
    case Stage::over: stage_ = Stage::over; break;
    }
    if (stage_ != Stage::over)
        return false;
    if (err == 0 && !gates_.used())
        gates_.gates().free(); // nobody sends anything to them
    circuit_.reset();
    row_.reset();
    rows_.reset();
    if (err == 0) {
        join_.events->post(FI_JOIN_COMPLETE, {&group, group.context, 0});
        return true;
    }
    fi_eq_err_entry entry{};
    entry.fid = &group;
    entry.context = group.context;
    entry.err = err;
    entry.prov_errno = prov_errno;
    join_.events->post_error(entry);
    return false;
}

} // namespace tofu::coll
