// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory for receives and messages that wait to be matched. Each record takes its size, in steps of 16 bytes, out of
// chunks that are freed when no record is in use. Used by the receive queue under its lock; calls malloc.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace tofu::proto {

class SizedPool {
  public:
    SizedPool() = default;
    SizedPool(const SizedPool&) = delete;
    SizedPool& operator=(const SizedPool&) = delete;
    ~SizedPool() { drop(nullptr); }

    /// Null: no memory.
    [[nodiscard, gnu::always_inline]] void* alloc(std::size_t size) noexcept
    {
        if (size > largest) [[unlikely]]
            return std::malloc(size);
        Free*& first = free_[steps(size)];
        if (first == nullptr) [[unlikely]]
            return carve(size);
        Free* const item = first;
        first = item->next;
        live_++;
        return item;
    }
    /// `size`: as given to alloc.
    [[gnu::always_inline]] void release(void* item, std::size_t size) noexcept
    {
        if (size > largest) [[unlikely]] {
            std::free(item);
            return;
        }
        Free*& first = free_[steps(size)];
        first = ::new (item) Free{first};
        if (--live_ == 0 && chunks_->next != nullptr) [[unlikely]]
            restart();
    }

  private:
    struct Free {
        Free* next;
    };
    struct Chunk {
        Chunk* next;
        std::size_t unused; ///< keeps what follows at a multiple of 16
    };
    static constexpr std::size_t step = 16;
    static constexpr std::size_t largest = 1024;
    static constexpr std::size_t chunk_size = 65536 - 64; ///< with malloc's own words less than 64 KiB

    static constexpr std::size_t steps(std::size_t size) noexcept { return (size + step - 1) / step; }

    [[gnu::noinline]] void* carve(std::size_t size) noexcept
    {
        const std::size_t bytes = steps(size) * step;
        if (left_ < bytes) {
            auto* chunk = static_cast<Chunk*>(std::malloc(chunk_size));
            if (chunk == nullptr)
                return nullptr;
            chunk->next = chunks_;
            chunks_ = chunk;
            left_ = chunk_size - sizeof(Chunk);
        }
        live_++;
        left_ -= bytes;
        return reinterpret_cast<std::byte*>(chunks_) + sizeof(Chunk) + left_;
    }
    /// Frees all chunks but one, when no record is in use.
    [[gnu::noinline]] void restart() noexcept
    {
        drop(chunks_);
        for (Free*& first : free_)
            first = nullptr;
        left_ = chunk_size - sizeof(Chunk);
    }
    void drop(Chunk* but) noexcept
    {
        while (chunks_ != nullptr) {
            Chunk* const chunk = chunks_;
            chunks_ = chunk->next;
            if (chunk != but)
                std::free(chunk);
        }
        chunks_ = but;
        if (but != nullptr)
            but->next = nullptr;
    }

    Free* free_[largest / step + 1] = {};
    Chunk* chunks_ = nullptr; ///< records are cut from the first, starting at its end
    std::size_t left_ = 0;    ///< bytes left in the first
    std::size_t live_ = 0;
};

} // namespace tofu::proto
