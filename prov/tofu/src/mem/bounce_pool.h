// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory that the provider registers for itself: on which NUMA node it lies (place_memory), pages of its own (PagePool,
// OwnMemory), and bounce blocks, from which bytes are sent and to which they come where the user's buffer is not
// registered (Bounce, BouncePool).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "core/containers.h"
#include "core/lock.h"
#include "core/system.h"
#include "utofu/vcq.h"

namespace tofu {

// --- NUMA: the node of receive areas, bounce pools, internal queues

/// Memory that is mapped and not touched yet: its pages shall come from the NUMA node of the calling thread, which will
/// poll it, if the thread is bound to one; else they come from where they are first touched. Slow path, any thread.
void place_memory(void* base, std::size_t bytes) noexcept;

/// A number for the NUMA node that the calling thread is bound to; -1: several, or nothing is known of it.
[[nodiscard]] int numa_node_of_thread() noexcept;

/// What has been placed in this process, as text of one line without a newline.
void describe_placement(char* text, std::size_t size) noexcept;

// --- PagePool, OwnMemory: registered memory lies in pages of its own. A child of fork does not get pages with
// registered memory, nor anything else that lies in them (guide 6.1.4.1). Where pages are large, small pieces share
// one, since registered pages are pinned. Slow path.

/// Allocates whole pages, and pieces of them. Any thread. A child of fork does not touch its parent's.
class PagePool {
  public:
    /// With pages of the system's size, or of a size for tests (a power of two).
    constexpr explicit PagePool(std::size_t page = 0) noexcept : page_(page) {}

    static PagePool& of_process() noexcept;

    /// Memory aligned to at least 256 bytes, with undefined content; null: there is none.
    [[nodiscard]] std::byte* alloc(std::size_t bytes) noexcept;
    /// Takes back memory from alloc() of the same size, which is no longer registered.
    void release(std::byte* data, std::size_t bytes) noexcept;

  private:
    struct Chunk;
    void begin() noexcept;
    [[nodiscard]] std::size_t granules(std::size_t bytes) const noexcept;
    [[nodiscard]] std::byte* map(std::size_t bytes) const noexcept;

    Mutex mutex_;
    const std::size_t page_; ///< 0: the system's
    std::size_t unit_ = 0;   ///< bytes of a shared chunk, and the alignment of all chunks; 0: not known yet
    Chunk* chunks_ = nullptr;
    int owner_ = 0; ///< the process that owns the chunks
};

/// Memory from the process's pool, freed with this object. It has to be deregistered before.
class OwnMemory {
  public:
    OwnMemory() = default;
    /// Empty if there is no memory.
    explicit OwnMemory(std::size_t bytes) noexcept : data_(PagePool::of_process().alloc(bytes)), bytes_(bytes) {}
    OwnMemory(OwnMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    OwnMemory& operator=(OwnMemory&& other) noexcept
    {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~OwnMemory()
    {
        if (data_ != nullptr)
            PagePool::of_process().release(data_, bytes_);
    }

    explicit operator bool() const noexcept { return data_ != nullptr; }
    [[nodiscard]] std::byte* get() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

  private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// --- BouncePool: registered blocks that small transfers pass through. Copying a few KiB is cheaper than registering
// the user's buffer, which is a system call on the hardware.

/// A block; `data` is null where there is none.
struct Bounce {
    std::byte* data = nullptr;
    utofu_stadd_t stadd = 0;
};

/// Blocks of two sizes. Whole slabs of them are allocated and registered when first needed, and freed with the
/// endpoint.
class BouncePool {
  public:
    static constexpr std::size_t small_size = 512;
    static constexpr std::size_t large_size = 8192;
    static constexpr unsigned blocks_of[2] = {256, 32};
    /// Blocks of one size, a slab.
    struct Kind {
        std::size_t size;
        unsigned blocks;
    };

    explicit BouncePool(vcq::Vcq& vcq) noexcept
        : BouncePool(vcq, {small_size, blocks_of[0]}, {large_size, blocks_of[1]})
    {
    }
    /// The smaller first. `lock`, if not null, is that of the VCQ's owner: a new slab is made while that is free, and
    /// the destructor takes it.
    BouncePool(vcq::Vcq& vcq, Kind small, Kind large, Lock* lock = nullptr) noexcept
        : vcq_(vcq), lock_(lock), kinds_{small, large}
    {
    }
    ~BouncePool();

    /// A block of at least `size` bytes, which is at most the size of a large one; without data when all are in use.
    [[nodiscard]] Bounce alloc(std::size_t size) noexcept;
    void release(const Bounce& block) noexcept;

  private:
    struct Slab {
        OwnMemory memory;
        utofu_stadd_t stadd = 0;
        Array<std::uint32_t> free;
    };
    [[nodiscard]] bool make(unsigned kind) noexcept;
    [[nodiscard]] bool register_slab(const OwnMemory& memory, utofu_stadd_t& stadd) noexcept;

    vcq::Vcq& vcq_;
    Lock* lock_;
    Kind kinds_[2];
    Slab slabs_[2];
};

} // namespace tofu
