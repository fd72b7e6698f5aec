// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Answers to what is supported, from the table; and the kernels of all operations and datatypes. See op_table.h.
#include "atomic/op_table.h"

#include <cstring>
#include <limits>

#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

namespace tofu {

int query_atomic(fi_datatype type, fi_op op, fi_atomic_attr* attr, std::uint64_t flags) noexcept
{
    constexpr std::uint64_t both = FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC;
    if (flags & ~(both | FI_TAGGED))
        return -FI_EBADFLAGS;
    if ((flags & both) == both || !attr)
        return -FI_EINVAL;
    if (flags & FI_TAGGED) // tagged receive buffers are not targets of atomics here
        return -FI_EOPNOTSUPP;
    const Family family = flags & FI_FETCH_ATOMIC     ? Family::fetch
                          : flags & FI_COMPARE_ATOMIC ? Family::compare
                                                      : Family::base;
    if (lookup(family, op, type) == Method::none)
        return -FI_EOPNOTSUPP;
    attr->count = max_count(type);
    attr->size = datatypes[type].size;
    return 0;
}

// --- Kernel: all operations and datatypes, and the table that finds them

namespace {

template <class T>
T load(const void* p) noexcept
{
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

/// Writes the value and no padding: that of a long double would be bytes of this stack, and they would travel.
template <class T>
void store(void* p, T value) noexcept
{
    // x86: 64 bits of mantissa and two bytes more, 16 in memory. Elsewhere a long double has no padding.
    constexpr bool padded = std::numeric_limits<long double>::digits == 64;
    if constexpr (padded && std::is_same_v<T, _Complex long double>) {
        store<long double>(p, __real__ value);
        store<long double>(static_cast<std::byte*>(p) + sizeof(long double), __imag__ value);
    } else {
        std::memcpy(p, &value, padded && std::is_same_v<T, long double> ? 10 : sizeof value);
    }
}

/// The type in which a datatype's arithmetic is done: of an integer an unsigned one, wide enough that the promotion to
/// int cannot overflow either (two 16-bit factors do not fit an int).
template <class T>
using Arithmetic =
    std::conditional_t<!is_integer(class_of<T>()), T,
                       std::conditional_t<sizeof(T) <= 4, std::uint32_t,
                                          std::conditional_t<sizeof(T) == 8, std::uint64_t, unsigned __int128>>>;

/// FI_MIN and FI_MAX compare the operand, the CSWAPs their comparand; those that do are written or not as they are.
template <fi_op op>
constexpr bool by_order = op == FI_MIN || op == FI_MAX;
template <fi_op op>
constexpr bool conditional = by_order<op> || (op >= FI_CSWAP && op <= FI_CSWAP_GT);

/// What the page's `if` says.
template <fi_op op, class T>
bool decide(T target, T compare) noexcept
{
    if constexpr (op == FI_CSWAP)
        return compare == target;
    else if constexpr (op == FI_CSWAP_NE)
        return compare != target;
    else if constexpr (op == FI_CSWAP_LE)
        return compare <= target;
    else if constexpr (op == FI_CSWAP_LT || op == FI_MIN)
        return compare < target;
    else if constexpr (op == FI_CSWAP_GE)
        return compare >= target;
    else
        return compare > target; // FI_CSWAP_GT, FI_MAX
}

template <fi_op op, class T>
T combine(T target, T operand, [[maybe_unused]] T compare) noexcept
{
    using A = Arithmetic<T>;
    [[maybe_unused]] const bool is = target != T{}, by = operand != T{};
    if constexpr (op == FI_SUM)
        return static_cast<T>(static_cast<A>(target) + static_cast<A>(operand));
    else if constexpr (op == FI_PROD)
        return static_cast<T>(static_cast<A>(target) * static_cast<A>(operand));
    else if constexpr (op == FI_LOR)
        return static_cast<T>(is || by ? 1 : 0);
    else if constexpr (op == FI_LAND)
        return static_cast<T>(is && by ? 1 : 0);
    else if constexpr (op == FI_LXOR)
        return static_cast<T>(is != by ? 1 : 0);
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
    if constexpr (op == FI_ATOMIC_WRITE) {
        std::memcpy(target, operand, sizeof(T)); // bits, not values: a signalling NaN stays one
    } else if constexpr (conditional<op>) {
        if (decide<op, T>(load<T>(target), load<T>(by_order<op> ? operand : compare)))
            std::memcpy(target, operand, sizeof(T));
    } else if constexpr (op != FI_ATOMIC_READ) {
        store(target, combine<op, T>(load<T>(target), load<T>(operand), op == FI_MSWAP ? load<T>(compare) : T{}));
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

template <class T, std::size_t op>
constexpr Kernel kernel_or_null()
{
    if constexpr (meaningful(static_cast<fi_op>(op), class_of<T>()))
        return &apply<static_cast<fi_op>(op), T>;
    else
        return nullptr;
}

template <class T, std::size_t... op>
constexpr std::array<Kernel, op_count> row_of(std::index_sequence<op...>)
{
    return {kernel_or_null<T, op>()...};
}

constexpr auto kernels = []<class... T>(std::tuple<T...>*) {
    return std::array{row_of<T>(std::make_index_sequence<op_count>{})...};
}(static_cast<Types*>(nullptr));

} // namespace

Kernel kernel_of(fi_op op, fi_datatype type) noexcept
{
    if (static_cast<unsigned>(op) >= op_count || static_cast<unsigned>(type) >= datatype_count)
        return nullptr;
    return kernels[type][op];
}

} // namespace tofu
