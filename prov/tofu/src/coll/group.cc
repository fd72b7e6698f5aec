// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See group.h.
#include "coll/group.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "coll/collectives.h"
#include "core/log.h"
#include "core/object.h"
#include "core/params.h"
#include "cq/domain_base.h"
#include "cq/eq.h"
#include "tx/tx_context.h"

namespace tofu::coll {

using enum Outcome::Kind;
constexpr unsigned rounds_at_once = 32; // of operations, in one call of progress()
constexpr std::uint64_t question_after_ms = 20;

// --- LivenessWatch

void LivenessWatch::step(unsigned all) noexcept
{
    const std::uint64_t time = clock_ms();
    if (!lanes_.idle() || time < asked_ + question_after_ms) // the answer of a check has the same place
        return;
    for (unsigned i = 0; i < lanes_.all().size() && lanes_.idle(); i++) {
        next_ = (next_ + 1) % lanes_.all().size();
        Lane& lane = lanes_.all()[next_];
        if (lane.step != Lane::Step::unknown && !lanes_.is_quiet(lane, all))
            if (lanes_.probe(lane.peer, *this) == vcq::Post::error)
                lanes_.fail(lane, FI_EHOSTDOWN, 0);
    }
    asked_ = time;
}

void LivenessWatch::on_answer(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    LivenessWatch& watch = *static_cast<LivenessWatch*>(handler);
    Lane& lane = watch.lanes_.all()[watch.next_];
    if (watch.lanes_.answer_of(lane.peer, notice) != 0)
        watch.lanes_.fail(lane, FI_EHOSTDOWN, notice.code);
}

// --- Joining

Joining::Joining(TxContext& tx, const Join& join, Lanes& lanes, GateRounds& gates) noexcept
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
    std::uint64_t target_vcqs = 0;
    for (const Peer& peer : roster.members) {
        vcq::Coords coords{};
        if (!vcq::coords_of(backend_, peer.target_vcq, coords))
            return 0;
        circuit_->add(coords);
        target_vcqs = directory::mix(target_vcqs ^ peer.target_vcq);
    }
    if (!circuit_->lay_out())
        return -FI_ENOMEM;
    Circuit::Wires wires;
    circuit_->wires_of(roster.rank, wires);
    width_ = circuit_->most_gates();
    // Groups of the same members start at different TNIs, and so do the processes of a node. Nothing random decides, so
    // that runs by a virtual clock repeat.
    const auto spread =
        static_cast<unsigned>(target_vcqs % 0x10000) + join_.number + circuit_->index_in_node(roster.rank);
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

/// Wires the circuit; the gates of all members are known. A member's gates are accepted only if they are on its node.
bool Joining::wire(const Roster& roster) noexcept
{
    Circuit::Wires wires;
    circuit_->wires_of(roster.rank, wires);
    bool good = true;
    const auto own = [&](unsigned gate) {
        return gate == GateAt::none ? UTOFU_VBG_ID_NULL : gates_.gates().ids()[gate];
    };
    const auto theirs = [&](const GateAt& at) {
        if (at.member == GateAt::none)
            return UTOFU_VBG_ID_NULL;
        const utofu_vbg_id_t id = rows_[std::size_t{at.member} * width_ + at.gate];
        vcq::Coords there{}, claimed{};
        good = good && vcq::coords_of(backend_, roster.members[at.member].target_vcq, there) &&
               vcq::coords_of_gate(backend_, id, claimed) && std::memcmp(there, claimed, sizeof(there)) == 0;
        return id;
    };
    utofu_vbg_setting settings[vcq::Gates::most] = {};
    for (unsigned i = 0; i < wires.count; i++) {
        const GatePlan& plan = wires.gate[i];
        settings[i] = {own(i),
                       own(plan.signal_from),
                       theirs(plan.packet_from),
                       own(plan.signal_to),
                       theirs(plan.packet_to),
                       {UTOFU_PATH_COORD_NULL, 0, 0}};
    }
    return good && gates_.gates().set(settings) == UTOFU_SUCCESS;
}

static void append(OpQueue& ops, CollectiveOp& op) noexcept
{
    op.round = 0;
    // The top bit reveals members that disagree whether gates are used.
    op.signature = signature_of(op.shape) | (op.native.rounds != 0 ? 0x80000000u : 0);
    ops.push_back(op);
}

void Joining::vote(OpQueue& ops, const Roster& roster) noexcept
{
    const bool rows = stage_ == Stage::exchange_gates;
    vote_op_.shape =
        rows ? Shape{FI_ALLGATHER, FI_UINT64, FI_NOOP, width_, 0} : Shape{FI_ALLREDUCE, FI_UINT64, FI_BAND, 1, 0};
    vote_op_.native = in_trial() ? gate_mapping_of(vote_op_.shape, roster.size()) : GateMapping{};
    vote_op_.in = vote_op_.out = &agreed_; // of a round over the circuit
    // None of these plans allocates memory.
    (void)vote_op_.plan.open(vote_op_.shape, roster.rank, roster.size(), rows ? row_.get() : &agreed_,
                             rows ? rows_.get() : &agreed_);
    append(ops, vote_op_);
}

bool Joining::vote_ended(struct fid& group, const Roster& roster, int err, int prov_errno) noexcept
{
    switch (err != 0 ? Stage::done : stage_) {
    case Stage::vote_gates: stage_ = agreed_ != 0 ? Stage::exchange_gates : Stage::done; break;
    case Stage::exchange_gates:
        wired_ = true;
        agreed_ = wire(roster);
        stage_ = Stage::vote_wired;
        break;
    case Stage::vote_wired:
        proved_ = agreed_ != 0;
        stage_ = proved_ ? Stage::trial_round : Stage::done;
        break;
    case Stage::trial_round: stage_ = Stage::vote_trial; break;
    case Stage::vote_trial:
        gates_.use(agreed_ != 0);
        stage_ = Stage::done;
        break;
    case Stage::done: stage_ = Stage::done; break;
    }
    if (stage_ != Stage::done)
        return false;
    if (!wired_ || (err == 0 && !proved_))
        gates_.gates().free(); // no member sends to them
    circuit_.reset();
    row_.reset();
    rows_.reset();
    succeeded_ = err == 0;
    if (succeeded_) {
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

static int close_group(struct fid* fid) noexcept
{
    Group& group = Group::of(reinterpret_cast<fid_mc*>(fid));
    return group.engine().close_group(group);
}

static fi_ops group_fid_ops = object_ops({.close = close_group});

// --- Group: life

Group::Group(Collectives& engine, TxContext& tx, const Joining::Join& join, Roster&& roster, void* context) noexcept
    : engine_(engine), roster_(std::move(roster)), lanes_(tx, key_of(join.key, roster_.rank), *this),
      rounds_(lanes_, roster_), liveness_watch_(lanes_), gates_(join.key), joining_(tx, join, lanes_, gates_)
{
    fid.fclass = FI_CLASS_MC;
    fid.context = context;
    fid.ops = &group_fid_ops;
}

int Group::open() noexcept
{
    if (roster_.size() == 1)
        return 0;
    if (int ret = lanes_.open(roster_); ret != 0)
        return ret;
    return joining_.open(roster_);
}

bool Group::is_quiescent() const noexcept
{
    const unsigned all = bits_of(roster_.size());
    return state_ == State::left && idle() && !lanes_.owe() && !joining_.searches() && !waits_for_leaves() &&
           std::ranges::all_of(lanes_.all(), [&](const Lane& lane) { return lanes_.is_quiet(lane, all); });
}

void Group::find_dead() noexcept
{
    if (state_ == State::left && !is_quiescent())
        liveness_watch_.step(bits_of(roster_.size()));
}

void Group::leave() noexcept
{
    if (state_ == State::joining)
        joining_.abandon();
    // The operation that broke the group, and not the next one: a member that looks late would wait for it.
    const std::uint32_t op = state_ == State::broken ? broken_at_ : lanes_.current_op();
    state_ = State::left;
    if (!gates_.held() || (broken_.err != 0 && broken_.err != FI_ESHUTDOWN))
        gates_.give_up();
    write_word(Word::left, op, static_cast<int>(gates_.left_log2()));
    if (!ops_.empty() && joining_.is_vote(*ops_.first()))
        ops_.pop_front();
    while (!ops_.empty())
        end_first(FI_ECANCELED, 0);
}

// --- Group: operations

int Group::submit(CollectiveOp& op) noexcept
{
    op.native = gates_.used() ? gate_mapping_of(op.shape, roster_.size()) : GateMapping{};
    if (op.native.rounds == 0)
        if (int ret = op.plan.open(op.shape, roster_.rank, roster_.size(), op.in, op.out); ret != 0)
            return ret;
    append(ops_, op);
    engine_.wake(*this);
    if (state_ == State::broken)
        end_first(broken_.err, broken_.prov_errno);
    else if (ops_.first() == &op)
        run();
    return 0;
}

void Group::end_first(int err, int prov_errno) noexcept
{
    CollectiveOp& op = ops_.pop_front();
    rounds_.restart();
    gates_.restart();
    lanes_.to_next();
    if (joining_.is_vote(op)) {
        if (joining_.vote_ended(fid, roster_, err, prov_errno))
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
        lanes_.flush_all();
    if (joining_.searches()) {
        joining_.search();
        // A neighbour that was found may know that a member is lost, while others have not called yet.
        if (const Outcome out = rounds_.read_states(); state_ == State::joining && out.kind == group_failed)
            on_member_lost(out.err, out.prov_errno);
    }
    if (!joining_.searches() && state_ == State::joining && ops_.empty())
        joining_.vote(ops_, roster_);
    if (joining_.waits_for_calls() && state_ == State::joining)
        joining_.search_again();
    if (!ops_.empty())
        run();
    if (waits_for_leaves())
        gates_.collect_leaves(lanes_, roster_.size());
}

void Group::run() noexcept
{
    for (unsigned i = 0; !ops_.empty() && i < rounds_at_once; i++) {
        CollectiveOp& op = *ops_.first();
        const Outcome out =
            op.native.rounds != 0 ? gates_.step(op, lanes_.current_op(), roster_, rounds_) : rounds_.step(op);
        switch (out.kind) {
        case pending: return;
        case progressed: break;
        case done: end_first(0, 0); break;
        case op_failed: fail(out.err, out.prov_errno); break;
        case group_failed: on_member_lost(out.err, out.prov_errno); break;
        }
    }
}

void Group::fail(int err, int prov_errno) noexcept
{
    if (joining_.in_trial() && joining_.is_vote(*ops_.first())) {
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "collective group: a barrier gate has a packet that no member has sent: the group goes "
                  "on without gates\n");
        joining_.reject_circuit();
        end_first(0, 0);
        return;
    }
    if (prov_errno == UTOFU_ERR_BARRIER_MISMATCH)
        TOFU_WARN(FI_LOG_EP_DATA, "collective group: members called different collectives, or used different counts, "
                                  "types, operations or roots: make the same calls in the same order; or a barrier "
                                  "gate took a packet of another group\n");
    if (joining_.is_vote(*ops_.first())) {
        on_member_lost(err, prov_errno);
        return;
    }
    const std::uint32_t now = lanes_.current_op();
    write_word(Word::failed, now, err);
    if (now != lanes_.current_op())
        return; // a post has found a dead peer, and on_member_lost() has ended the operation
    if (gates_.retire(ops_, roster_))
        end_first(err, prov_errno);
    else
        on_member_lost(FI_ENOMEM, 0);
}

void Group::on_member_lost(int err, int prov_errno) noexcept
{
    if (state_ == State::left || state_ == State::broken)
        return;
    const bool joining = state_ == State::joining;
    TOFU_WARN(FI_LOG_EP_DATA,
              "collective group: a member is lost (%s): close the group and create one of the remaining members\n",
              fi_strerror(err));
    state_ = State::broken;
    broken_ = {Outcome::Kind::group_failed, err, prov_errno};
    broken_at_ = lanes_.current_op();
    write_word(Word::broken, broken_at_, err);
    if (joining && ops_.empty())
        joining_.vote_ended(fid, roster_, err, prov_errno);
    while (!ops_.empty())
        end_first(err, prov_errno);
}

void Group::write_word(Word word, std::uint32_t op, int err) noexcept
{
    lanes_.write_word(word_of(word, op, err));
    engine_.wake(*this);
}

} // namespace tofu::coll
