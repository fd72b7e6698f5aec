// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory that the provider registers for itself, in pages of its own: a child of fork does not get pages with
// registered memory, nor anything else that lies in them (guide 6.1.4.1). Where pages are large, small pieces share
// one, since registered pages are pinned. Used by memory, remote, rma, atomic; calls mem/numa, the kernel. Slow path.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>

namespace tofu {

/// Allocates whole pages, and pieces of them. Any thread. A child of fork does not touch its parent's.
class PagePool {
  public:
    /// With pages of the system's size, or of a size for tests (a power of two).
    constexpr explicit PagePool(std::size_t page = 0) noexcept : page_(page) {}
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

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

    std::mutex mutex_;
    const std::size_t page_; ///< 0: the system's
    std::size_t unit_ = 0;   ///< bytes of a shared chunk, and the alignment of all chunks; 0: not known yet
    Chunk* chunks_ = nullptr;
    int owner_ = 0;          ///< the process that owns the chunks
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

} // namespace tofu
