// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The object behind a fid_ep of the application, with which its calls begin: an endpoint or a context, an alias of one
// with operation flags of its own (fi_ep_alias, fi_endpoint(3)), or a shared receive context. Filled in by endpoint;
// calls nothing.
#pragma once

#include <cstdint>

#include <rdma/fi_endpoint.h>

namespace tofu {

class Endpoint;
class Lock;
class TxContext;
namespace proto {
class ReceiveQueue;
}

struct EndpointFace : fid_ep {
    TxContext* tx = nullptr;                 ///< where operations are posted; null: a shared receive context
    proto::ReceiveQueue* receives = nullptr; ///< where fi_recv posts
    Lock* receive_lock = nullptr;            ///< of `receives`
    std::uint64_t tx_flags = 0; ///< defaults of the calls without a flags argument
    std::uint64_t rx_flags = 0;
    Endpoint* endpoint = nullptr; ///< null: a shared receive context
    bool reads_descs = false;     ///< arrays of descs are valid or null (DomainModel::valid_descs)

    /// An array of descs that the application passed, or null where it may be anything.
    [[nodiscard]] void* const* descs(void* const* array) const noexcept { return reads_descs ? array : nullptr; }
    [[nodiscard]] void** descs(void** array) const noexcept { return reads_descs ? array : nullptr; }

    static EndpointFace& of(fid_ep* e) noexcept { return *static_cast<EndpointFace*>(e); }
};

} // namespace tofu
