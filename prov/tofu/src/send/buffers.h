// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registered blocks: a packet stands in one until its Put has read it, the copy of a message until the receiver has
// fetched it. Part of the sender; calls local/bounce.h.
#pragma once

#include <cstddef>

#include "local/bounce.h"
#include "transfer/request.h"

namespace tofu::proto {

class PacketBuffers;

struct PacketBuffer : vcq::Waiter {
    PacketBuffers* owner = nullptr;
    Bounce block{};       ///< kept from its first use on
    std::size_t size = 0; ///< asked for then
};

class PacketBuffers {
  public:
    PacketBuffers(BouncePool& bounces, vcq::Vcq& vcq) noexcept : bounces_(bounces), copies_(vcq, {}, {copy_size, copies}) {}
    /// Messages of up to so many bytes are copied for the receiver to fetch, so that the sender need not wait for the
    /// fetch: the copy takes a microsecond, two switches between processes take several. Longer copies, or more of
    /// them, would push each other out of the processor's cache.
    static constexpr std::size_t copy_size = 16384;
    /// A block for such a copy. It is never one of the blocks for packets: the receive that fetches the copy may be
    /// posted after messages that are sent later.
    [[nodiscard]] PacketBuffer* alloc_copy() noexcept { return alloc(copy_size); }
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
        return size <= BouncePool::small_size ? small_ : size <= BouncePool::large_size ? large_ : copied_;
    }
    /// Allocates the memory of a buffer that is used for the first time.
    [[nodiscard, gnu::cold, gnu::noinline]] PacketBuffer* fill(PacketBuffer& buffer, std::size_t size) noexcept
    {
        buffer.size = size;
        buffer.block = (size <= BouncePool::large_size ? bounces_ : copies_).alloc(size);
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

    static constexpr unsigned copies = 16;

    BouncePool& bounces_;
    BouncePool copies_;
    // Each keeps its block; a quarter of all blocks is left for headers of peers.
    Pool<PacketBuffer> small_{BouncePool::blocks_of[0] / 4 * 3};
    Pool<PacketBuffer> large_{BouncePool::blocks_of[1] / 4 * 3};
    Pool<PacketBuffer> copied_{copies};
};

} // namespace tofu::proto
