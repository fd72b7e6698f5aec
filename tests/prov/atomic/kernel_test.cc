// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every kernel against the oracle on edge values, and the table of methods against the page.
// Run by make check.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "atomic/op_table.h"
#include "oracle.h"

namespace {

using tofu::Family;
using tofu::Method;
using Element = std::array<unsigned char, 32>;

template <class T>
Element element(T value)
{
    Element e{};
    std::memcpy(e.data(), &value, sizeof value);
    return e;
}

template <class T>
Element pair(T a, T b)
{
    Element e{};
    std::memcpy(e.data(), &a, sizeof a);
    std::memcpy(e.data() + sizeof a, &b, sizeof b);
    return e;
}

std::vector<Element> integers(unsigned size)
{
    std::vector<Element> v;
    const unsigned __int128 one = 1;
    const unsigned bits = size * 8;
    for (unsigned __int128 x :
         {one * 0, one, one * 2, one * 3, one << (bits - 1), (one << (bits - 1)) - 1, (one << (bits - 1)) + 1,
          ~(one * 0), ~one, one << (bits / 2), (one << (bits / 2)) - 1, one * 0x5a})
        v.push_back(element(x));
    return v;
}

template <class T>
std::vector<T> reals()
{
    using L = std::numeric_limits<T>;
    return {T(0),        -T(0),         T(1),           -T(1),           T(0.5),
            T(3),        L::min(),      -L::min(),      L::denorm_min(), L::max(),
            L::lowest(), L::infinity(), -L::infinity(), L::quiet_NaN(),  -L::quiet_NaN()};
}

template <class T>
std::vector<Element> real_elements()
{
    std::vector<Element> v;
    for (T x : reals<T>())
        v.push_back(element(x));
    return v;
}

template <class T>
std::vector<Element> complex_elements()
{
    std::vector<Element> v;
    for (T a : {T(0), -T(0), T(1), T(-2.5), T(7)})
        for (T b : {T(0), -T(0), T(3), T(-1)})
            v.push_back(pair(a, b));
    return v;
}

std::vector<Element> values(fi_datatype t)
{
    switch (t) {
    case FI_FLOAT: return real_elements<float>();
    case FI_DOUBLE: return real_elements<double>();
    case FI_LONG_DOUBLE: return real_elements<long double>();
    case FI_FLOAT_COMPLEX: return complex_elements<float>();
    case FI_DOUBLE_COMPLEX: return complex_elements<double>();
    case FI_LONG_DOUBLE_COMPLEX: return complex_elements<long double>();
    default: return integers(atomic_oracle::size_of(t));
    }
}

template <class T>
bool both_nan(const void* a, const void* b)
{
    T x, y;
    std::memcpy(&x, a, sizeof x);
    std::memcpy(&y, b, sizeof y);
    return x != x && y != y;
}

/// NaNs made by arithmetic may differ in sign and payload.
bool agree(fi_datatype t, const Element& a, const Element& b)
{
    if (atomic_oracle::same_value(t, a.data(), b.data()))
        return true;
    return (t == FI_FLOAT && both_nan<float>(a.data(), b.data())) ||
           (t == FI_DOUBLE && both_nan<double>(a.data(), b.data())) ||
           (t == FI_LONG_DOUBLE && both_nan<long double>(a.data(), b.data()));
}

class EveryType : public testing::TestWithParam<int> {};

TEST_P(EveryType, KernelsDoWhatThePageSays)
{
    const auto type = static_cast<fi_datatype>(GetParam());
    const auto all = values(type);
    unsigned pairs = 0;
    for (unsigned n = 0; n < tofu::op_count; ++n) {
        const auto op = static_cast<fi_op>(n);
        const tofu::Kernel kernel = tofu::kernel_of(op, type);
        Element probe = all[0];
        const bool supported =
            atomic_oracle::apply(op, type, probe.data(), all[1].data(), all[1].data()) == atomic_oracle::Outcome::done;
        ASSERT_EQ(kernel != nullptr, supported) << "op " << n;
        if (!kernel)
            continue;
        for (const Element& target : all)
            for (const Element& operand : all)
                for (const Element& compare : all) {
                    Element ours = target, theirs = target;
                    kernel(ours.data(), operand.data(), compare.data(), 1);
                    atomic_oracle::apply(op, type, theirs.data(), operand.data(), compare.data());
                    ASSERT_TRUE(agree(type, ours, theirs)) << "op " << n << " type " << GetParam();
                    for (unsigned i = tofu::datatypes[type].size; i < ours.size(); ++i)
                        ASSERT_EQ(ours[i], target[i]) << "wrote beyond the element";
                    ++pairs;
                }
    }
    EXPECT_GT(pairs, 10000u);
}

INSTANTIATE_TEST_SUITE_P(Types, EveryType, testing::Range(0, static_cast<int>(FI_UINT128) + 1));

/// They would be bytes of the initiator's stack.
TEST(AtomicKernel, LeavesThePaddingOfALongDoubleAlone)
{
    if (std::numeric_limits<long double>::digits != 64)
        GTEST_SKIP() << "a long double has no padding here";
    for (const fi_datatype type : {FI_LONG_DOUBLE, FI_LONG_DOUBLE_COMPLEX})
        for (const fi_op op : {FI_SUM, FI_PROD, FI_LOR, FI_LAND, FI_LXOR}) {
            const unsigned size = atomic_oracle::size_of(type);
            const Element operand = pair(1.5L, 2.5L);
            Element target = operand;
            for (unsigned half = 0; half < size; half += sizeof(long double))
                std::memset(target.data() + half + 10, 0xa5, sizeof(long double) - 10);
            tofu::kernel_of(op, type)(target.data(), operand.data(), operand.data(), 1);
            for (unsigned i = 0; i < size; ++i)
                if (i % sizeof(long double) >= 10)
                    EXPECT_EQ(target[i], 0xa5) << "op " << op << " type " << type << " byte " << i;
        }
}

TEST(AtomicTable, SizesAreThoseOfTheTypes)
{
    for (int t = 0; t <= FI_UINT128; ++t)
        EXPECT_EQ(tofu::datatypes[t].size, atomic_oracle::size_of(static_cast<fi_datatype>(t)));
}

TEST(AtomicTable, SupportsWhatHasAMeaning)
{
    for (unsigned n = 0; n < tofu::op_count; ++n)
        for (int t = 0; t <= FI_UINT128; ++t) {
            const auto op = static_cast<fi_op>(n);
            const auto type = static_cast<fi_datatype>(t);
            const bool known = tofu::kernel_of(op, type) != nullptr;
            const bool compare = n >= FI_CSWAP;
            EXPECT_EQ(tofu::lookup(Family::compare, op, type) != Method::none, known && compare);
            EXPECT_EQ(tofu::lookup(Family::fetch, op, type) != Method::none, known && !compare);
            EXPECT_EQ(tofu::lookup(Family::base, op, type) != Method::none, known && !compare && op != FI_ATOMIC_READ);
        }
}

TEST(AtomicTable, NativeOperationsAreNative)
{
    for (auto type : {FI_INT32, FI_UINT32, FI_INT64, FI_UINT64}) {
        EXPECT_EQ(tofu::lookup(Family::fetch, FI_SUM, type), Method::add);
        EXPECT_EQ(tofu::lookup(Family::fetch, FI_ATOMIC_WRITE, type), Method::swap);
        EXPECT_EQ(tofu::lookup(Family::compare, FI_CSWAP, type), Method::cswap);
        EXPECT_EQ(tofu::lookup(Family::base, FI_BXOR, type), Method::bits_xor);
    }
    EXPECT_EQ(tofu::lookup(Family::compare, FI_CSWAP, FI_DOUBLE), Method::loop);
    EXPECT_EQ(tofu::lookup(Family::base, FI_SUM, FI_INT8), Method::loop);
    EXPECT_EQ(tofu::lookup(Family::base, FI_BOR, FI_INT8), Method::bits_or);
}

TEST(AtomicQuery, AnswersCountAndSize)
{
    fi_atomic_attr attr{};
    ASSERT_EQ(tofu::query_atomic(FI_UINT16, FI_MIN, &attr, 0), 0);
    EXPECT_EQ(attr.size, 2u);
    EXPECT_EQ(attr.count, tofu::max_atomic_bytes / 2);
}

TEST(AtomicQuery, RefusesWhatThePageForbids)
{
    fi_atomic_attr attr{7, 7};
    EXPECT_EQ(tofu::query_atomic(FI_UINT64, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC), -FI_EINVAL);
    EXPECT_EQ(tofu::query_atomic(FI_UINT64, FI_SUM, &attr, FI_TAGGED), -FI_EOPNOTSUPP);
    EXPECT_EQ(tofu::query_atomic(FI_UINT64, FI_SUM, &attr, FI_FENCE), -FI_EBADFLAGS);
    EXPECT_EQ(tofu::query_atomic(FI_UINT64, FI_SUM, &attr, FI_COMPARE_ATOMIC), -FI_EOPNOTSUPP);
    EXPECT_EQ(tofu::query_atomic(FI_UINT64, FI_ATOMIC_READ, &attr, 0), -FI_EOPNOTSUPP);
    EXPECT_EQ(tofu::query_atomic(static_cast<fi_datatype>(FI_UINT128 + 1), FI_SUM, &attr, 0), -FI_EOPNOTSUPP);
    EXPECT_EQ(tofu::query_atomic(static_cast<fi_datatype>(-1), FI_SUM, &attr, 0), -FI_EOPNOTSUPP);
    EXPECT_EQ(tofu::query_atomic(FI_UINT64, static_cast<fi_op>(FI_ATOMIC_OP_LAST), &attr, 0), -FI_EOPNOTSUPP);
    EXPECT_EQ(tofu::query_atomic(FI_UINT64, static_cast<fi_op>(-1), &attr, 0), -FI_EOPNOTSUPP);
    EXPECT_EQ(tofu::query_atomic(FI_DOUBLE, FI_BOR, &attr, 0), -FI_EOPNOTSUPP);
    EXPECT_EQ(attr.count, 7u) << "outputs are set on success only";
}

} // namespace
