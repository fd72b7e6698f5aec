// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Cuts a transfer into the pieces that the adversarial mode writes, in an order that the guide permits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tofu::sim {

/// xorshift64*: small, and the same everywhere.
class Dice {
  public:
    explicit Dice(uint64_t seed) noexcept : state_((seed + 1) * 0x9e3779b97f4a7c15u | 1) {}
    uint32_t below(uint32_t limit) noexcept
    {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return static_cast<uint32_t>((state_ * 0x2545f4914f6cdd1du) >> 33) % limit;
    }

  private:
    uint64_t state_;
};

struct Piece {
    uint32_t offset;
    uint32_t length;
};

struct Transfer {
    uint64_t destination; ///< of the first byte: STADD
    uint64_t source;      ///< of the first byte: address in the process it is read from
    uint32_t length;
    bool strong; ///< strong order
    bool torn;   ///< more than the guide permits: see cut
};

/// The pieces, to be written from the back of the vector. A piece is one line of 256 bytes of the destination or what
/// the transfer has of it, of long transfers a run of lines: guide 2.2.10 has lines written as a whole. Where it does
/// not, since the bytes of a line come from two pages of 64 KiB, and where `torn` says so, a line is several pieces,
/// cut at words of 8 bytes. All in any order; but with strong order (guide 6.1.3.1) the last line comes behind all
/// others, or what of it lies in the second page behind all else, and the piece with the last byte is the last.
[[nodiscard]] std::vector<Piece> cut(const Transfer& transfer, Dice& dice) noexcept;

} // namespace tofu::sim
