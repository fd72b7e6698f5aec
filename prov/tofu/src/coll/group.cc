// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See group.h.
#include "coll/group.h"

#include <algorithm>
#include <utility>

#include <rdma/fi_errno.h>

#include "coll/engine.h"
#include "core/log.h"
#include "core/object.h"
#include "cq/domain_base.h"
#include "tx/tx_context.h"

namespace tofu::coll {

namespace {

constexpr unsigned rounds_at_once = 32; // of an operation, in one round of progress

int close_group(struct fid* fid) noexcept
{
    Group& group = Group::of(reinterpret_cast<fid_mc*>(fid));
    return group.engine().close(group);
}

fi_ops group_fid_ops = object_ops({.close = close_group});

} // namespace

// --- life

Group::Group(Collectives& engine, TxContext& tx, const Joining::Join& join, Roster&& roster, void* context) noexcept
    : engine_(engine), roster_(std::move(roster)), memory_(tx, key_of(join.key, roster_.rank)),
      lanes_(tx, memory_, *this), rounds_(lanes_), joining_(tx, join, lanes_, gates_)
{
    fid.fclass = FI_CLASS_MC;
    fid.context = context;
    fid.ops = &group_fid_ops;
}

int Group::open() noexcept
{
    if (roster_.size() == 1)
        return 0;
    if (!lanes_.open(roster_))
        return -FI_ENOMEM;
    if (int ret = memory_.open(static_cast<unsigned>(lanes_.all().size())); ret != 0)
        return ret;
    return joining_.open(roster_);
}

bool Group::gone() const noexcept
{
    return state_ == State::left && idle() && !lanes_.owe() && !gates_.held() && std::ranges::all_of(lanes_.all(), [&](const Lane& lane) {
               return lane.step == Lane::Step::lost || kind_of(lanes_.area(lane).said()) == Word::left;
           });
}

void Group::leave() noexcept
{
    state_ = State::left;
    tell(Word::left, 0);
    if (!ops_.empty() && joining_.asks_by(ops_.first()))
        ops_.pop();
    while (!ops_.empty())
        end_first(FI_ECANCELED, 0);
}

// --- operations

int Group::submit(CollectiveOp& op) noexcept
{
    op.native = gates_.used() ? native_of(op.shape, roster_.size()) : Native{};
    if (op.native.rounds == 0)
        if (int ret = op.plan.open(op.shape, roster_.rank, roster_.size(), op.in, op.out); ret != 0)
            return ret;
    ops_.append(op);
    engine_.wake(*this);
    if (state_ == State::broken)
        end_first(broken_.err, broken_.prov_errno);
    else if (&ops_.first() == &op)
        run();
    return 0;
}

void Group::end_first(int err, int prov_errno) noexcept
{
    CollectiveOp& op = ops_.pop();
    rounds_.restart();
    gates_.restart();
    lanes_.to_next();
    if (joining_.asks_by(op)) {
        if (joining_.answered(fid, roster_, err, prov_errno))
            state_ = State::joined;
        return;
    }
    op.plan.close();
    op.err = err;
    op.prov_errno = prov_errno;
    engine_.end(op);
}

void Group::progress() noexcept
{
    if (lanes_.owe())
        lanes_.pay_all();
    if (joining_.searches())
        joining_.search();
    if (!joining_.searches() && state_ == State::joining && ops_.empty())
        joining_.ask(ops_, roster_);
    if (!ops_.empty())
        run();
    if (waits_for_leaves())
        gates_.hear_leaves(lanes_, roster_.size());
}

void Group::run() noexcept
{
    for (unsigned i = 0; !ops_.empty() && i < rounds_at_once; i++) {
        CollectiveOp& op = ops_.first();
        const Outcome out = op.native.rounds != 0 ? gates_.step(op, roster_, rounds_) : rounds_.step(op);
        switch (out.kind) {
        case Outcome::Kind::waits: return;
        case Outcome::Kind::goes_on: break;
        case Outcome::Kind::over: end_first(0, 0); break;
        case Outcome::Kind::fails: fail(out.err, out.prov_errno); break;
        case Outcome::Kind::breaks: lost(out.err, out.prov_errno); break;
        }
    }
}

void Group::fail(int err, int prov_errno) noexcept
{
    if (prov_errno == UTOFU_ERR_BARRIER_MISMATCH)
        TOFU_WARN(FI_LOG_EP_DATA, "collective group: members have called different collectives, or with other counts, "
                                  "types, operations or roots: call the same in the same order\n");
    if (joining_.asks_by(ops_.first())) {
        lost(err, prov_errno);
        return;
    }
    const std::uint32_t now = lanes_.now();
    tell(Word::failed, err);
    if (now != lanes_.now())
        return; // a peer was found dead
    if (gates_.retire(ops_, roster_))
        end_first(err, prov_errno);
    else
        lost(FI_ENOMEM, 0);
}

/// The group breaks up.
void Group::lost(int err, int prov_errno) noexcept
{
    if (state_ == State::left || state_ == State::broken)
        return;
    const bool joining = state_ == State::joining;
    TOFU_WARN(FI_LOG_EP_DATA, "collective group: a member is lost (%s): close the group and join those that are left\n",
              fi_strerror(err));
    state_ = State::broken;
    broken_ = {Outcome::Kind::breaks, err, prov_errno};
    tell(Word::broken, err);
    if (joining && ops_.empty())
        joining_.answered(fid, roster_, err, prov_errno);
    while (!ops_.empty())
        end_first(err, prov_errno);
}

void Group::tell(Word word, int err) noexcept
{
    lanes_.tell(word_of(word, lanes_.now(), err));
    engine_.wake(*this);
}

} // namespace tofu::coll
