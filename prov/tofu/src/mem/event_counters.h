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
        everything_.clear(number);
        for (const bool read : {false, true})
            if (counting_[read].has(number)) {
                counting_[read].clear(number);
                everything_.each([&](unsigned other) { count_with(other, read); });
            }
        of_[number] = {};
    }
    /// From now on the endpoint counts the events of regions that are bound to no endpoint.
    void count_everything(unsigned number) noexcept
    {
        everything_.set(number);
        for (const bool read : {false, true})
            count_with(number, read);
    }
    /// A number that no other endpoint of the domain has or had: endpoints get the numbers of closed ones, and their
    /// memory too. 0: there is no such endpoint.
    [[nodiscard]] std::uint64_t serial(unsigned number) const noexcept { return of_[number].serial; }

    /// Does any endpoint count everything?
    [[nodiscard]] bool any() const noexcept { return everything_.any(); }

    /// Counts an event of a region that is bound to no endpoint: once at each counter, though several endpoints have it.
    void count(bool read) const noexcept
    {
        counting_[read].each([&](unsigned number) { of_[number].counters->count_remote(read); });
    }
    /// Counts an event of a region that is bound to one endpoint, unless that has been closed.
    void count_for(unsigned number, std::uint64_t serial, bool read) const noexcept
    {
        if (of_[number].serial == serial)
            of_[number].counters->count_remote(read);
    }

  private:
    /// A set of endpoint numbers.
    class Numbers {
      public:
        void set(unsigned number) noexcept { words_[number / 64] |= bit(number); }
        void clear(unsigned number) noexcept { words_[number / 64] &= ~bit(number); }
        [[nodiscard]] bool has(unsigned number) const noexcept { return (words_[number / 64] & bit(number)) != 0; }
        [[nodiscard]] bool any() const noexcept
        {
            return std::any_of(std::begin(words_), std::end(words_), [](std::uint64_t bits) { return bits != 0; });
        }
        template <class Call>
        void each(Call&& call) const noexcept
        {
            for (unsigned word = 0; word < std::size(words_); word++)
                for (std::uint64_t bits = words_[word]; bits != 0; bits &= bits - 1)
                    call(word * 64 + static_cast<unsigned>(std::countr_zero(bits)));
        }

      private:
        static constexpr std::uint64_t bit(unsigned number) noexcept { return std::uint64_t{1} << number % 64; }
        std::uint64_t words_[(max_endpoints + 63) / 64] = {};
    };

    /// The endpoint counts for its counter, unless another one with that counter does.
    void count_with(unsigned number, bool read) noexcept
    {
        const Counter* const counter = of_[number].counters->remote(read);
        bool taken = counter == nullptr;
        counting_[read].each([&](unsigned other) { taken |= of_[other].counters->remote(read) == counter; });
        if (!taken)
            counting_[read].set(number);
    }

    struct Of {
        const RxCounters* counters = nullptr;
        std::uint64_t serial = 0;
    };
    std::uint64_t last_serial_ = 0;
    Of of_[max_endpoints] = {};
    Numbers everything_;  ///< endpoints of count_everything()
    Numbers counting_[2]; ///< of these, one for each counter of writes, and of reads
};

} // namespace tofu
