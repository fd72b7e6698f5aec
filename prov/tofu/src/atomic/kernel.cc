// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The kernels of all operations and datatypes, and the table that finds them. Called by atomic's engines;
// calls nothing.
#include "atomic/kernel.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "atomic/table.h"

namespace tofu {
namespace {

using FloatComplex = _Complex float;
using DoubleComplex = _Complex double;
using LongDoubleComplex = _Complex long double;
using Int128 = __int128;
using Uint128 = unsigned __int128;

template <class T>
T load(const void* p) noexcept
{
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

template <class T>
constexpr bool is_complex = std::is_same_v<T, FloatComplex> || std::is_same_v<T, DoubleComplex> ||
                            std::is_same_v<T, LongDoubleComplex>;
template <class T>
constexpr bool is_real = std::is_floating_point_v<T>;
template <class T>
constexpr bool is_integer = !is_complex<T> && !is_real<T>;

/// Writes the value and no padding: that of a long double would be bytes of this stack, and they would travel.
template <class T>
void store(void* p, T value) noexcept
{
    // x86: 64 bits of mantissa and two bytes more, 16 in memory. Elsewhere a long double has no padding.
    constexpr bool padded = std::numeric_limits<long double>::digits == 64;
    if constexpr (padded && is_complex<T> && sizeof(T) == 2 * sizeof(long double)) {
        store<long double>(p, __real__ value);
        store<long double>(static_cast<std::byte*>(p) + sizeof(long double), __imag__ value);
    } else {
        std::memcpy(p, &value, padded && std::is_same_v<T, long double> ? 10 : sizeof value);
    }
}

/// The unsigned type in which an integer's arithmetic is done, wide enough that the promotion to int
/// cannot overflow either (two 16-bit factors do not fit an int).
template <class T>
struct Wrap {
    using type = std::conditional_t<sizeof(T) <= 4, std::uint32_t,
                                    std::conditional_t<sizeof(T) == 8, std::uint64_t, Uint128>>;
};

template <class T>
T sum(T a, T b) noexcept
{
    if constexpr (is_integer<T>) {
        using W = typename Wrap<T>::type;
        return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
    } else {
        return a + b;
    }
}

template <class T>
T product(T a, T b) noexcept
{
    if constexpr (is_integer<T>) {
        using W = typename Wrap<T>::type;
        return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
    } else {
        return a * b;
    }
}

template <class T>
bool truth(T a) noexcept
{
    if constexpr (is_complex<T>)
        return __real__ a != 0 || __imag__ a != 0;
    else
        return a != 0;
}

template <class T>
T from_bool(bool b) noexcept
{
    return static_cast<T>(b ? 1 : 0);
}

/// New value of the element, or no change: what the page's `if` decides.
template <fi_op op, class T>
bool decide(T target, T operand, T compare) noexcept
{
    if constexpr (op == FI_MIN)
        return operand < target;
    else if constexpr (op == FI_MAX)
        return operand > target;
    else if constexpr (op == FI_CSWAP)
        return compare == target;
    else if constexpr (op == FI_CSWAP_NE)
        return compare != target;
    else if constexpr (op == FI_CSWAP_LE)
        return compare <= target;
    else if constexpr (op == FI_CSWAP_LT)
        return compare < target;
    else if constexpr (op == FI_CSWAP_GE)
        return compare >= target;
    else
        return compare > target; // FI_CSWAP_GT
}

template <fi_op op>
constexpr bool conditional = op == FI_MIN || op == FI_MAX || (op >= FI_CSWAP && op <= FI_CSWAP_GT);

template <fi_op op, class T>
T combine(T target, T operand, T compare) noexcept
{
    (void)compare;
    if constexpr (op == FI_SUM)
        return sum(target, operand);
    else if constexpr (op == FI_PROD)
        return product(target, operand);
    else if constexpr (op == FI_LOR)
        return from_bool<T>(truth(target) || truth(operand));
    else if constexpr (op == FI_LAND)
        return from_bool<T>(truth(target) && truth(operand));
    else if constexpr (op == FI_LXOR)
        return from_bool<T>(truth(target) != truth(operand));
    else if constexpr (op == FI_BOR)
        return static_cast<T>(target | operand);
    else if constexpr (op == FI_BAND)
        return static_cast<T>(target & operand);
    else if constexpr (op == FI_BXOR)
        return static_cast<T>(target ^ operand);
    else
        return static_cast<T>((operand & compare) | (target & ~compare)); // FI_MSWAP
}

template <fi_op op, class T>
[[gnu::always_inline]] inline void apply_one(void* target, const void* operand, const void* compare) noexcept
{
    if constexpr (op == FI_ATOMIC_READ) {
        (void)target, (void)operand, (void)compare;
    } else if constexpr (op == FI_ATOMIC_WRITE) {
        std::memcpy(target, operand, sizeof(T)); // bits, not values: a signalling NaN stays one
    } else if constexpr (conditional<op>) {
        const T against = op == FI_MIN || op == FI_MAX ? T{} : load<T>(compare);
        if (decide<op, T>(load<T>(target), load<T>(operand), against))
            std::memcpy(target, operand, sizeof(T));
    } else {
        const T against = op == FI_MSWAP ? load<T>(compare) : T{};
        store(target, combine<op, T>(load<T>(target), load<T>(operand), against));
    }
}

template <fi_op op, class T>
void apply(void* targets, const void* operands, const void* compares, std::size_t n) noexcept
{
    auto* target = static_cast<std::byte*>(targets);
    const auto* operand = static_cast<const std::byte*>(operands);
    const auto* compare = static_cast<const std::byte*>(compares);
    for (; n != 0; --n, target += sizeof(T), operand += sizeof(T), compare += sizeof(T))
        apply_one<op, T>(target, operand, compare);
}

using Row = std::array<Kernel, op_count>;

template <fi_op op, class T>
constexpr Kernel kernel_or_null()
{
    constexpr Class kind = is_complex<T> ? Class::complex : is_real<T> ? Class::real : Class::sign;
    if constexpr (meaningful(op, kind))
        return &apply<op, T>;
    else
        return nullptr;
}

template <class T, std::size_t... op>
constexpr Row row_of(std::index_sequence<op...>)
{
    return {kernel_or_null<static_cast<fi_op>(op), T>()...};
}

template <class T>
constexpr Row row = row_of<T>(std::make_index_sequence<op_count>{});

constexpr std::array<Row, datatype_count> kernels = [] {
    std::array<Row, datatype_count> t{};
    t[FI_INT8] = row<std::int8_t>;
    t[FI_UINT8] = row<std::uint8_t>;
    t[FI_INT16] = row<std::int16_t>;
    t[FI_UINT16] = row<std::uint16_t>;
    t[FI_INT32] = row<std::int32_t>;
    t[FI_UINT32] = row<std::uint32_t>;
    t[FI_INT64] = row<std::int64_t>;
    t[FI_UINT64] = row<std::uint64_t>;
    t[FI_FLOAT] = row<float>;
    t[FI_DOUBLE] = row<double>;
    t[FI_FLOAT_COMPLEX] = row<FloatComplex>;
    t[FI_DOUBLE_COMPLEX] = row<DoubleComplex>;
    t[FI_LONG_DOUBLE] = row<long double>;
    t[FI_LONG_DOUBLE_COMPLEX] = row<LongDoubleComplex>;
    t[FI_INT128] = row<Int128>;
    t[FI_UINT128] = row<Uint128>;
    return t;
}();

} // namespace

Kernel kernel_of(fi_op op, fi_datatype type) noexcept
{
    if (static_cast<unsigned>(op) >= op_count || static_cast<unsigned>(type) >= datatype_count)
        return nullptr;
    return kernels[type][op];
}

} // namespace tofu
