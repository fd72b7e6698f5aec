// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See types.h. MPI-3.1, 5.9.2 has the groups of types and the operations that are permitted for them.
#include "types.h"

#include <cstdint>
#include <type_traits>

namespace tofu_mpi {

namespace {

enum Kind : unsigned { integer = 1, floating = 2, complex = 4, byte = 8, logical = 16, character = 32 };

struct Operation {
    MPI_Op mpi;
    fi_op fi;
    unsigned kinds;
};

template <class T>
Type integer_as(MPI_Datatype mpi) noexcept
{
    constexpr bool is_signed = std::is_signed_v<T>;
    constexpr fi_datatype fi = sizeof(T) == 1   ? (is_signed ? FI_INT8 : FI_UINT8)
                               : sizeof(T) == 2 ? (is_signed ? FI_INT16 : FI_UINT16)
                               : sizeof(T) == 4 ? (is_signed ? FI_INT32 : FI_UINT32)
                                                : (is_signed ? FI_INT64 : FI_UINT64);
    return {mpi, fi, sizeof(T), integer};
}

// Built when the library is loaded, since handles are addresses in some MPIs. Frequent types come first.
const Type types[] = {
    {MPI_DOUBLE, FI_DOUBLE, sizeof(double), floating},
    integer_as<int>(MPI_INT),
    integer_as<long>(MPI_LONG),
    {MPI_FLOAT, FI_FLOAT, sizeof(float), floating},
    {MPI_BYTE, FI_UINT8, 1, byte},
    {MPI_CHAR, FI_UINT8, 1, character},
    integer_as<std::uint64_t>(MPI_UINT64_T),
    integer_as<std::int64_t>(MPI_INT64_T),
    integer_as<std::uint32_t>(MPI_UINT32_T),
    integer_as<std::int32_t>(MPI_INT32_T),
    integer_as<unsigned>(MPI_UNSIGNED),
    integer_as<unsigned long>(MPI_UNSIGNED_LONG),
    integer_as<long long>(MPI_LONG_LONG),
    integer_as<unsigned long long>(MPI_UNSIGNED_LONG_LONG),
    integer_as<short>(MPI_SHORT),
    integer_as<unsigned short>(MPI_UNSIGNED_SHORT),
    integer_as<signed char>(MPI_SIGNED_CHAR),
    integer_as<unsigned char>(MPI_UNSIGNED_CHAR),
    integer_as<std::int8_t>(MPI_INT8_T),
    integer_as<std::uint8_t>(MPI_UINT8_T),
    integer_as<std::int16_t>(MPI_INT16_T),
    integer_as<std::uint16_t>(MPI_UINT16_T),
    {MPI_C_BOOL, FI_UINT8, sizeof(bool), logical},
    {MPI_C_FLOAT_COMPLEX, FI_FLOAT_COMPLEX, 2 * sizeof(float), complex},
    {MPI_C_DOUBLE_COMPLEX, FI_DOUBLE_COMPLEX, 2 * sizeof(double), complex},
    {MPI_LONG_DOUBLE, FI_LONG_DOUBLE, sizeof(long double), floating},
    integer_as<MPI_Aint>(MPI_AINT),
    integer_as<MPI_Offset>(MPI_OFFSET),
    integer_as<MPI_Count>(MPI_COUNT),
};

const Operation operations[] = {
    {MPI_SUM, FI_SUM, integer | floating | complex},
    {MPI_MAX, FI_MAX, integer | floating},
    {MPI_MIN, FI_MIN, integer | floating},
    {MPI_PROD, FI_PROD, integer | floating | complex},
    {MPI_LAND, FI_LAND, integer | logical},
    {MPI_LOR, FI_LOR, integer | logical},
    {MPI_LXOR, FI_LXOR, integer | logical},
    {MPI_BAND, FI_BAND, integer | byte},
    {MPI_BOR, FI_BOR, integer | byte},
    {MPI_BXOR, FI_BXOR, integer | byte},
};

} // namespace

const Type* type_of(MPI_Datatype type) noexcept
{
    for (const Type& one : types)
        if (one.mpi == type)
            return &one;
    return nullptr;
}

bool operation_of(MPI_Op op, const Type& type, fi_op& found) noexcept
{
    for (const Operation& one : operations)
        if (one.mpi == op) {
            found = one.fi;
            return (one.kinds & type.kind) != 0;
        }
    return false;
}

bool offers_all(fid_domain* domain) noexcept
{
    const auto offers = [&](fi_collective_op coll, fi_datatype type, fi_op op) {
        fi_collective_attr attr{};
        attr.datatype = type;
        attr.op = op;
        return fi_query_collective(domain, coll, &attr, 0) == 0;
    };
    for (const Type& type : types)
        for (const Operation& operation : operations)
            if ((operation.kinds & type.kind) != 0 &&
                (!offers(FI_ALLREDUCE, type.fi, operation.fi) || !offers(FI_REDUCE, type.fi, operation.fi)))
                return false;
    return offers(FI_BARRIER, FI_VOID, FI_NOOP) && offers(FI_BROADCAST, FI_UINT8, FI_NOOP);
}

} // namespace tofu_mpi
