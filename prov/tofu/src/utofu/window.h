// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The completion window of a VCQ: finds the waiter of a notice. A signaled post takes a place, whose number travels as
// EDATA and comes back with the notice; EDATA is one byte (caps: max_edata_size 1). Part of the VCQ, under its owner's
// lock; calls the waiters of posts that are given up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tofu::vcq {

/// The end of a communication, as its waiter is told.
struct Notice {
    int code;            ///< UTOFU_SUCCESS or the UTOFU_ERR_{TCQ,MRQ}_* of this communication
    std::uint64_t value; ///< ARMW: the value before the operation; else 0
};

/// Waits for the end of a communication; base of requests. Its function runs in the thread that polls, under the lock
/// of the VCQ's owner, and may post again.
struct Waiter {
    using Function = void (*)(Waiter* self, const Notice& notice) noexcept;
    Function notify;
};

/// The places, numbered 1 to size - 1. They are matched one by one, since notices keep their order only per remote VCQ
/// (guide 2.2.10).
class Window {
  public:
    static constexpr unsigned size = 255;
    /// Number of notices of a batch that lasts until it is closed.
    static constexpr unsigned endless = 0xffff;

    /// True if all places are free.
    void reset() noexcept;
    /// The place that take() gives next, or 0: none is free. It lets the owner keep its state by place
    /// (tx/quick.h), without an allocation.
    [[nodiscard]] std::uint8_t next() const noexcept { return first_free_; }
    [[nodiscard]] unsigned free() const noexcept { return free_count_; }
    [[nodiscard]] bool all_free() const noexcept { return free_count_ == size - 1; }
    [[nodiscard]] bool nobody_waits() const noexcept { return all_free() || all_given_up(); }

    /// Takes a place for one notice. 0: none is free.
    [[nodiscard, gnu::always_inline]] std::uint8_t take(Waiter* waiter) noexcept
    {
        const std::uint8_t number = first_free_;
        if (number == 0) [[unlikely]]
            return 0;
        Place& place = places_[number];
        first_free_ = place.next_free;
        free_count_--;
        place.waiter = waiter;
        return number;
    }
    void give_back(std::uint8_t number) noexcept
    {
        Place& place = places_[number];
        place.waiter = nullptr;
        place.expected = 1;
        place.age = 0;
        place.next_free = first_free_;
        first_free_ = number;
        free_count_++;
    }
    /// A notice has come: returns its waiter. Null: the waiter has been told already.
    [[nodiscard, gnu::always_inline]] Waiter* arrived(std::uint8_t number) noexcept
    {
        Place& place = places_[number];
        Waiter* const waiter = place.waiter;
        if (waiter == nullptr) [[unlikely]]
            return nullptr;
        if (place.expected == 1) [[likely]]
            give_back(number);
        else
            (void)shorten(number);
        return waiter;
    }

    // --- batches: posts to one peer that share one place. Notices of posts to the same remote VCQ come in the order of
    // the posts (guide 2.2.10), so the waiter can count them.
    /// Makes the place one for so many notices.
    void expect(std::uint8_t number, unsigned notices) noexcept
    {
        places_[number].expected = static_cast<std::uint16_t>(notices);
    }
    /// Announces so many more notices.
    void extend(std::uint8_t number, unsigned more) noexcept
    {
        expect(number, places_[number].expected + more);
        places_[number].age = 0;
    }
    /// One announced notice has come, or will not come. False: it was the last one, and the batch is closed.
    [[nodiscard]] bool shorten(std::uint8_t number) noexcept
    {
        Place& place = places_[number];
        if (place.expected == endless)
            return true;
        place.age = 0;
        if (--place.expected != 0)
            return true;
        give_back(number);
        return false;
    }
    /// Frees the place, if it still belongs to `waiter`: no notice will come for it any more.
    void close(std::uint8_t number, const Waiter* waiter) noexcept
    {
        if (places_[number].waiter == waiter)
            give_back(number);
    }
    /// Ends an endless batch for which failures may still arrive at any time. Its place is not freed, so that they
    /// reach no other waiter, and nobody_waits() does not count it.
    void abandon(std::uint8_t number, const Waiter* waiter) noexcept
    {
        if (places_[number].waiter == waiter)
            places_[number].waiter = &nobody;
    }

    // --- communications that do not end
    static constexpr std::uint16_t lost_age = 3; ///< calls of grow_older() after the last notice
    /// Has any place reached that age? If no place is free, given up places of that age are used again.
    [[nodiscard]] bool grow_older() noexcept;
    /// Gives up the waiters of an age whose notices have not come, and tells them. False: there was none. `for good`:
    /// their places are free again; else not, so that a late notice is not taken for that of another waiter.
    bool give_up(int code, bool for_good, std::uint16_t least_age = 0) noexcept;

  private:
    /// The waiter of places that were given up. They are not free, so that late notices reach no other waiter.
    static void ignore(Waiter*, const Notice&) noexcept {}
    static constinit inline Waiter nobody{ignore};
    struct Place {
        Waiter* waiter = nullptr; ///< null: the place is free
        std::uint8_t next_free = 0;
        std::uint16_t expected = 1; ///< notices until the place is free again; 1 except for batches
        std::uint16_t age = 0;
    };
    [[nodiscard, gnu::cold]] bool all_given_up() const noexcept;

    std::uint16_t free_count_ = 0;
    std::uint8_t first_free_ = 0; ///< 0: none
    Place places_[size];
};

} // namespace tofu::vcq
