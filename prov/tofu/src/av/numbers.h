// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The numbers of a domain's endpoints, which their addresses and their reserved STags name. A peer that was stopped
// may write to the area of an endpoint that is closed, so a number is free for a successor only when no peer can do
// so ("Writes that outlive their endpoint" in docs/wire-protocol.md). Owned by the domain; any thread; calls the
// kernel.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <mutex>

#include "av/address.h"

namespace tofu {

class EndpointNumbers {
  public:
    using Set = std::bitset<max_endpoints>;

    /// In a test: the domains that give numbers back now are remains of a process that was killed, which writes nothing.
    static inline bool killed_of_test = false;

    EndpointNumbers() = default;
    EndpointNumbers(const EndpointNumbers&) = delete;
    EndpointNumbers& operator=(const EndpointNumbers&) = delete;
    ~EndpointNumbers();

    /// Reads from a file of the node which numbers earlier domains with this home VCQ have left unsettled; they may
    /// have been killed, or belong to other processes. `job` names the process's job where VCQ IDs are unique within
    /// a job only, else null. Without such a file the first number follows from `random`.
    void open(const char* job, std::uint64_t home, std::uint64_t random) noexcept;
    /// Takes `count` numbers in a row, for an endpoint or the receive contexts of a scalable endpoint: numbers that
    /// this domain has not used, then those that were given back first, unsettled ones last. 0 or -FI_ENOSPC.
    [[nodiscard]] int take(unsigned count, unsigned& first) noexcept;
    /// A peer may still write to the area of this number, which is in use.
    void set_unsettled(unsigned number) noexcept;
    void give_back(unsigned first, unsigned count) noexcept;

  private:
    void save() const noexcept;

    std::mutex mutex_;
    Set taken_;     ///< in use
    Set unsettled_; ///< of these numbers, in use or not
    std::array<std::uint32_t, max_endpoints> given_back_{}; ///< when, counted in calls; 0: never used by this domain
    std::uint32_t calls_ = 0;
    unsigned start_ = 0;     ///< the first number of a domain without history
    std::uint64_t key_ = 0;  ///< of the history in the node's file; 0: there is none
    bool may_outlive_ = true;///< the history outlives the last process of the node
};

} // namespace tofu
