// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What can be done to an element, and how. The functions that compute each operation of fi_atomic(3) (Kernel); the
// table of datatypes (Types, datatypes) and of methods (Method, method_of), from which the engine chooses; and the
// answers to queries, which follow from the table (query_atomic).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <utofu.h>

namespace tofu {

// --- Kernel: the pseudo-code of fi_atomic(3) as functions, for loops of CSWAPs, wide elements and reductions

/// Applies an operation to the `n` elements at `target`, one behind the other. The pointers need no alignment.
/// `operand` is buf (unused by FI_ATOMIC_READ), `compare` is compare (used by the compare family only). Integers wrap;
/// a condition that does not hold leaves all bits of the target, padding of long double included.
using Kernel = void (*)(void* target, const void* operand, const void* compare, std::size_t n) noexcept;

/// The function for a pair, or null where the page gives it no meaning.
[[nodiscard]] Kernel kernel_of(fi_op op, fi_datatype type) noexcept;

// --- Method, Datatype: which atomic operation works on which datatype, and by which method: one constexpr table

/// How an operation is carried out on one element at the target.
enum class Method : std::uint8_t {
    none,     ///< the page gives the pair no meaning: -FI_EOPNOTSUPP
    add,      ///< ARMW ADD of the element's own width
    swap,     ///< ARMW SWAP of the element's own width
    read,     ///< ARMW OR of zero: changes nothing, answers the word
    bits_or,  ///< ARMW OR, XOR or AND of the aligned word around the element; neighbours get the
    bits_xor, ///< neutral operand, so that any number of elements of one word take one ARMW
    bits_and,
    cswap, ///< one ARMW CSWAP, whatever it finds
    loop,  ///< compute here, CSWAP the aligned word, again with what came back
    wide   ///< more than one word: under a lock word of the target (wide.h)
};

/// One ARMW of the element's own width is enough.
constexpr bool is_one_armw(Method method)
{
    return method > Method::none && method <= Method::cswap;
}

/// What an ARMW of the fast path brings back.
enum class Fetched : std::uint8_t { nothing, short_word, word };

/// What the ARMW does that carries the method out on a word, where it is one.
constexpr utofu_armw_op armw_of(Method method)
{
    switch (method) {
    case Method::swap: return UTOFU_ARMW_OP_SWAP;
    case Method::read:
    case Method::bits_or: return UTOFU_ARMW_OP_OR;
    case Method::bits_xor: return UTOFU_ARMW_OP_XOR;
    case Method::bits_and: return UTOFU_ARMW_OP_AND;
    case Method::add:
    case Method::cswap:
    case Method::loop:
    case Method::wide:
    case Method::none: break;
    }
    return UTOFU_ARMW_OP_ADD;
}

/// The three families of calls, which allow different operations (fi_atomic(3)).
enum class Family : std::uint8_t { base, fetch, compare };

inline constexpr unsigned datatype_count = FI_UINT128 + 1;
inline constexpr unsigned op_count = FI_ATOMIC_OP_LAST;

/// Bytes one call may act on at the target; the queries answer it in elements.
inline constexpr std::size_t max_atomic_bytes = std::size_t{1} << 20;
/// Entries of each iov list of an atomic call.
inline constexpr std::size_t max_atomic_iov = 8;

/// The datatypes in C, in fi_datatype's order.
using Types = std::tuple<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
                         std::int64_t, std::uint64_t, float, double, _Complex float, _Complex double, long double,
                         _Complex long double, __int128, unsigned __int128>;
static_assert(FI_INT8 == 0 && FI_FLOAT == 8 && FI_FLOAT_COMPLEX == 10 && FI_LONG_DOUBLE == 12 && FI_INT128 == 14 &&
              std::tuple_size_v<Types> == datatype_count);

enum class Class : std::uint8_t { sign, nosign, real, complex };
constexpr bool is_integer(Class kind)
{
    return kind == Class::sign || kind == Class::nosign;
}
template <class T>
constexpr Class class_of()
{
    if constexpr (std::is_floating_point_v<T>)
        return Class::real;
    else if constexpr (std::is_same_v<T, _Complex float> || std::is_same_v<T, _Complex double> ||
                       std::is_same_v<T, _Complex long double>)
        return Class::complex;
    else
        return static_cast<T>(-1) < T{} ? Class::sign : Class::nosign;
}
struct Datatype {
    std::uint8_t size;  ///< bytes
    std::uint8_t align; ///< least alignment of an element at the target
    Class kind;
};

inline constexpr auto datatypes = []<class... T>(std::tuple<T...>*) {
    // In C a complex number is aligned like its parts (6.2.5, 13); nothing needs more than 8 bytes here.
    return std::array{Datatype{
        sizeof(T), std::min<std::size_t>(sizeof(T) / (class_of<T>() == Class::complex ? 2 : 1), 8), class_of<T>()}...};
}(static_cast<Types*>(nullptr));

/// Whether the pseudo-code of the page means anything for the datatype.
constexpr bool meaningful(fi_op op, Class kind)
{
    switch (op) {
    case FI_BOR:
    case FI_BAND:
    case FI_BXOR:
    case FI_MSWAP: return is_integer(kind);
    case FI_MIN:
    case FI_MAX: // complex numbers have no order
    case FI_CSWAP_LE:
    case FI_CSWAP_LT:
    case FI_CSWAP_GE:
    case FI_CSWAP_GT: return kind != Class::complex;
    default: return true;
    }
}

constexpr Method method_of(fi_op op, fi_datatype type)
{
    const Datatype& d = datatypes[type];
    const bool integer = is_integer(d.kind);
    if (!meaningful(op, d.kind))
        return Method::none;
    if (d.size > 8)
        return Method::wide;
    const bool native = d.size >= 4;
    switch (op) {
    case FI_BOR: return Method::bits_or;
    case FI_BXOR: return Method::bits_xor;
    case FI_BAND: return Method::bits_and;
    case FI_ATOMIC_READ: return Method::read;
    case FI_ATOMIC_WRITE: return native ? Method::swap : Method::loop;
    case FI_SUM: return native && integer ? Method::add : Method::loop;
    // C compares values, CSWAP bits: they differ for NaN and for the two zeros.
    case FI_CSWAP: return native && integer ? Method::cswap : Method::loop;
    default: return Method::loop;
    }
}

inline constexpr auto methods = [] {
    std::array<std::array<Method, datatype_count>, op_count> t{};
    for (unsigned op = 0; op < op_count; ++op)
        for (unsigned type = 0; type < datatype_count; ++type)
            t[op][type] = method_of(static_cast<fi_op>(op), static_cast<fi_datatype>(type));
    return t;
}();

/// Which calls take which operations: fi_atomic(3), the lists of its sections on base, fetch and compare.
constexpr bool in_family(Family family, fi_op op)
{
    if (op >= FI_CSWAP && op <= FI_MSWAP)
        return family == Family::compare;
    if (op == FI_ATOMIC_READ)
        return family == Family::fetch;
    return op >= FI_MIN && op <= FI_ATOMIC_WRITE && family != Family::compare;
}

/// The method for a call, Method::none for what is not supported, values out of range included.
constexpr Method lookup(Family family, fi_op op, fi_datatype type)
{
    if (static_cast<unsigned>(op) >= op_count || static_cast<unsigned>(type) >= datatype_count ||
        !in_family(family, op)) [[unlikely]]
        return Method::none;
    return methods[op][type];
}

/// Elements one call may act on.
constexpr std::size_t max_count(fi_datatype type)
{
    return max_atomic_bytes / datatypes[type].size;
}

/// fi_query_atomic(3) and, with the family's flag, the three valid calls. `attr` is set on success only.
/// 0, -FI_EOPNOTSUPP (pair not supported, FI_TAGGED), -FI_EINVAL (both families, null attr),
/// -FI_EBADFLAGS (an unknown flag).
[[nodiscard]] int query_atomic(fi_datatype type, fi_op op, fi_atomic_attr* attr, std::uint64_t flags) noexcept;

} // namespace tofu
