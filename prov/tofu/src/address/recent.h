// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What was found out about addresses of the application lately. Whoever talks to many peers in turn, as collectives of MPI
// do, finds each by one comparison. Used by ring and match, under their locks; calls nothing.
#pragma once

#include <cstddef>

#include <rdma/fi_domain.h>

namespace tofu {

/// One value for each address by its low bits, the one noted last. Value, as it is made, is of no address; whether what it
/// says still holds is the user's business.
template <class Value>
class Recent {
  public:
    /// The value noted for the address, or for another one: `address` of it tells.
    [[nodiscard]] const Value& at(fi_addr_t address) const noexcept { return values_[place_of(address)]; }
    void note(const Value& value) noexcept { values_[place_of(value.address)] = value; }
    /// Those for which `is_void` holds are forgotten.
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
    static std::size_t place_of(fi_addr_t address) noexcept { return (address ^ address >> 58) % size; }

    Value values_[size] = {};
};

} // namespace tofu
