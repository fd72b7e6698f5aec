// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registered blocks: a packet, or the payload of a long eager message, stands in one until its Put has read it. Part of
// the sender; calls mem/bounce_pool.h.
#pragma once

#include <cstddef>

#include "mem/bounce_pool.h"
#include "tx/operation.h"

namespace tofu::proto {

class PacketBuffers;

struct PacketBuffer : vcq::Waiter {
    PacketBuffers* owner = nullptr;
    Bounce block{};       ///< kept from its first use on
    std::size_t size = 0; ///< asked for then
};

class PacketBuffers {
  public:
    explicit PacketBuffers(BouncePool& bounces) noexcept : bounces_(bounces) {}
    /// A block that is itself the waiter of the Put that reads it, and is released by the notice. Null: none is free
    /// now.
    [[nodiscard]] PacketBuffer* alloc(std::size_t size) noexcept
    {
        PacketBuffer* buffer = pool_for(size).alloc();
        if (buffer != nullptr && buffer->block.data == nullptr) [[unlikely]]
            return fill(*buffer, size);
        return buffer;
    }
    void release(PacketBuffer& buffer) noexcept { pool_for(buffer.size).release(&buffer); }

  private:
    [[nodiscard]] Pool<PacketBuffer>& pool_for(std::size_t size) noexcept
    {
        return size <= BouncePool::small_size ? small_ : large_;
    }
    /// Allocates the memory of a buffer that is used for the first time.
    [[nodiscard, gnu::cold, gnu::noinline]] PacketBuffer* fill(PacketBuffer& buffer, std::size_t size) noexcept
    {
        buffer.size = size;
        buffer.block = bounces_.alloc(size);
        if (buffer.block.data == nullptr) {
            release(buffer);
            return nullptr;
        }
        buffer.notify = on_sent;
        buffer.owner = this;
        return &buffer;
    }
    static void on_sent(vcq::Waiter* waiter, const vcq::Notice&) noexcept
    {
        auto& buffer = *static_cast<PacketBuffer*>(waiter); // the MRQ tells the channel of a failure
        buffer.owner->release(buffer);
    }

    BouncePool& bounces_;
    // Each keeps its block; a quarter of all blocks is left for headers of peers.
    Pool<PacketBuffer> small_{BouncePool::blocks_of[0] / 4 * 3};
    Pool<PacketBuffer> large_{BouncePool::blocks_of[1] / 4 * 3};
};

} // namespace tofu::proto
