// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a barrier packet carries and how a gate combines two of them (guide 2.3.4, 3.8.3.1).
#include "barrier/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tofu::sim {
namespace {

constexpr unsigned status_bits = 10;
constexpr uint32_t top_mask = 0x7f;
constexpr uint32_t saw_plus_inf = 1u << 7;
constexpr uint32_t saw_minus_inf = 1u << 8;
constexpr uint32_t saw_other = 1u << 9; ///< than -0

/// The lowest digit has the weight of the smallest denormal, 2^-1074.
constexpr int lowest_exponent = -1074;

uint32_t status_of(const Packet& packet, unsigned element) noexcept
{
    return packet.bfp_status >> (element * status_bits) & ((1u << status_bits) - 1);
}

uint32_t encode_double(double value, uint64_t* digits) noexcept
{
    const auto bits = std::bit_cast<uint64_t>(value);
    const bool negative = bits >> 63 != 0;
    const unsigned exponent = bits >> 52 & 0x7ff;
    const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
    if (exponent == 0x7ff) {
        if (fraction != 0)
            return saw_plus_inf | saw_minus_inf | saw_other;
        return (negative ? saw_minus_inf : saw_plus_inf) | saw_other;
    }
    if (exponent == 0 && fraction == 0)
        return negative ? 0 : saw_other;
    const uint64_t mantissa = exponent == 0 ? fraction : fraction | uint64_t{1} << 52;
    const unsigned shift = exponent == 0 ? 0 : exponent - 1; // of the mantissa, in units of 2^-1074
    const unsigned __int128 wide = static_cast<unsigned __int128>(mantissa) << (shift % 32);
    uint32_t part[3];
    for (unsigned i = 0; i < 3; i++)
        part[i] = static_cast<uint32_t>(wide >> (32 * i));
    unsigned high = 2;
    while (part[high] == 0)
        high--;
    for (unsigned i = 0; i <= high; i++) { // highest first
        const auto digit = static_cast<int64_t>(part[high - i]);
        digits[i] = static_cast<uint64_t>(negative ? -digit : digit);
    }
    return (shift / 32 + high + 1) | saw_other;
}

/// Adds the digits of one element into `sum`, whose highest digit is at `top`, at or above `from_top`.
void add_digits(uint64_t* sum, uint32_t top, const uint64_t* from, uint32_t from_top) noexcept
{
    const uint32_t down = top - from_top;
    for (uint32_t i = 0; i + down < bfp_digits; i++)
        sum[i + down] += from[i]; // two's complement: the order of additions does not matter
}

void combine_bfp(Packet& result, const Packet& a, const Packet& b) noexcept
{
    for (unsigned element = 0; element < result.count; element++) {
        const uint32_t status_a = status_of(a, element);
        const uint32_t status_b = status_of(b, element);
        const uint32_t top = std::max(status_a & top_mask, status_b & top_mask);
        uint64_t* const sum = result.words + element * bfp_digits;
        if ((status_a & top_mask) != 0)
            add_digits(sum, top, a.words + element * bfp_digits, status_a & top_mask);
        if ((status_b & top_mask) != 0)
            add_digits(sum, top, b.words + element * bfp_digits, status_b & top_mask);
        const uint32_t status = top | ((status_a | status_b) & ~top_mask);
        result.bfp_status |= status << (element * status_bits);
    }
}

void combine_maxloc(Packet& result, const Packet& a, const Packet& b) noexcept
{
    for (unsigned i = 0; i + 1 < result.count; i += 2) {
        const bool second = b.words[i] > a.words[i] || (b.words[i] == a.words[i] && b.words[i + 1] < a.words[i + 1]);
        const Packet& from = second ? b : a;
        result.words[i] = from.words[i];
        result.words[i + 1] = from.words[i + 1];
    }
}

uint64_t combine_word(ReduceOp op, uint64_t a, uint64_t b) noexcept
{
    switch (op) {
    case ReduceOp::band: return a & b;
    case ReduceOp::bor: return a | b;
    case ReduceOp::bxor: return a ^ b;
    case ReduceOp::max: return std::max(a, b);
    case ReduceOp::sum: return a + b;
    case ReduceOp::none:
    case ReduceOp::barrier:
    case ReduceOp::maxloc:
    case ReduceOp::bfpsum: break;
    }
    return 0;
}

/// Carries run upwards; digit[0] is the lowest. Returns what leaves at the top: negative for a negative sum.
int64_t normalise(const uint64_t* limbs, bool negate, uint32_t digit[bfp_digits]) noexcept
{
    __int128 carry = 0;
    for (unsigned i = 0; i < bfp_digits; i++) {
        const auto limb = static_cast<int64_t>(limbs[bfp_digits - 1 - i]);
        const __int128 value = carry + (negate ? -__int128{limb} : __int128{limb});
        digit[i] = static_cast<uint32_t>(value);
        carry = value >> 32;
    }
    return static_cast<int64_t>(carry);
}

/// Rounds digit[0 … 5], a positive number in units of 2^unit, to the nearest double, ties to even.
double round_digits(const uint32_t* digit, int unit) noexcept
{
    const auto bit = [digit](int at) { return digit[at / 32] >> (at % 32) & 1; };
    int high = 6 * 32 - 1;
    while (bit(high) == 0)
        high--;
    // Denormals: nothing below 2^-1074. There is nothing to lose there either: no summand has bits below.
    const int low = std::max({high - 52, lowest_exponent - unit, 0});
    uint64_t mantissa = 0;
    for (int at = high; at >= low; at--)
        mantissa = mantissa << 1 | bit(at);
    bool sticky = false;
    for (int at = low - 2; at >= 0 && !sticky; at--)
        sticky = bit(at) != 0;
    if (low > 0 && bit(low - 1) != 0 && (sticky || (mantissa & 1) != 0))
        mantissa++;
    return std::ldexp(static_cast<double>(mantissa), unit + low);
}

} // namespace

