// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Operation tables whose every call refuses: libfabric's inline wrappers call through them without a check.
// Used by endpoint.cc. Calls nothing.
#include <rdma/fi_errno.h>

#include "endpoint_ops.h"

namespace tofu {

namespace {

/// One function for each signature.
template <int code, class Signature>
struct Refuse;
template <int code, class Result, class... Arguments>
struct Refuse<code, Result(Arguments...)> {
    static Result call(Arguments...) { return code; }
};

/// Converts to a refusing function of whatever type the slot has.
template <int code>
struct Refusal {
    template <class Signature>
    constexpr operator Signature*() const noexcept
    {
        return &Refuse<code, Signature>::call;
    }
};

template <int code>
constexpr RefusingOps refusing() noexcept
{
    constexpr Refusal<code> no{};
    return {
        {sizeof(fi_ops_msg), no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_rma), no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_tagged), no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_atomic), no, no, no, no, no, no, no, no, no, no, no, no, no},
    };
}

} // namespace

RefusingOps ops_of_disabled = refusing<-FI_EOPBADSTATE>();
RefusingOps ops_of_missing = refusing<-FI_EOPNOTSUPP>();

namespace {
constexpr Refusal<-FI_ENOSYS> nosys{};
}
fi_ops_collective no_collective_ops = {sizeof(fi_ops_collective), nosys, nosys, nosys, nosys, nosys,
                                       nosys, nosys, nosys, nosys, nosys, nosys};

} // namespace tofu
