// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a member finds those that it has lanes to (docs/wire-protocol.md, "Collective groups"), and the end of the join.
// See group.h.
#include <cstddef>
#include <cstring>

#include <rdma/fi_errno.h>

#include "collective/engine.h"
#include "collective/group.h"
#include "context/tx_context.h"
#include "provider/error.h"
#include "queue/eq.h"

namespace tofu::coll {

namespace {
constexpr std::uint64_t pause_ms = 1; // between two looks for a member that is late
} // namespace

std::uint64_t Group::key_of(unsigned member) const noexcept { return directory::mix(join_.key + member); }

void Group::find_members() noexcept
{
    for (unsigned i = 0; i < lane_count_; i++)
        look(lanes_[i]);
}

/// All neighbours are known; and a join ends when all members have called, and agree on the way that operations go.
void Group::begin_opening() noexcept
{
    const bool rows = stage_ == Opening::tells;
    opening_.shape = rows ? Shape{FI_ALLGATHER, FI_UINT64, FI_NOOP, width_, 0} : Shape{FI_ALLREDUCE, FI_UINT64, FI_BAND, 1, 0};
    // Neither of them needs memory.
    (void)opening_.plan.open(opening_.shape, rank(), size(), rows ? row_.get() : &agreed_, rows ? rows_.get() : &agreed_);
    append(opening_);
}

void Group::end_opening(int err, int prov_errno) noexcept
{
    switch (err != 0 ? Opening::over : stage_) {
    case Opening::asks: stage_ = agreed_ != 0 ? Opening::tells : Opening::over; break;
    case Opening::tells:
        agreed_ = wire();
        stage_ = Opening::confirms;
        break;
    case Opening::confirms:
        over_gates_ = agreed_ != 0;
        stage_ = Opening::over;
        break;
    case Opening::over: stage_ = Opening::over; break;
    }
    if (stage_ != Opening::over)
        return; // begin_opening() goes on
    if (err == 0 && !over_gates_)
        gates_.free(); // nobody sends anything to them
    circuit_.reset();
    row_.reset();
    rows_.reset();
    end_join(err, prov_errno);
}

void Group::lose(Lane& lane, int err, int prov_errno) noexcept
{
    unknown_ -= lane.step == Lane::Step::asking || lane.step == Lane::Step::door;
    lane.step = Lane::Step::lost;
    break_up(err, prov_errno);
}

void Group::look(Lane& lane) noexcept
{
    if (lane.step == Lane::Step::known || lane.step == Lane::Step::lost || lane.reading || (lane.due != 0 && clock_ms() < lane.due))
        return;
    utofu_stadd_t from = 0;
    std::size_t size = sizeof(DoorRow);
    if (lane.step == Lane::Step::asking) {
        if (tx_.vcq().query_stadd(lane.peer.home, directory_stag, from) != 0) {
            lose(lane, FI_EADDRNOTAVAIL, 0);
            return;
        }
        from += directory::doors_offset;
        size = sizeof(directory::DoorsLine);
    } else {
        from = lane.door + door_offset(key_of(member_at(lane.number, rank(), this->size())), lane.choice);
    }
    // Nothing is sent yet: what is read lands in the first slot.
    const vcq::Post post = tx_.vcq().get(lane.peer.home, staged_stadd(lane, 0), from, size,
                                         {.when = vcq::When::delivered, .waiter = &lane});
    if (post == vcq::Post::done) {
        lane.reading = true;
        in_flight_++;
    } else if (post == vcq::Post::error) {
        lose(lane, fi_error_of(tx_.vcq().last_error()), tx_.vcq().last_error());
    }
}

void Group::on_read(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Lane& lane = *static_cast<Lane*>(waiter);
    lane.reading = false;
    lane.group->in_flight_--;
    lane.group->looked(lane, notice.code);
}

/// No byte of it is believed without its check.
void Group::looked(Lane& lane, int code) noexcept
{
    if (code != UTOFU_SUCCESS) {
        lose(lane, fi_error_of(code), code);
        return;
    }
    const std::byte* const at = staged(lane, 0).payload;
    lane.due = 0;
    if (lane.step == Lane::Step::asking) {
        directory::DoorsLine line;
        std::memcpy(&line, at, sizeof(line));
        if (line.nonce != lane.peer.nonce)
            lose(lane, FI_EHOSTDOWN, 0); // another process has that VCQ by now
        else if (line.stadd != 0 && line.check == directory::check_of_doors(line.stadd, line.nonce))
            lane.door = line.stadd, lane.step = Lane::Step::door;
        else
            lane.due = clock_ms() + pause_ms;
        return;
    }
    DoorRow row;
    std::memcpy(&row, at, sizeof(row));
    const std::uint64_t key = key_of(member_at(lane.number, rank(), size()));
    for (const DoorLine& line : row.line) {
        if (line.key != key || line.check != check_of(line, lane.peer.nonce))
            continue;
        if (line.stadd == DoorLine::gone) {
            lose(lane, FI_ESHUTDOWN, 0); // it has given up
            return;
        }
        lane.remote = line.stadd + mirror(lane.number) * sizeof(LaneArea);
        lane.step = Lane::Step::known;
        lane.notify = on_put;
        unknown_--;
        lane.owes_word = lane.own_word != 0;
        owes_ |= lane.owes_word;
        return;
    }
    lane.choice = (lane.choice + 1) % door_choices;
    if (lane.choice == 0)
        lane.due = clock_ms() + pause_ms;
}

void Group::end_join(int err, int prov_errno) noexcept
{
    if (err == 0) {
        state_ = State::joined;
        join_.events->post(FI_JOIN_COMPLETE, {&fid, join_.context, 0});
        return;
    }
    fi_eq_err_entry entry{};
    entry.fid = &fid;
    entry.context = join_.context;
    entry.err = err;
    entry.prov_errno = prov_errno;
    join_.events->post_error(entry);
}

} // namespace tofu::coll