Packet integer_packet(ReduceOp op, std::span<const uint64_t> data) noexcept
{
    Packet packet;
    packet.op = op;
    packet.count = static_cast<uint8_t>(data.size());
    std::copy(data.begin(), data.end(), packet.words);
    return packet;
}

Packet double_packet(std::span<const double> data) noexcept
{
    Packet packet;
    packet.op = ReduceOp::bfpsum;
    packet.count = static_cast<uint8_t>(data.size());
    for (unsigned i = 0; i < data.size(); i++)
        packet.bfp_status |= encode_double(data[i], packet.words + i * bfp_digits) << (i * status_bits);
    return packet;
}

Packet combine(const Packet& a, const Packet& b) noexcept
{
    Packet result;
    if (a.mismatch || b.mismatch || a.op != b.op || a.count != b.count) {
        result.mismatch = true;
        return result;
    }
    result.op = a.op;
    result.count = a.count;
    if (a.op == ReduceOp::bfpsum)
        combine_bfp(result, a, b);
    else if (a.op == ReduceOp::maxloc)
        combine_maxloc(result, a, b);
    else
        for (unsigned i = 0; i < a.count; i++)
            result.words[i] = combine_word(a.op, a.words[i], b.words[i]);
    return result;
}

double bfp_value(const Packet& packet, unsigned element) noexcept
{
    const uint32_t status = status_of(packet, element);
    const bool plus = (status & saw_plus_inf) != 0;
    const bool minus = (status & saw_minus_inf) != 0;
    if (plus || minus) {
        const double infinity = std::numeric_limits<double>::infinity();
        return plus && minus ? std::numeric_limits<double>::quiet_NaN() : plus ? infinity : -infinity;
    }
    const auto top = static_cast<int>(status & top_mask);
    const double zero = (status & saw_other) != 0 ? 0.0 : -0.0;
    if (top == 0)
        return zero;
    const uint64_t* const limbs = packet.words + element * bfp_digits;
    uint32_t digit[6] = {};
    int64_t carry = normalise(limbs, false, digit);
    const bool negative = carry < 0;
    if (negative)
        carry = normalise(limbs, true, digit);
    digit[4] = static_cast<uint32_t>(carry);
    digit[5] = static_cast<uint32_t>(static_cast<uint64_t>(carry) >> 32);
    if (std::all_of(digit, digit + 6, [](uint32_t d) { return d == 0; }))
        return 0.0; // cancelled
    // top is the position + 1, so digit[0] is at position top - 4, below zero perhaps, where all digits are 0.
    const int unit = (top - static_cast<int>(bfp_digits)) * 32 + lowest_exponent;
    const double magnitude = round_digits(digit, unit);
    return negative ? -magnitude : magnitude;
}

} // namespace tofu::sim
