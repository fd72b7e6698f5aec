// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Slabs of registered blocks. See bounce_pool.h.
#include "mem/bounce_pool.h"

#include <utility>

namespace tofu {

BouncePool::~BouncePool()
{
    for (const Slab& slab : slabs_) {
        if (!slab.memory)
            continue;
        if (lock_ != nullptr)
            lock_->lock();
        vcq_.dereg(slab.stadd);
        if (lock_ != nullptr)
            lock_->unlock();
    }
}

/// The caller may hold a lock that comes after the VCQ's, so it does not wait for that without end.
bool BouncePool::register_slab(const OwnMemory& memory, utofu_stadd_t& stadd) noexcept
{
    constexpr unsigned most_tries = 10000;
    for (unsigned tries = 0; lock_ != nullptr && !lock_->try_lock(); tries++)
        if (tries == most_tries)
            return false;
    const bool done = vcq_.reg(memory.get(), memory.size(), false, stadd) == 0;
    if (lock_ != nullptr)
        lock_->unlock();
    return done;
}

bool BouncePool::make(unsigned kind) noexcept
{
    Slab& slab = slabs_[kind];
    if (slab.memory)
        return false; // made already: all in use
    OwnMemory memory(kinds_[kind].blocks * kinds_[kind].size);
    if (!memory || !slab.free.reserve(kinds_[kind].blocks) || !register_slab(memory, slab.stadd))
        return false;
    slab.memory = std::move(memory);
    for (unsigned i = kinds_[kind].blocks; i-- > 0;)
        slab.free.push_reserved(i);
    return true;
}

Bounce BouncePool::alloc(std::size_t size) noexcept
{
    for (unsigned kind = 0; kind < 2; kind++) {
        Slab& slab = slabs_[kind];
        if (size > kinds_[kind].size || (slab.free.empty() && !make(kind)))
            continue;
        const std::size_t offset = slab.free.back() * kinds_[kind].size;
        slab.free.pop_back();
        return {slab.memory.get() + offset, slab.stadd + offset};
    }
    return {};
}

void BouncePool::release(const Bounce& block) noexcept
{
    for (unsigned kind = 0; kind < 2; kind++) {
        Slab& slab = slabs_[kind];
        std::byte* const data = slab.memory.get();
        if (data == nullptr || block.data < data || block.data >= data + kinds_[kind].blocks * kinds_[kind].size)
            continue;
        slab.free.push_reserved(static_cast<std::uint32_t>((block.data - data) /
                                                       static_cast<std::ptrdiff_t>(kinds_[kind].size)));
        return;
    }
}

} // namespace tofu
