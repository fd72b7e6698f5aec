// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See group.h: the life of a group, and its operations. Lanes are in lane.cc, the join in join.cc.
#include "collective/group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "collective/engine.h"
#include "context/tx_context.h"
#include "fid/refusal.h"
#include "progress/domain_base.h"
#include "provider/error.h"
#include "provider/log.h"
#include "queue/eq.h"

namespace tofu::coll {

namespace {

constexpr unsigned rounds_at_once = 32;     // of an operation, in one round of progress
constexpr unsigned rounds_per_look = 8;     // rounds in vain between two looks at everybody's words
constexpr unsigned rounds_per_clock = 1024; // and between two looks at the clock
constexpr std::uint64_t probe_after_ms = 10;
constexpr unsigned probes_overtaken = 100; // that a round of gates has to end which a neighbour is done with

int close_group(struct fid* fid) noexcept
{
    Group& group = Group::of(reinterpret_cast<fid_mc*>(fid));
    return group.engine().close(group);
}

fi_ops fid_ops = object_ops({.close = close_group});

} // namespace

std::uint64_t clock_ms() noexcept
{
    using namespace std::chrono;
    return static_cast<std::uint64_t>(duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count());
}

// --- life

Group::Group(Collectives& engine, TxContext& tx, const Join& join) noexcept : engine_(engine), tx_(tx), join_(join)
{
    fid.fclass = FI_CLASS_MC;
    fid.context = join.context;
    fid.ops = &fid_ops;
}

Group::~Group() = default;

int Group::open(Array<Peer>&& members) noexcept
{
    members_ = std::move(members);
    lane_count_ = 2 * bits_of(size());
    if (lane_count_ == 0)
        return 0;
    lanes_.reset(new (std::nothrow) Lane[lane_count_]);
    slab_ = OwnMemory(lane_count_ * sizeof(LaneArea));
    staging_ = OwnMemory(lane_count_ * slots * sizeof(Slot));
    if (!lanes_ || !slab_ || !staging_)
        return -FI_ENOMEM;
    std::memset(slab_.get(), 0, slab_.size());
    std::memset(staging_.get(), 0, staging_.size());
    for (unsigned i = 0; i < lane_count_; i++) {
        Lane& lane = lanes_[i];
        lane.group = this;
        lane.number = static_cast<std::uint8_t>(i);
        lane.peer = members_[member_at(i, rank(), size())];
        lane.notify = on_read;
    }
    if (int ret = tx_.domain().doors().open(key_of(rank()), slab_, slab_stadd_); ret != 0)
        return ret;
    door_open_ = true;
    unknown_ = lane_count_;
    return take_gates();
}

int Group::register_local() noexcept
{
    if (lane_count_ == 0)
        return 0;
    const int ret = tx_.vcq().reg(staging_.get(), staging_.size(), false, staging_stadd_);
    staging_registered_ = ret == 0;
    return ret;
}

void Group::deregister_local() noexcept
{
    if (std::exchange(staging_registered_, false))
        tx_.vcq().dereg(staging_stadd_);
}

void Group::shut_door(bool given_up) noexcept
{
    if (std::exchange(door_open_, false))
        tx_.domain().doors().shut(key_of(rank()), given_up);
}

void Group::bury(bool quiet) noexcept
{
    if (slab_)
        tx_.domain().doors().release(std::move(slab_), slab_stadd_, gates_, quiet);
}

bool Group::gone() const noexcept
{
    return in_flight_ == 0 && !owes_ && gates_.count() == 0 && std::all_of(lanes_.get(), lanes_.get() + lane_count_, [&](const Lane& lane) {
               return lane.step == Lane::Step::lost || kind_of(word_from(lane)) == Word::left;
           });
}

void Group::leave() noexcept
{
    state_ = State::left;
    tell(Word::left, now_, 0);
    if (first_ == &opening_)
        pop();
    while (first_ != nullptr)
        end_first(FI_ECANCELED, 0);
}

// --- operations

void Group::append(CollectiveOp& op) noexcept
{
    op.next = nullptr;
    op.round = 0;
    // Members that are not of one mind about the way are to hear of it.
    op.signature = signature_of(op.shape) | (op.native.rounds != 0 ? 0x80000000u : 0);
    *end_ = &op;
    end_ = &op.next;
}

int Group::submit(CollectiveOp& op) noexcept
{
    op.native = over_gates_ ? native_of(op.shape, size()) : Native{};
    if (op.native.rounds == 0)
        if (int ret = op.plan.open(op.shape, rank(), size(), op.in, op.out); ret != 0)
            return ret;
    append(op);
    engine_.wake(*this);
    if (state_ == State::broken)
        end_first(broken_err_, broken_code_);
    else if (first_ == &op)
        run();
    return 0;
}

CollectiveOp& Group::pop() noexcept
{
    CollectiveOp& op = *first_;
    first_ = op.next;
    if (first_ == nullptr)
        end_ = &first_;
    begun_ = false;
    in_vain_ = 0;
    overtaken_ = 0;
    return op;
}

void Group::end_first(int err, int prov_errno) noexcept
{
    CollectiveOp& op = pop();
    now_++;
    if (&op == &opening_) {
        end_opening(err, prov_errno);
        return;
    }
    op.plan.close();
    if (err == 0)
        tx_.vcq().statistics().count(op.native.rounds != 0 ? Stat::collective_gates : Stat::collective_puts);
    op.err = err;
    op.prov_errno = prov_errno;
    engine_.end(op);
}

void Group::progress() noexcept
{
    if (owes_)
        pay_all();
    if (unknown_ != 0)
        find_members();
    if (unknown_ == 0 && state_ == State::joining && first_ == nullptr)
        begin_opening();
    if (first_ != nullptr)
        run();
    if (waits_for_leaves())
        hear_leaves();
}

void Group::run() noexcept
{
    for (unsigned i = 0; first_ != nullptr && i < rounds_at_once; i++) {
        if (first_->native.rounds != 0) {
            if (!step_over_gates())
                return;
            continue;
        }
        if (!begun_ && !first_->plan.next(round_)) {
            end_first(0, 0);
            continue;
        }
        begun_ = true;
        const std::uint32_t now = now_;
        bool moved = false;
        bool over = true;
        // Sends first: a receive may wait for what it overwrites to have left.
        for (unsigned t = 0; t < round_.sends && now == now_; t++)
            over &= round_.send[t].over || send_some(round_.send[t], moved);
        for (unsigned t = 0; t < round_.receives && now == now_; t++)
            over &= round_.receive[t].over || receive_some(round_.receive[t], moved);
        if (now != now_)
            continue; // it has failed
        if (over) {
            begun_ = false;
            in_vain_ = 0;
        } else if (!moved) {
            wait(rounds_per_look);
            return;
        } else {
            in_vain_ = 0;
        }
    }
}

/// Nothing has moved: is there a reason?
void Group::wait(unsigned per_look) noexcept
{
    if (++in_vain_ % per_look == 0 && !all_agree())
        return;
    if (in_vain_ % rounds_per_clock != 0)
        return;
    if (const std::uint64_t now = clock_ms(); now >= probed_ + probe_after_ms) {
        probed_ = now;
        probe();
        if (first_ != nullptr && first_->native.rounds != 0 && (overtaken_ = overtaken() ? overtaken_ + 1 : 0) == probes_overtaken)
            fail(FI_EINVAL, UTOFU_ERR_BARRIER_MISMATCH);
    }
}

/// Looks at what all neighbours say and send. False: the operation has failed.
bool Group::all_agree() noexcept
{
    for (unsigned i = 0; i < lane_count_; i++) {
        Lane& lane = lanes_[i];
        const std::uint64_t word = word_from(lane);
        const auto ahead = static_cast<std::int32_t>(op_of(word) - now_);
        switch (kind_of(word)) {
        case Word::none: break;
        case Word::failed:
            if (ahead == 0) {
                fail(error_of(word), 0);
                return false;
            }
            break;
        case Word::left:
        case Word::broken:
            if (ahead <= 0) {
                break_up(kind_of(word) == Word::left ? FI_ESHUTDOWN : error_of(word), 0);
                return false;
            }
            break;
        }
        const std::uint32_t now = now_;
        const bool contradiction = contradicts(lane);
        if (now != now_)
            return false; // the peer was found dead
        if (contradiction) {
            fail(FI_EINVAL, UTOFU_ERR_BARRIER_MISMATCH);
            return false;
        }
    }
    return true;
}

void Group::fail(int err, int prov_errno) noexcept
{
    if (prov_errno == UTOFU_ERR_BARRIER_MISMATCH)
        TOFU_WARN(FI_LOG_EP_DATA, "collective group: members have called different collectives, or with other counts, "
                                  "types, operations or roots: call the same in the same order\n");
    if (first_ == &opening_) {
        break_up(err, prov_errno);
        return;
    }
    tell(Word::failed, now_, err);
    const std::uint32_t now = now_;
    retire_gates();
    if (now == now_)
        end_first(err, prov_errno);
}

void Group::break_up(int err, int prov_errno) noexcept
{
    if (state_ == State::left || state_ == State::broken)
        return;
    const bool joining = state_ == State::joining;
    TOFU_WARN(FI_LOG_EP_DATA, "collective group: a member is lost (%s): close the group and join those that are left\n",
              fi_strerror(err));
    state_ = State::broken;
    broken_err_ = err;
    broken_code_ = prov_errno;
    tell(Word::broken, now_, err);
    if (joining && first_ == nullptr)
        end_opening(err, prov_errno);
    while (first_ != nullptr)
        end_first(err, prov_errno);
}

void Group::tell(Word word, std::uint32_t op, int err) noexcept
{
    for (unsigned i = 0; i < lane_count_; i++) {
        lanes_[i].own_word = word_of(word, op, err);
        lanes_[i].owes_word = true;
    }
    pay_all();
    engine_.wake(*this);
}

} // namespace tofu::coll
