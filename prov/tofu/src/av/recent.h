// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A small cache of what was last found for an address of the application. A program that talks to many peers in turn,
// as collectives of MPI do, finds each by one comparison. Used by ring and match, under their locks; calls nothing.
#pragma once

#include <cstddef>

#include <rdma/fi_domain.h>

namespace tofu {

/// Direct-mapped by the low bits of the address; keeps the value noted last. A default Value belongs to no address. The
/// user checks whether a value is still valid.
template <class Value>
class Recent {
  public:
    /// The value noted for this address, or for another one with the same low bits: the user compares its `address`.
    [[nodiscard]] const Value& at(fi_addr_t address) const noexcept { return values_[place_of(address)]; }
    void note(const Value& value) noexcept { values_[place_of(value.address)] = value; }
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
    static std::size_t place_of(fi_addr_t address) noexcept { return (address ^ address >> 58) % size; }

    Value values_[size] = {};
};

} // namespace tofu
