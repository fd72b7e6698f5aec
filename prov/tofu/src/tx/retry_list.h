// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What parts of operations have to do in a later round of progress: parts that found no room go on in the next round,
// parts that lost against others after a random pause. Used by atomic and message under the context's lock; calls them
// back.
#pragma once

#include <cstdint>

namespace tofu {

/// A part that goes on later. It is on the agenda at most once.
struct Deferred {
    using Function = void (*)(Deferred& self) noexcept;
    Function go_on;
    Deferred* after = nullptr;
    std::uint32_t due = 0; ///< the tick in which it goes on
};

class Agenda {
  public:
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    /// Lets the item go on in one of the next `within` rounds, at random.
    void add(Deferred& item, std::uint32_t within = 1) noexcept { put(item, tick_ + random() % within); }
    void round() noexcept
    {
        ++tick_;
        Deferred* item = first_; // an item that goes on may add itself again
        first_ = last_ = nullptr;
        while (item != nullptr) {
            Deferred* const after = item->after;
            if (!closed_ && static_cast<std::int32_t>(tick_ - item->due) < 0) // ticks wrap
                put(*item, item->due);
            else
                item->go_on(*item);
            item = after;
        }
    }
    /// From now on nothing is put off: items that go on in finish() see closed(), and end.
    void close() noexcept { closed_ = true; }
    void finish() noexcept
    {
        while (!empty())
            round();
    }
    [[nodiscard]] bool closed() const noexcept { return closed_; }

  private:
    void put(Deferred& item, std::uint32_t due) noexcept
    {
        item.due = due;
        item.after = nullptr;
        (first_ != nullptr ? last_->after : first_) = &item;
        last_ = &item;
    }
    [[nodiscard]] std::uint32_t random() noexcept
    {
        random_ ^= random_ << 13;
        random_ ^= random_ >> 17;
        random_ ^= random_ << 5;
        return random_;
    }

    Deferred* first_ = nullptr;
    Deferred* last_ = nullptr;
    std::uint32_t tick_ = 0; ///< counts rounds
    std::uint32_t random_ = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(this) >> 4) | 1;
    bool closed_ = false;
};

/// A place where one item works and the others queue up behind it.
template <class T>
struct Turns {
    T* active = nullptr;
    T* waiting = nullptr; ///< oldest first, by T::next
    T* last = nullptr;

    void queue_up(T& item) noexcept
    {
        (waiting != nullptr ? last->next : waiting) = &item;
        last = &item;
    }
    /// Makes the next item active, or none.
    T* pass() noexcept
    {
        active = waiting;
        if (active != nullptr) {
            waiting = active->next;
            active->next = nullptr;
        }
        return active;
    }
};

} // namespace tofu
