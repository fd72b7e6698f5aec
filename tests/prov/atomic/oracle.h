// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A second opinion on fi_atomic(3): applies one operation to one element, written apart from the provider's
// kernels (integers by 128-bit arithmetic and masks, reals by the page's own expressions). Used by tests only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <rdma/fi_atomic.h>

namespace atomic_oracle {

enum class Outcome { unsupported, done };

inline unsigned size_of(fi_datatype t)
{
    switch (static_cast<int>(t)) {
    case FI_INT8:
    case FI_UINT8: return 1;
    case FI_INT16:
    case FI_UINT16: return 2;
    case FI_INT32:
    case FI_UINT32:
    case FI_FLOAT: return 4;
    case FI_INT64:
    case FI_UINT64:
    case FI_DOUBLE:
    case FI_FLOAT_COMPLEX: return 8;
    case FI_DOUBLE_COMPLEX:
    case FI_INT128:
    case FI_UINT128: return 16;
    case FI_LONG_DOUBLE: return sizeof(long double);
    case FI_LONG_DOUBLE_COMPLEX: return 2 * sizeof(long double);
    }
    return 0;
}

inline bool is_integer(fi_datatype t)
{
    return t <= FI_UINT64 || static_cast<int>(t) == FI_INT128 || static_cast<int>(t) == FI_UINT128;
}

inline bool is_complex(fi_datatype t)
{
    return t == FI_FLOAT_COMPLEX || t == FI_DOUBLE_COMPLEX || t == FI_LONG_DOUBLE_COMPLEX;
}

using U = unsigned __int128;
using S = __int128;

/// Less-than of the page on raw integers of `bits` bits.
inline bool int_less(U a, U b, unsigned bits, bool is_signed)
{
    if (is_signed) { // move the sign bit so that the order becomes the unsigned one
        const U flip = U{1} << (bits - 1);
        a ^= flip;
        b ^= flip;
    }
    return a < b;
}

inline Outcome integer(fi_op op, unsigned size, bool is_signed, void* target, const void* operand, const void* compare)
{
    U t = 0, o = 0, c = 0;
    std::memcpy(&t, target, size);
    if (operand)
        std::memcpy(&o, operand, size);
    if (compare)
        std::memcpy(&c, compare, size);
    const unsigned bits = size * 8;
    U r = t;
    switch (op) {
    case FI_MIN: r = int_less(o, t, bits, is_signed) ? o : t; break;
    case FI_MAX: r = int_less(t, o, bits, is_signed) ? o : t; break;
    case FI_SUM: r = t + o; break;
    case FI_PROD: r = t * o; break;
    case FI_LOR: r = (t != 0) | (o != 0); break;
    case FI_LAND: r = (t != 0) & (o != 0); break;
    case FI_LXOR: r = (t != 0) ^ (o != 0); break;
    case FI_BOR: r = t | o; break;
    case FI_BAND: r = t & o; break;
    case FI_BXOR: r = t ^ o; break;
    case FI_ATOMIC_READ: break;
    case FI_ATOMIC_WRITE: r = o; break;
    case FI_CSWAP: r = t == c ? o : t; break;
    case FI_CSWAP_NE: r = t == c ? t : o; break;
    case FI_CSWAP_LE: r = int_less(t, c, bits, is_signed) ? t : o; break;
    case FI_CSWAP_LT: r = int_less(c, t, bits, is_signed) ? o : t; break;
    case FI_CSWAP_GE: r = int_less(c, t, bits, is_signed) ? t : o; break;
    case FI_CSWAP_GT: r = int_less(t, c, bits, is_signed) ? o : t; break;
    case FI_MSWAP: r = t ^ ((t ^ o) & c); break;
    default: return Outcome::unsupported;
    }
    std::memcpy(target, &r, size); // little endian: the low bytes
    return Outcome::done;
}

template <class T>
Outcome real(fi_op op, T* target, const T* operand, const T* compare)
{
    T addr, buf = 0, cmp = 0;
    std::memcpy(&addr, target, sizeof(T));
    if (operand)
        std::memcpy(&buf, operand, sizeof(T));
    if (compare)
        std::memcpy(&cmp, compare, sizeof(T));
    bool take = false;
    switch (op) {
    case FI_MIN: take = std::isless(buf, addr); break;
    case FI_MAX: take = std::isgreater(buf, addr); break;
    case FI_ATOMIC_READ: return Outcome::done;
    case FI_ATOMIC_WRITE: take = true; break;
    case FI_CSWAP: take = !std::isunordered(cmp, addr) && !std::islessgreater(cmp, addr); break;
    case FI_CSWAP_NE: take = std::isunordered(cmp, addr) || std::islessgreater(cmp, addr); break;
    case FI_CSWAP_LE: take = std::islessequal(cmp, addr); break;
    case FI_CSWAP_LT: take = std::isless(cmp, addr); break;
    case FI_CSWAP_GE: take = std::isgreaterequal(cmp, addr); break;
    case FI_CSWAP_GT: take = std::isgreater(cmp, addr); break;
    default: {
        T r;
        const bool a = !(addr == 0), b = !(buf == 0);
        if (op == FI_SUM)
            r = addr + buf;
        else if (op == FI_PROD)
            r = addr * buf;
        else if (op == FI_LOR)
            r = a | b;
        else if (op == FI_LAND)
            r = a & b;
        else if (op == FI_LXOR)
            r = a ^ b;
        else
            return Outcome::unsupported;
        std::memcpy(target, &r, sizeof(T));
        return Outcome::done;
    }
    }
    if (take)
        std::memcpy(target, operand, sizeof(T));
    return Outcome::done;
}

template <class T>
Outcome complex(fi_op op, T* target, const T* operand, const T* compare)
{
    T a[2], b[2] = {0, 0}, c[2] = {0, 0}, r[2];
    std::memcpy(a, target, sizeof a);
    if (operand)
        std::memcpy(b, operand, sizeof b);
    if (compare)
        std::memcpy(c, compare, sizeof c);
    const bool at = a[0] != 0 || a[1] != 0, bt = b[0] != 0 || b[1] != 0;
    const bool equal = a[0] == c[0] && a[1] == c[1];
    r[1] = 0;
    switch (op) {
    case FI_SUM: r[0] = a[0] + b[0], r[1] = a[1] + b[1]; break;
    case FI_PROD: // inputs of the tests stay finite: no recovery of infinities
        r[0] = a[0] * b[0] - a[1] * b[1], r[1] = a[0] * b[1] + a[1] * b[0];
        break;
    case FI_LOR: r[0] = at | bt; break;
    case FI_LAND: r[0] = at & bt; break;
    case FI_LXOR: r[0] = at ^ bt; break;
    case FI_ATOMIC_READ: return Outcome::done;
    case FI_ATOMIC_WRITE: r[0] = b[0], r[1] = b[1]; break;
    case FI_CSWAP:
        if (!equal)
            return Outcome::done;
        r[0] = b[0], r[1] = b[1];
        break;
    case FI_CSWAP_NE:
        if (equal)
            return Outcome::done;
        r[0] = b[0], r[1] = b[1];
        break;
    default: return Outcome::unsupported;
    }
    std::memcpy(target, r, sizeof r);
    return Outcome::done;
}

/// Applies; pointers of any alignment; operand and compare may be null where the operation has none.
[[gnu::noinline]] inline Outcome apply(fi_op op, fi_datatype t, void* target, const void* operand, const void* compare)
{
    if (is_integer(t)) {
        const int n = static_cast<int>(t);
        const bool is_signed = n == FI_INT128 || (t <= FI_UINT64 && n % 2 == 0);
        return integer(op, size_of(t), is_signed, target, operand, compare);
    }
    switch (t) {
#define ORACLE(type, kind, c)                                                                                          \
    case type: return kind(op, static_cast<c*>(target), static_cast<const c*>(operand), static_cast<const c*>(compare))
        ORACLE(FI_FLOAT, real, float);
        ORACLE(FI_DOUBLE, real, double);
        ORACLE(FI_LONG_DOUBLE, real, long double);
        ORACLE(FI_FLOAT_COMPLEX, complex, float);
        ORACLE(FI_DOUBLE_COMPLEX, complex, double);
        ORACLE(FI_LONG_DOUBLE_COMPLEX, complex, long double);
#undef ORACLE
    default: return Outcome::unsupported;
    }
}

/// Bytes of an element that carry its value (x87 long doubles have six that do not).
inline bool same_value(fi_datatype t, const void* a, const void* b)
{
    const unsigned part =
        t == FI_LONG_DOUBLE || t == FI_LONG_DOUBLE_COMPLEX ? static_cast<unsigned>(sizeof(long double)) : size_of(t);
#if defined(__x86_64__)
    const unsigned used = part == sizeof(long double) && !is_integer(t) && t != FI_DOUBLE_COMPLEX ? 10u : part;
#else
    const unsigned used = part;
#endif
    const auto* x = static_cast<const unsigned char*>(a);
    const auto* y = static_cast<const unsigned char*>(b);
    for (unsigned at = 0; at < size_of(t); at += part)
        if (std::memcmp(x + at, y + at, used) != 0)
            return false;
    return true;
}

} // namespace atomic_oracle
