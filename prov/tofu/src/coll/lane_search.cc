// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See lane_search.h.
#include "coll/lane_search.h"

#include <cstddef>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "tx/tx_context.h"

namespace tofu::coll {

namespace {
constexpr std::uint64_t pause_ms = 1; // between two looks for a member that is late
} // namespace

bool Search::open(const Roster& roster) noexcept
{
    const auto lanes = lanes_.all();
    looks_.reset(new (std::nothrow) Look[lanes.size()]);
    if (!looks_)
        return false;
    for (Lane& lane : lanes) {
        Look& look = looks_[lane.number];
        look.search = this;
        look.lane = &lane;
        look.key = key_of(group_, member_at(lane.number, roster.rank, roster.size()));
        look.notify = on_read;
    }
    unknown_ = static_cast<unsigned>(lanes.size());
    return true;
}

void Search::progress() noexcept
{
    for (const Lane& lane : lanes_.all())
        look(looks_[lane.number]);
}

void Search::lose(Look& look, int err, int prov_errno) noexcept
{
    unknown_--;
    lanes_.lose(*look.lane, err, prov_errno);
}

void Search::look(Look& look) noexcept
{
    Lane& lane = *look.lane;
    if (lane.step != Lane::Step::unknown || look.reading || (look.due != 0 && clock_ms() < look.due))
        return;
    utofu_stadd_t from = look.table + door_offset(look.key, look.choice);
    std::size_t size = sizeof(DoorRow);
    if (look.table == 0) {
        if (tx_.vcq().query_stadd(lane.peer.home, directory_stag, from) != 0) {
            lose(look, FI_EADDRNOTAVAIL, 0);
            return;
        }
        from += directory::doors_offset;
        size = sizeof(directory::DoorsLine);
    }
    const vcq::Post post = lanes_.get(lane, look, from, size);
    look.reading = post == vcq::Post::done;
    if (post == vcq::Post::error)
        unknown_--;
}

void Search::on_read(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Look& look = *static_cast<Look*>(waiter);
    look.reading = false;
    const std::byte* const at = look.search->lanes_.got(*look.lane);
    if (notice.code == UTOFU_SUCCESS)
        look.search->looked(look, at);
    else
        look.search->lose(look, fi_error_of(notice.code), notice.code);
}

/// No byte of it is believed without its check.
void Search::looked(Look& look, const std::byte* at) noexcept
{
    Lane& lane = *look.lane;
    look.due = 0;
    if (look.table == 0) {
        directory::DoorsLine line;
        std::memcpy(&line, at, sizeof(line));
        if (line.nonce != lane.peer.nonce)
            lose(look, FI_EHOSTDOWN, 0); // another process has that VCQ by now
        else if (line.stadd != 0 && line.check == directory::check_of_doors(line.stadd, line.nonce))
            look.table = line.stadd;
        else
            look.due = clock_ms() + pause_ms;
        return;
    }
    DoorRow row;
    std::memcpy(&row, at, sizeof(row));
    for (const DoorLine& line : row.line) {
        if (line.key != look.key || line.check != check_of(line, lane.peer.nonce))
            continue;
        if (line.stadd == DoorLine::gone) {
            lose(look, FI_ESHUTDOWN, 0); // it has given up
            return;
        }
        unknown_--;
        lanes_.found(lane, line.stadd + mirror(lane.number) * sizeof(LaneArea));
        return;
    }
    look.choice = (look.choice + 1) % door_choices;
    if (look.choice == 0)
        look.due = clock_ms() + pause_ms;
}

} // namespace tofu::coll
