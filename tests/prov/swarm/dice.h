// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Random numbers of the deterministic network.
#pragma once

#include <cstdint>

namespace swarm {

/// Random numbers that are the same on every machine.
class Dice {
  public:
    explicit Dice(std::uint64_t seed = 1) noexcept : state_(seed) {}
    std::uint64_t next() noexcept
    {
        state_ += 0x9e3779b97f4a7c15u;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    /// 0 to n - 1.
    unsigned below(unsigned n) noexcept { return static_cast<unsigned>((next() >> 32) * n >> 32); }
    bool percent(unsigned n) noexcept { return n != 0 && below(100) < n; }

  private:
    std::uint64_t state_;
};

} // namespace swarm
