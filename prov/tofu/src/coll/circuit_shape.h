// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The parameters of a collective that all members have to agree on. Used by gate_operation and by groups; calls
// nothing.
#pragma once

#include <cstddef>

#include <rdma/fi_collective.h>

namespace tofu::coll {

struct Shape {
    fi_collective_op coll = FI_BARRIER;
    fi_datatype type = FI_VOID;
    fi_op op = FI_NOOP;
    std::size_t count = 0;
    unsigned root = 0;
};

} // namespace tofu::coll
