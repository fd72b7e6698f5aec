// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the application holds and its calls begin with: an endpoint or a context, an alias of one with operation flags of
// its own (fi_ep_alias, fi_endpoint(3)), or a shared receive context. Filled by endpoint; calls nothing.
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
    proto::ReceiveQueue* receives = nullptr; ///< where fi_recv posts, and its lock
    Lock* receive_lock = nullptr;
    std::uint64_t tx_flags = 0; ///< defaults of the calls without a flags argument
    std::uint64_t rx_flags = 0;
    Endpoint* endpoint = nullptr; ///< null: a shared receive context

    static EndpointFace& of(fid_ep* e) noexcept { return *static_cast<EndpointFace*>(e); }
};

} // namespace tofu
