// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A sequential model of collectives: what each member puts in, and what it must get out.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <rdma/fi_collective.h>

namespace tofu::test {

struct Case {
    fi_collective_op coll = FI_BARRIER;
    fi_datatype type = FI_UINT8;
    fi_op op = FI_SUM;
    std::size_t count = 0;
    unsigned root = 0;
    unsigned members = 1;
    std::uint64_t seed = 0;
};

using Bytes = std::vector<std::byte>;

inline std::size_t size_of(fi_datatype type)
{
    switch (type) {
    case FI_INT8:
    case FI_UINT8: return 1;
    case FI_INT16:
    case FI_UINT16: return 2;
    case FI_INT32:
    case FI_UINT32:
    case FI_FLOAT: return 4;
    default: return 8;
    }
}

inline bool integral(fi_datatype type)
{
    return type != FI_FLOAT && type != FI_DOUBLE;
}

/// Small whole numbers, of which every sum and product of a few is exact in every type; integers wrap.
template <class T>
void fill(Bytes& bytes, std::mt19937_64& random)
{
    for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
        const T value = static_cast<T>(random() % 3);
        std::memcpy(bytes.data() + at, &value, sizeof(T));
    }
}

template <class Visit>
void with_type(fi_datatype type, Visit&& visit)
{
    switch (type) {
    case FI_INT8: visit(std::int8_t{}); break;
    case FI_UINT8: visit(std::uint8_t{}); break;
    case FI_INT16: visit(std::int16_t{}); break;
    case FI_UINT16: visit(std::uint16_t{}); break;
    case FI_INT32: visit(std::int32_t{}); break;
    case FI_UINT32: visit(std::uint32_t{}); break;
    case FI_INT64: visit(std::int64_t{}); break;
    case FI_UINT64: visit(std::uint64_t{}); break;
    case FI_FLOAT: visit(float{}); break;
    default: visit(double{}); break;
    }
}

/// Bytes of a member's operand and result.
inline std::size_t in_bytes(const Case& c, unsigned member)
{
    const std::size_t block = c.count * size_of(c.type);
    switch (c.coll) {
    case FI_BARRIER: return 0;
    case FI_BROADCAST: return member == c.root ? block : 0;
    case FI_SCATTER: return member == c.root ? block * c.members : 0;
    case FI_ALLTOALL:
    case FI_REDUCE_SCATTER: return block * c.members;
    default: return block;
    }
}
inline std::size_t out_bytes(const Case& c, unsigned member)
{
    const std::size_t block = c.count * size_of(c.type);
    switch (c.coll) {
    case FI_BARRIER: return 0;
    case FI_REDUCE: return member == c.root ? block : 0;
    case FI_GATHER: return member == c.root ? block * c.members : 0;
    case FI_ALLGATHER:
    case FI_ALLTOALL: return block * c.members;
    default: return block;
    }
}

inline Bytes input_of(const Case& c, unsigned member)
{
    Bytes bytes(in_bytes(c, member));
    std::mt19937_64 random(c.seed * 1000003 + member);
    with_type(c.type, [&]<class T>(T) { fill<T>(bytes, random); });
    return bytes;
}

template <class T>
T combined(fi_op op, T a, T b)
{
    switch (op) {
    case FI_MIN: return b < a ? b : a;
    case FI_MAX: return b > a ? b : a;
    case FI_SUM: return static_cast<T>(a + b);
    case FI_PROD: return static_cast<T>(a * b);
    case FI_LOR: return static_cast<T>(a != 0 || b != 0);
    case FI_LAND: return static_cast<T>(a != 0 && b != 0);
    case FI_LXOR: return static_cast<T>((a != 0) != (b != 0));
    default: break;
    }
    if constexpr (std::is_integral_v<T>) {
        switch (op) {
        case FI_BOR: return static_cast<T>(a | b);
        case FI_BAND: return static_cast<T>(a & b);
        case FI_BXOR: return static_cast<T>(a ^ b);
        default: break;
        }
    }
    return a;
}

/// What the member must have in the end.
inline Bytes output_of(const Case& c, unsigned member)
{
    const std::size_t block = c.count * size_of(c.type);
    Bytes out(out_bytes(c, member));
    if (out.empty())
        return out;
    const auto copy = [&](const Bytes& from, std::size_t at, std::size_t to) {
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), block,
                    out.begin() + static_cast<std::ptrdiff_t>(to));
    };
    switch (c.coll) {
    case FI_BROADCAST: copy(input_of(c, c.root), 0, 0); break;
    case FI_SCATTER: copy(input_of(c, c.root), member * block, 0); break;
    case FI_ALLTOALL:
        for (unsigned m = 0; m < c.members; m++)
            copy(input_of(c, m), member * block, m * block);
        break;
    case FI_GATHER:
    case FI_ALLGATHER:
        for (unsigned m = 0; m < c.members; m++)
            copy(input_of(c, m), 0, m * block);
        break;
    default: {
        const std::size_t from = c.coll == FI_REDUCE_SCATTER ? member * block : 0;
        copy(input_of(c, 0), from, 0);
        for (unsigned m = 1; m < c.members; m++) {
            const Bytes other = input_of(c, m);
            with_type(c.type, [&]<class T>(T) {
                for (std::size_t at = 0; at < block; at += sizeof(T)) {
                    T a, b;
                    std::memcpy(&a, out.data() + at, sizeof(T));
                    std::memcpy(&b, other.data() + from + at, sizeof(T));
                    a = combined(c.op, a, b);
                    std::memcpy(out.data() + at, &a, sizeof(T));
                }
            });
        }
    }
    }
    return out;
}

inline Case random_case(std::mt19937_64& random, unsigned members, std::size_t most)
{
    static constexpr fi_datatype types[] = {FI_INT8,   FI_UINT8, FI_INT16,  FI_UINT16, FI_INT32,
                                            FI_UINT32, FI_INT64, FI_UINT64, FI_FLOAT,  FI_DOUBLE};
    static constexpr fi_op ops[] = {FI_MIN,  FI_MAX, FI_SUM,  FI_LOR,  FI_LAND,
                                    FI_LXOR, FI_BOR, FI_BAND, FI_BXOR, FI_PROD};
    Case c;
    c.coll = static_cast<fi_collective_op>(random() % (FI_GATHER + 1));
    c.type = types[random() % std::size(types)];
    do
        c.op = ops[random() % std::size(ops)];
    while (!integral(c.type) && (c.op == FI_BOR || c.op == FI_BAND || c.op == FI_BXOR));
    c.members = members;
    c.root = static_cast<unsigned>(random() % members);
    const std::size_t scale = std::size_t{1} << random() % static_cast<std::size_t>(std::bit_width(most));
    c.count = random() % (scale + 1);
    c.seed = random();
    return c;
}

} // namespace tofu::test
