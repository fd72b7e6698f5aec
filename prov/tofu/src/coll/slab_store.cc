// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See slab_store.h.
#include "coll/slab_store.h"

#include <cstring>
#include <iterator>
#include <utility>

#include <rdma/fi_errno.h>

#include "av/address.h"
#include "core/log.h"
#include "cq/domain_base.h"
#include "msg/wire.h"

namespace tofu::coll {

static_assert(SlabStore::head_size > proto::slot_counter_offset && SlabStore::head_size >= sizeof(proto::AreaHeader));

int SlabStore::open(Arena& arena, unsigned cells) noexcept
{
    arena.memory = OwnMemory(head_size + cells * cell_size);
    if (!arena.memory || !allocates([&] { arena.cells.assign(cells, Cell::free); }))
        return -FI_ENOMEM;
    std::memset(arena.memory.get(), 0, head_size);
    const proto::AreaHeader header{proto::area_magic, wire_version, static_cast<std::uint16_t>(max_endpoints), 0, 0};
    std::memcpy(arena.memory.get(), &header, sizeof header);
    return domain_.target_vcq().reg_with_stag(arena.memory.get(), arena.memory.size(), endpoint_stag(arena.number),
                                              arena.stadd);
}

int SlabStore::make(unsigned cells) noexcept
{
    Arena arena;
    if (!arenas_.reserve(arenas_.size() + 1))
        return -FI_ENOMEM;
    std::uint16_t incarnation; // the header names no endpoint
    if (int ret = domain_.numbers().alloc(1, arena.number, incarnation); ret != 0)
        return ret;
    unsigned all = 0;
    for (const Arena& each : arenas_)
        all += static_cast<unsigned>(each.cells.size());
    int ret = open(arena, std::max(cells, all));
    if (ret != 0 && all > cells)
        ret = open(arena, cells);
    if (ret != 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "collective group: cannot register %zu bytes for its neighbours: close some groups\n",
                  head_size + cells * cell_size);
        domain_.numbers().release(arena.number, 1);
        return ret;
    }
    arenas_.push_reserved(std::move(arena));
    return 0;
}

int SlabStore::alloc(unsigned cells, Slab& slab) noexcept
{
    const auto has_room = [&](Arena& arena) { return arena.find(cells) != arena.cells.end(); };
    auto arena = std::ranges::find_if(arenas_, has_room);
    if (arena == arenas_.end()) {
        if (int ret = make(cells); ret != 0)
            return ret;
        arena = std::prev(arenas_.end());
    }
    const auto first = arena->find(cells);
    std::fill_n(first, cells, Cell::used);
    const std::size_t offset = head_size + static_cast<std::size_t>(first - arena->cells.begin()) * cell_size;
    slab = {arena->memory.get() + offset, arena->stadd + offset, cells};
    std::memset(slab.base, 0, cells * cell_size);
    return 0;
}

void SlabStore::release(const Slab& slab, bool quiet) noexcept
{
    const auto has_it = [&](const Arena& arena) {
        return slab.base >= arena.memory.get() && slab.base < arena.memory.get() + arena.memory.size();
    };
    const auto arena = std::ranges::find_if(arenas_, has_it);
    const std::size_t first = static_cast<std::size_t>(slab.base - arena->memory.get()) / cell_size;
    std::fill_n(&arena->cells[first], slab.cells, quiet ? Cell::free : Cell::lost);
    if (arenas_.size() == 1 || !arena->has_only_free()) // the last one is kept for the next group
        return;
    drop(*arena);
    std::move(arena + 1, arenas_.end(), arena);
    arenas_.pop_back();
}

void SlabStore::drop(Arena& arena) noexcept
{
    domain_.target_vcq().dereg(arena.stadd);
    if (!arena.has_only_free())
        domain_.numbers().set_unsettled(arena.number);
    domain_.numbers().release(arena.number, 1);
}

void SlabStore::close() noexcept
{
    for (Arena& arena : arenas_)
        drop(arena);
}

} // namespace tofu::coll
