// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A tx context as its owner, the endpoint, sees it: opened, bound to the objects it uses, closed. Calls vcq, remote,
// memory and, through Engine, the engines.
#pragma once

#include <cstdint>

#include "tx/tx_context.h"

namespace tofu {

class OwnTxContext final : public TxContext {
  public:
    OwnTxContext() noexcept : TxContext(own_lock_) {}
    void set_up(const Plan& plan) noexcept;
    /// Opens a VCQ of its own and uses it. 0 or -FI_E*.
    [[nodiscard]] int open_vcq() noexcept;
    /// Uses that of a shared transmit context. 0 or -FI_ENOMEM.
    [[nodiscard]] int post_from(vcq::Vcq& vcq) noexcept;
    /// Frees the context's own VCQ; from then on none of its communications reaches memory.
    void close_vcq() noexcept { own_vcq_.close(); }
    /// Leaves the region table: regions that are opened or closed from now on are not told to this context.
    void detach() noexcept;
    void use(Peers* peers) noexcept { peers_ = peers; }
    [[nodiscard]] bool has_peers() const noexcept { return peers_ != nullptr; }
    /// `number`: in the domain. `known`: the address that peers know; a context has that of its scalable endpoint.
    void set_number(unsigned number, const EndpointAddress& known) noexcept;
    using TxContext::reports;
    [[nodiscard]] Reports& reports() noexcept { return reports_; }
    using TxContext::engines;
    [[nodiscard]] Engines& engines() noexcept { return engines_; }
    /// False: the context will use the VCQ of a shared transmit context, and none has been bound yet.
    [[nodiscard]] bool has_vcq() const noexcept { return vcq_ != nullptr; }
    /// True if nothing that was accepted still has to leave the process. What only waits for an answer of its peer has
    /// left.
    [[nodiscard]] bool all_has_left() const noexcept;
    /// Cancels what waits, and gives credits back to peers. Called before the VCQ is drained.
    void close() noexcept;
    /// Forgets the engines, which have been destroyed.
    void drop_engines() noexcept;
    /// Frees what the context had before it had engines: registrations, keys, credits.
    void drop_memory() noexcept;

  private:
    static void on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept;

    Lock own_lock_;
    vcq::Vcq own_vcq_;
};

} // namespace tofu
