// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Translates MPI's datatypes and operations into libfabric's.
#pragma once

#include <cstddef>

#include <mpi.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>

namespace tofu_mpi {

/// The libfabric datatype of an MPI datatype.
struct Type {
    MPI_Datatype mpi;
    fi_datatype fi;
    std::size_t size;
    unsigned kind; ///< one of Kind, which says which operations MPI permits
};

/// The type with the same layout in memory. Null: there is none.
[[nodiscard]] const Type* type_of(MPI_Datatype type) noexcept;
/// Finds the libfabric operation. False: it is not predefined, or MPI does not permit it for the type.
[[nodiscard]] bool operation_of(MPI_Op op, const Type& type, fi_op& found) noexcept;
/// True if the domain supports all results of these two functions.
[[nodiscard]] bool offers_all(fid_domain* domain) noexcept;

} // namespace tofu_mpi
