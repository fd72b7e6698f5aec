// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an endpoint or a context is bound to (fi_endpoint(3), fi_ep_bind), and the progress sets that it is in because
// of that. Part of an endpoint (api/endpoint.h).
#pragma once

#include <cstdint>

#include <rdma/fi_endpoint.h>

#include "av/peer_table.h"
#include "cq/progress.h"
#include "tx/tx_context.h"

namespace tofu {

class EventQueue;
class SharedReceive;
class SharedTransmit;

/// Hands what is bound to the two contexts, which use it: queues, counters, an address vector, a shared VCQ, a shared
/// queue of receives.
class Bindings {
  public:
    Bindings(OwnTxContext& tx, RxContext& rx) noexcept;
    ~Bindings();
    /// fi_ep_bind(3). 0, -FI_EINVAL, -FI_EDOMAIN, -FI_EBADFLAGS, -FI_ENOMEM.
    [[nodiscard]] int add(struct fid* object, std::uint64_t flags) noexcept;
    [[nodiscard]] int add_addresses(Peers& av) noexcept;
    /// Checks before fi_enable that everything needed is bound and fits together. 0, or the refusal.
    [[nodiscard]] int check() noexcept;
    /// Adds the endpoint to the progress sets of all bound objects, and of the event queue if `notifies`. 0 or -FI_ENOMEM.
    [[nodiscard]] int list(Pollable& endpoint, bool notifies) noexcept;
    void unlist(Pollable& endpoint) noexcept;
    void drop_all() noexcept;
    /// Null: none.
    [[nodiscard]] EventQueue* events() const noexcept { return eq_; }
    [[nodiscard]] SharedTransmit* shared_transmit() const noexcept { return shared_tx_; }

  private:
    [[nodiscard]] int add_events(EventQueue& events) noexcept;
    [[nodiscard]] int add_shared(SharedTransmit& shared) noexcept;
    [[nodiscard]] int add_shared(SharedReceive& shared) noexcept;

    OwnTxContext& tx_;
    RxContext& rx_;
    SharedTransmit* shared_tx_ = nullptr;
    Held<SharedReceive> shared_rx_;
    Peers::Watcher watcher_; ///< notifies the owner of shared receives of changed addresses
    Held<EventQueue> eq_;
    bool listed_ = false;
};

} // namespace tofu
