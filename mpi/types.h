// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: MPI's datatypes and operations as libfabric's.
#pragma once

#include <cstddef>

#include <mpi.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>

namespace tofu_mpi {

/// What an MPI datatype is on the wire.
struct Type {
    MPI_Datatype mpi;
    fi_datatype fi;
    std::size_t size;
    unsigned kind; ///< one of Kind: which operations MPI permits
};

/// Null: none of those that lie in memory as libfabric's do.
[[nodiscard]] const Type* type_of(MPI_Datatype type) noexcept;
/// False: not among MPI's predefined ones, or MPI does not permit it for the type.
[[nodiscard]] bool operation_of(MPI_Op op, const Type& type, fi_op& found) noexcept;
/// Does the domain carry out whatever these two find?
[[nodiscard]] bool offers_all(fid_domain* domain) noexcept;

} // namespace tofu_mpi
