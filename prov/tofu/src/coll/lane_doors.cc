// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See lane_doors.h.
#include "coll/lane_doors.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "cq/domain_base.h"
#include "mem/mr_table.h"

namespace tofu::coll {

/// The table, at first use; the directory says where it is.
int Doors::make() noexcept
{
    OwnMemory made(door_rows * sizeof(DoorRow));
    if (!made)
        return -FI_ENOMEM;
    std::memset(made.get(), 0, made.size());
    if (int ret = domain_.home().reg(made.get(), made.size(), false, stadd_); ret != 0)
        return ret;
    table_ = std::move(made);
    domain_.regions().directory().point_to_doors(stadd_);
    return 0;
}

/// The line of the key, or one that is free.
DoorLine* Doors::seek(std::uint64_t key, bool free) noexcept
{
    for (unsigned i = 0; table_ && i < door_choices; i++)
        for (DoorLine& line : std::launder(reinterpret_cast<DoorRow*>(table_.get() + door_offset(key, i)))->line)
            if (free ? line.check == 0 : line.check != 0 && line.key == key)
                return &line;
    return nullptr;
}

/// The check goes first and comes last. Partner: Get of Search::look.
void Doors::write(DoorLine& line, std::uint64_t key, std::uint64_t stadd, std::uint64_t check) noexcept
{
    std::atomic_ref(line.check).store(0, std::memory_order_seq_cst);
    std::atomic_ref(line.key).store(key, std::memory_order_seq_cst);
    std::atomic_ref(line.stadd).store(stadd, std::memory_order_seq_cst);
    std::atomic_ref(line.check).store(check, std::memory_order_seq_cst);
}

int Doors::open(std::uint64_t key, OwnMemory& slab, utofu_stadd_t& stadd) noexcept
{
    std::lock_guard guard(domain_.home_lock());
    if (!table_)
        if (int ret = make(); ret != 0)
            return ret;
    DoorLine* line = seek(key, false);
    if (line == nullptr)
        line = seek(key, true);
    if (line == nullptr) {
        TOFU_WARN(FI_LOG_EP_CTRL, "collective group: too many are open in this domain: close some\n");
        return -FI_ENOSPC;
    }
    if (int ret = domain_.home().reg(slab.get(), slab.size(), false, stadd); ret != 0)
        return ret;
    write(*line, key, stadd, check_of({key, stadd, 0, 0}, domain_.nonce()));
    return 0;
}

void Doors::shut(std::uint64_t key, bool given_up) noexcept
{
    std::lock_guard guard(domain_.home_lock());
    if (DoorLine* const line = seek(key, false); line != nullptr)
        write(*line, key, DoorLine::gone, given_up ? check_of({key, DoorLine::gone, 0, 0}, domain_.nonce()) : 0);
}

void Doors::release(OwnMemory&& slab, utofu_stadd_t stadd, vcq::Gates& gates, bool quiet) noexcept
{
    std::lock_guard guard(domain_.home_lock());
    OwnMemory mine = std::move(slab);
    if (quiet) {
        gates.free();
        domain_.home().dereg(stadd);
        return;
    }
    Left left;
    left.memory = std::move(mine);
    left.stadd = stadd;
    left.gates = gates;
    if (!left_.reserve(left_.size() + 1))
        (void)new (std::nothrow) OwnMemory(std::move(left.memory)); // without memory to note it in it is never given back
    else
        left_.push_reserved(std::move(left));
}

Doors::Joins* Doors::joins_of(std::uint64_t list, unsigned endpoint) noexcept
{
    Joins* const found = std::find_if(joins_.begin(), joins_.end(), [&](const Joins& joins) {
        return joins.list == list && joins.endpoint == endpoint;
    });
    return found != joins_.end() ? found : nullptr;
}

bool Doors::begin_join(std::uint64_t list, unsigned endpoint, std::uint64_t& before) noexcept
{
    std::lock_guard guard(joins_mutex_);
    Joins* joins = joins_of(list, endpoint);
    if (joins == nullptr) {
        if (!joins_.push({list, 0, endpoint}))
            return false;
        joins = &joins_.back();
    }
    before = joins->count++;
    return true;
}

void Doors::take_back_join(std::uint64_t list, unsigned endpoint) noexcept
{
    std::lock_guard guard(joins_mutex_);
    if (Joins* const joins = joins_of(list, endpoint); joins != nullptr)
        joins->count--;
}

void Doors::close() noexcept
{
    std::lock_guard guard(domain_.home_lock());
    for (Left& left : left_) {
        left.gates.free();
        domain_.home().dereg(left.stadd);
    }
    if (table_)
        domain_.home().dereg(stadd_);
}

} // namespace tofu::coll
