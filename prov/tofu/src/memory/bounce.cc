// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Slabs of registered blocks. See bounce.h. Called by rma and messages under the endpoint's lock; calls vcq.
#include "memory/bounce.h"

#include <new>

namespace tofu {

namespace {
constexpr std::align_val_t slab_alignment{4096};
}

BouncePool::~BouncePool()
{
    for (Slab& slab : slabs_) {
        if (slab.data == nullptr)
            continue;
        vcq_.dereg(slab.stadd);
        ::operator delete(slab.data, slab_alignment);
    }
}

bool BouncePool::make(unsigned kind) noexcept
{
    Slab& slab = slabs_[kind];
    if (slab.data != nullptr)
        return false; // made already: all in use
    const std::size_t bytes = blocks_of[kind] * size_of[kind];
    auto* data =
        static_cast<std::byte*>(::operator new(bytes, slab_alignment, std::nothrow));
    if (data == nullptr)
        return false;
    utofu_stadd_t stadd = 0;
    if (vcq_.reg(data, bytes, false, stadd) != 0) {
        ::operator delete(data, slab_alignment);
        return false;
    }
    slab.data = data;
    slab.stadd = stadd;
    slab.free.reserve(blocks_of[kind]);
    for (unsigned i = blocks_of[kind]; i-- > 0;)
        slab.free.push_back(i);
    return true;
}

Bounce BouncePool::alloc(std::size_t size) noexcept
{
    const unsigned first = size <= small_size ? 0 : 1;
    if (size > large_size)
        return {};
    for (unsigned kind = first; kind < 2; kind++) {
        Slab& slab = slabs_[kind];
        if (slab.free.empty() && !make(kind))
            continue;
        const std::size_t offset = slab.free.back() * size_of[kind];
        slab.free.pop_back();
        return {slab.data + offset, slab.stadd + offset};
    }
    return {};
}

void BouncePool::release(const Bounce& block) noexcept
{
    for (unsigned kind = 0; kind < 2; kind++) {
        Slab& slab = slabs_[kind];
        if (slab.data == nullptr || block.data < slab.data ||
            block.data >= slab.data + blocks_of[kind] * size_of[kind])
            continue;
        slab.free.push_back(static_cast<std::uint32_t>((block.data - slab.data) /
                                                       static_cast<std::ptrdiff_t>(size_of[kind])));
        return;
    }
}

} // namespace tofu
