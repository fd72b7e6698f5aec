// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The parts of the program for fi_atomic(3). All ranks call each; each ends with a barrier.
#pragma once

#include "../common/world.h"

namespace fabtests {

void check_queries(World& world);       ///< "Atomic Valid Functions", "Query Atomic Attributes"
void check_every_pair(World& world);    ///< "Atomic Operations", in each form of call
void check_lists(World& world);         ///< iov, comparev, resultv, rma_iov of different cuts
void check_completions(World& world);   ///< "Completions", FLAGS
void check_refusals(World& world);      ///< "Return Value", ERRORS
void check_inject_effect(World& world); ///< an injected operation takes effect without further calls
void check_fence(World& world);         ///< FI_FENCE
void check_access(World& world);        ///< regions that allow reading only (fi_mr(3))
void check_order(World& world);         ///< FI_ORDER_ATOMIC_*, if the endpoint has them
void check_contention(World& world);    ///< atomicity among initiators
void check_random(World& world);        ///< random mixes against a sequential model

/// One operation in the widest form, and what it should do.
struct Operation {
    fi_op op;
    fi_datatype type;
    std::size_t count;
    unsigned target;    ///< rank
    std::size_t offset; ///< in the target's region
    unsigned char* operand;
    unsigned char* compare;
    unsigned char* result; ///< null: base family
};
enum class Form { plain, v, msg, inject };

/// Posts by one form of call. 0 or -FI_E*; -FI_EAGAIN has been dealt with.
ssize_t post(World& world, const Operation& operation, Form form, void* context = nullptr,
             std::uint64_t flags = FI_COMPLETION);
/// Posts and waits. 0 or an error.
int perform(World& world, const Operation& operation, Form form);

bool supported(World& world, fi_op op, fi_datatype type, bool fetch);

} // namespace fabtests
