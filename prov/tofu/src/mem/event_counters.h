// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The endpoints of a domain that count peers' accesses to its regions (FI_RMA_EVENT). Owned by the region table, under
// the home lock; calls counters.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>

#include "av/address.h"
#include "cq/binding.h"

namespace tofu {

/// Counters by endpoint number. Those of an endpoint are valid until it is removed.
class EventCounters {
  public:
    void add(unsigned number, const RxCounters& counters) noexcept { of_[number] = {&counters, ++last_serial_}; }
    void remove(unsigned number) noexcept
    {
        of_[number] = {};
        everything_[number / 64] &= ~bit(number);
    }
    /// From now on the endpoint counts the events of regions that are bound to no endpoint.
    void count_everything(unsigned number) noexcept { everything_[number / 64] |= bit(number); }
    /// A number that no other endpoint of the domain has or had: endpoints get the numbers of closed ones, and their
    /// memory too. 0: there is no such endpoint.
    [[nodiscard]] std::uint64_t serial(unsigned number) const noexcept { return of_[number].serial; }

    /// Does any endpoint count everything?
    [[nodiscard]] bool any() const noexcept
    {
        return std::any_of(std::begin(everything_), std::end(everything_), [](std::uint64_t bits) { return bits != 0; });
    }

    /// Counts an event of a region that is bound to no endpoint.
    void count(bool read) const noexcept
    {
        for (unsigned word = 0; word < std::size(everything_); word++)
            for (std::uint64_t bits = everything_[word]; bits != 0; bits &= bits - 1)
                of_[word * 64 + static_cast<unsigned>(std::countr_zero(bits))].counters->count_remote(read);
    }
    /// Counts an event of a region that is bound to one endpoint, unless that has been closed.
    void count_for(unsigned number, std::uint64_t serial, bool read) const noexcept
    {
        if (of_[number].serial == serial)
            of_[number].counters->count_remote(read);
    }

  private:
    static constexpr std::uint64_t bit(unsigned number) noexcept { return std::uint64_t{1} << number % 64; }

    struct Of {
        const RxCounters* counters = nullptr;
        std::uint64_t serial = 0;
    };
    std::uint64_t last_serial_ = 0;
    Of of_[max_endpoints] = {};
    std::uint64_t everything_[(max_endpoints + 63) / 64] = {}; ///< endpoints of count_everything(), a bit each
};

} // namespace tofu
