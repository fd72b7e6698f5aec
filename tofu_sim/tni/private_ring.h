// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A queue that only this process sees: TCQ entries and notices a VCQ writes to itself. One thread at a time, by the
// rules of the VCQ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <type_traits>

namespace tofu::sim {

/// Starts over at its first entry whenever it runs empty, so that short bursts stay in the same cache lines and
/// a large capacity costs memory only when it is used.
template <typename T>
class PrivateRing {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    /// False without memory. Keeps the memory it has if that is large enough.
    [[nodiscard]] bool open(uint32_t capacity) noexcept
    {
        if (capacity > allocated_) {
            void* const memory = ::mmap(nullptr, capacity * sizeof(T), PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (memory == MAP_FAILED)
                return false;
            close();
            entries_ = static_cast<T*>(memory);
            allocated_ = capacity;
        }
        capacity_ = capacity;
        clear();
        return true;
    }
    void close() noexcept
    {
        if (entries_ != nullptr)
            (void)::munmap(entries_, allocated_ * sizeof(T));
        entries_ = nullptr;
        allocated_ = capacity_ = 0;
        clear();
    }
    void clear() noexcept
    {
        head_ = 0;
        count(0);
    }

    /// Any thread may call it and gets a recent value (tofu_sim_wait). The rest is for the owner.
    [[nodiscard]] uint32_t size() const noexcept { return __atomic_load_n(&count_, __ATOMIC_RELAXED); }
    [[nodiscard]] bool empty() const noexcept { return size() == 0; }
    [[nodiscard]] bool full() const noexcept { return count_ == capacity_; }

    [[nodiscard]] uint32_t room() const noexcept { return capacity_ - count_; }
    /// Not when full: the entry behind the last, or `ahead` behind it, to be filled in and then taken in by push().
    [[nodiscard]] T& next(uint32_t ahead = 0) noexcept
    {
        const uint32_t position = head_ + count_ + ahead;
        return entries_[position >= capacity_ ? position - capacity_ : position];
    }
    void push(uint32_t entries = 1) noexcept { count(count_ + entries); }
    void push(const T& entry) noexcept
    {
        next() = entry;
        push();
    }
    /// Not when empty.
    [[nodiscard]] const T& front() const noexcept { return entries_[head_]; }
    void pop() noexcept
    {
        const uint32_t left = count_ - 1;
        const uint32_t next = head_ + 1;
        count(left);
        head_ = left == 0 || next == capacity_ ? 0 : next;
    }

  private:
    void count(uint32_t now) noexcept { __atomic_store_n(&count_, now, __ATOMIC_RELAXED); }

    T* entries_ = nullptr;
    uint32_t head_ = 0;
    uint32_t count_ = 0;
    uint32_t capacity_ = 0;
    uint32_t allocated_ = 0;
};

} // namespace tofu::sim
