// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Parts of fast paths that save an allocation or a search: a pool of objects of one kind (Pool), memory for records of
// different sizes (SizedPool), and a cache of what was last found for an address (Recent).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "core/containers.h"

namespace tofu {

// --- Pool

/// A bounded pool of requests of one kind; alloc() is null when all are under way (-FI_EAGAIN for the
/// caller). Memory comes in chunks as it is first needed and stays. Under the context's lock.
template <class T>
class Pool {
  public:
    explicit Pool(std::size_t limit) : limit_(limit) {}

    [[nodiscard]] T* alloc() noexcept
    {
        if (free_count_ == 0) [[unlikely]]
            if (!grow())
                return nullptr;
        return free_[--free_count_];
    }
    void release(T* item) noexcept { free_[free_count_++] = item; }
    /// Takes back an item and makes it as new.
    void renew(T* item) noexcept
    {
        std::destroy_at(item);
        release(::new (item) T);
    }
    /// Calls `visit` for every item ever made, in use or free.
    template <class Visit>
    void each(Visit&& visit)
    {
        for (std::size_t i = 0; i < made_; i++)
            visit(chunks_[i / chunk][i % chunk]);
    }
    [[nodiscard]] std::size_t in_use() const noexcept { return made_ - free_count_; }

  private:
    static constexpr std::size_t chunk = 64;
    [[gnu::noinline]] bool grow() noexcept
    {
        if (made_ >= limit_)
            return false;
        std::size_t n = limit_ - made_ < chunk ? limit_ - made_ : chunk;
        auto items = std::unique_ptr<T[]>(new (std::nothrow) T[n]);
        auto room = std::unique_ptr<T*[]>(new (std::nothrow) T*[made_ + n]); // no item is free: nothing to copy
        if (!items || !room || !chunks_.reserve(chunks_.size() + 1))
            return false;
        free_ = std::move(room);
        for (std::size_t i = n; i-- > 0;)
            release(&items[i]);
        made_ += n;
        chunks_.push_reserved(std::move(items));
        return true;
    }

    std::size_t limit_;
    std::size_t made_ = 0;
    std::unique_ptr<T*[]> free_; ///< has room for all items made
    std::size_t free_count_ = 0;
    Array<std::unique_ptr<T[]>> chunks_;
};

// --- SizedPool: memory for records. Each takes its size, in steps of 16 bytes, out of chunks that are freed when no
// record is in use.

class SizedPool {
  public:
    SizedPool() = default;
    SizedPool(const SizedPool&) = delete;
    SizedPool& operator=(const SizedPool&) = delete;
    ~SizedPool() { drop(nullptr); }

    /// Null: no memory.
    [[nodiscard]] void* alloc(std::size_t size) noexcept
    {
        if (size > largest) [[unlikely]]
            return std::malloc(size);
        void* const item = recycle(size);
        return item != nullptr ? item : carve(size);
    }
    /// A record of this size, `largest` at most, that was in use before. Null: there is none; call alloc().
    [[nodiscard, gnu::always_inline]] void* recycle(std::size_t size) noexcept
    {
        Free*& first = free_[steps(size)];
        Free* const item = first;
        if (item == nullptr) [[unlikely]]
            return nullptr;
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

// --- Recent: a small cache of what was last found for an address of the application. A program that talks to many
// peers in turn, as collectives of MPI do, finds each by one comparison.

/// Direct-mapped by the low bits of the address; keeps the value noted last. A default Value belongs to no address. The
/// user checks whether a value is still valid.
template <class Value>
class Recent {
  public:
    /// The value noted for this address, or for another one with the same low bits: the user compares its `address`.
    [[nodiscard]] const Value& at(std::uint64_t address) const noexcept { return values_[slot_of(address)]; }
    void note(const Value& value) noexcept { values_[slot_of(value.address)] = value; }
    /// Forgets the values for which `is_void` holds.
    template <class IsVoid>
    void forget_if(IsVoid&& is_void) noexcept
    {
        for (Value& value : values_)
            if (is_void(value))
                value = Value{};
    }

  private:
    static constexpr std::size_t size = 64;
    /// Receive contexts (fi_rx_addr) stand in the upper bits.
    static std::size_t slot_of(std::uint64_t address) noexcept { return (address ^ address >> 58) % size; }

    Value values_[size] = {};
};

} // namespace tofu
