// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registered blocks in which packets stand until their Put has read them, and copies of messages until they are fetched. Part of the sender; calls local/bounce.h.
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
    /// What is fetched is copied up to here where the sender need not wait for that: a copy takes a microsecond, and two
    /// switches between processes several. Longer copies, or more, would push each other out of the processor's cache.
    static constexpr std::size_t copy_size = 16384;
    /// Of that size, never one of those for packets: a receive that fetches it may come after messages sent later.
    [[nodiscard]] PacketBuffer* alloc_copy() noexcept { return alloc(copy_size); }
    /// One that is released by the notice of a Put whose waiter it is. Null: there is none now.
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
    /// A block for one that has none yet.
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
        auto& buffer = *static_cast<PacketBuffer*>(waiter); // a failure shows at the channel, by the MRQ
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
