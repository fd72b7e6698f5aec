// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The endpoints of a domain that count peers' accesses to its regions (FI_RMA_EVENT). Owned by the region table, under
// the home lock, which the functions for endpoints take themselves; calls counters.
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <mutex>

#include "address/address.h"
#include "provider/lock.h"
#include "queue/binding.h"

namespace tofu {

/// Counters by endpoint number. Those of an endpoint are valid until it is removed.
class EventCounters {
  public:
    explicit EventCounters(Lock& home) noexcept : home_(home) {}
    // These three take the lock.
    void add(unsigned number, const RxCounters& counters) noexcept
    {
        std::lock_guard guard(home_);
        of_[number] = &counters;
    }
    void remove(unsigned number) noexcept
    {
        std::lock_guard guard(home_);
        of_[number] = nullptr;
        everything_[number / 64] &= ~bit(number);
    }
    /// From now on the endpoint counts the events of regions that are bound to no endpoint.
    void count_everything(unsigned number) noexcept
    {
        std::lock_guard guard(home_);
        everything_[number / 64] |= bit(number);
    }
    [[nodiscard]] bool has(unsigned number, const RxCounters* counters) const noexcept { return of_[number] == counters; }

    /// Counts an event of a region that is bound to no endpoint.
    void count(bool read) const noexcept
    {
        for (unsigned word = 0; word < std::size(everything_); word++)
            for (std::uint64_t bits = everything_[word]; bits != 0; bits &= bits - 1)
                of_[word * 64 + static_cast<unsigned>(std::countr_zero(bits))]->count_remote(read);
    }

  private:
    static constexpr std::uint64_t bit(unsigned number) noexcept { return std::uint64_t{1} << number % 64; }

    Lock& home_;
    const RxCounters* of_[max_endpoints] = {};
    std::uint64_t everything_[(max_endpoints + 63) / 64] = {}; ///< endpoints of count_everything(), a bit each
};

} // namespace tofu
