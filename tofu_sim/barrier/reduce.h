// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a barrier packet carries and how a gate combines two of them (guide 2.3.4, 3.8.3.1).
//
// BFPSUM. What the hardware does inside is not public, only that the result is the same on all processes.
// Here a double is cut into signed digits of base 2^32 at fixed positions, and a sum keeps the four digits from
// the highest position that any summand touches downwards. Digits are added as integers without carry, and
// whether a digit is kept depends on the highest summand alone, so the sum is the same in every order and
// grouping. What is cut off is below 2^-96 of the largest summand for each summand; the one rounding to
// double, to nearest even, comes last.
#pragma once

#include <cstdint>
#include <span>

namespace tofu::sim {

/// The values of enum utofu_reduce_op.
enum class ReduceOp : uint8_t {
    none = 0, ///< of a packet that carries a mismatch
    barrier = 1,
    band = 2,
    bor = 3,
    bxor = 4,
    max = 5,
    maxloc = 6,
    sum = 7,
    bfpsum = 8,
};

inline constexpr unsigned max_uint64_elements = 6; ///< table 6.5
inline constexpr unsigned max_double_elements = 3;
inline constexpr unsigned bfp_digits = 4; ///< words of a packet for one double
inline constexpr unsigned max_packet_words = max_double_elements * bfp_digits;

struct Packet {
    ReduceOp op = ReduceOp::none;
    uint8_t count = 0;     ///< elements
    bool mismatch = false; ///< the participants asked for different operations; sticky
    /// BFPSUM: 10 bits for each element: position of the highest digit + 1 (0: none) in 7 bits, then
    /// saw +infinity, saw -infinity, saw something other than -0. A NaN is both infinities.
    uint32_t bfp_status = 0;
    uint64_t time = 0; ///< by the virtual clock: when it was sent, or came in; 0 without one
    /// Integers: one word an element. BFPSUM: bfp_digits an element, highest first.
    uint64_t words[max_packet_words] = {};

    friend bool operator==(const Packet&, const Packet&) = default;
};

/// Words of `words` that a packet of this operation uses.
[[nodiscard]] constexpr unsigned packet_words(ReduceOp op, unsigned count) noexcept
{
    return op == ReduceOp::bfpsum ? count * bfp_digits : count;
}

[[nodiscard]] inline Packet barrier_packet() noexcept
{
    Packet packet;
    packet.op = ReduceOp::barrier;
    return packet;
}
/// One to six elements; MAXLOC in pairs.
[[nodiscard]] Packet integer_packet(ReduceOp op, std::span<const uint64_t> data) noexcept;
/// One to three elements.
[[nodiscard]] Packet double_packet(std::span<const double> data) noexcept;

/// Commutative and associative. Different operations or counts give a packet that says mismatch.
[[nodiscard]] Packet combine(const Packet& a, const Packet& b) noexcept;

/// The sum of one element: overflow gives infinity, a NaN or both infinities the positive quiet NaN,
/// -0 only if all summands were -0.
[[nodiscard]] double bfp_value(const Packet& packet, unsigned element) noexcept;

} // namespace tofu::sim
