// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which collectives barrier gates carry out, in how many rounds, and how elements become the words of a round and come
// back. Pure. Used by groups; calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coll/circuit_shape.h"
#include "utofu/barrier_gate.h"

namespace tofu::coll {

/// How a collective goes over gates.
struct Native {
    enum class Form : std::uint8_t {
        none,    ///< not over gates
        barrier, ///< no data
        bytes,   ///< the sum of one member's bytes and the others' zeros
        bits,    ///< integers, by their bits
        truth,   ///< logical values, a bit each
        whole,   ///< integers, a word each
        order,   ///< numbers as words of the same order
        real     ///< as doubles; complex ones as two
    };
    Form form = Form::none;
    utofu_reduce_op op = UTOFU_REDUCE_OP_BARRIER;
    std::uint16_t each = 0;   ///< bytes or elements of a round; parts of complex elements
    std::uint16_t rounds = 0; ///< 0: not over gates
    std::size_t total = 0;    ///< in the same unit

    [[nodiscard]] std::size_t at(unsigned round) const noexcept { return std::size_t{round} * each; }
    [[nodiscard]] std::size_t size(unsigned round) const noexcept
    {
        return total - at(round) < each ? total - at(round) : each;
    }
};

/// The form of a collective; Form::none where gates can't do it, or software is faster among so many members.
[[nodiscard]] Native native_of(const Shape& shape, unsigned members) noexcept;

/// Fills in the operand of a round from `in` (null: this member contributes nothing), and returns the number of words
/// or doubles. Where the operation can compare it, and leaves room, the signature goes along.
[[nodiscard]] unsigned pack(const Native& native, const Shape& shape, unsigned round, const std::byte* in,
                            std::uint32_t signature, vcq::GateData& data) noexcept;
/// Writes the result of a round to `out`, unless that is null. False, at all members: their signatures differ.
[[nodiscard]] bool unpack(const Native& native, const Shape& shape, unsigned round, std::byte* out,
                          std::uint32_t signature, unsigned members, const vcq::GateData& data) noexcept;

} // namespace tofu::coll
