// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory for what the provider registers for itself, in pages of its own: at fork the pages that hold registered memory
// are not given to the child, with all that lies in them (guide 6.1.4.1). Where pages are large what is small shares
// them with its like, for registered pages are pinned. Used by memory, remote, rma, atomic; calls the kernel. Slow path.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>

namespace tofu {

/// Whole pages, and pieces of them. Any thread. A child of fork leaves its parent's alone.
class PagePool {
  public:
    /// For pages of the system's size, or of a test's (a power of two).
    constexpr explicit PagePool(std::size_t page = 0) noexcept : page_(page) {}
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    static PagePool& of_process() noexcept;

    /// Memory aligned to 256 bytes at least, or null where there is none. What is in it is anything.
    [[nodiscard]] std::byte* alloc(std::size_t bytes) noexcept;
    /// Takes back what alloc() has given for as many bytes; it is not registered any more.
    void release(std::byte* data, std::size_t bytes) noexcept;

  private:
    struct Chunk;
    void begin() noexcept;
    [[nodiscard]] std::size_t granules(std::size_t bytes) const noexcept;
    [[nodiscard]] std::byte* map(std::size_t bytes) const noexcept;

    std::mutex mutex_;
    const std::size_t page_; ///< 0: the system's
    std::size_t unit_ = 0;   ///< bytes of a chunk that is shared, and what all are aligned to; 0: not known yet
    Chunk* chunks_ = nullptr;
    int owner_ = 0;          ///< process whose chunks these are
};

/// Memory from the process's pool, given back at its end. Deregister it before.
class OwnMemory {
  public:
    OwnMemory() = default;
    /// Without memory where there is none.
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
