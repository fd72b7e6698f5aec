// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A tx context as its owner has it: opened, bound to what it uses, closed. Used by endpoint; calls vcq, remote, memory
// and, through Engine, the engines.
#pragma once

#include <cstdint>

#include "context/tx_context.h"

namespace tofu {

class OwnTxContext final : public TxContext {
  public:
    OwnTxContext() noexcept : TxContext(own_lock_) {}
    void set_up(const Plan& plan) noexcept;
    /// Opens a VCQ of its own and uses it. 0 or -FI_E*.
    [[nodiscard]] int open_vcq() noexcept;
    /// Uses that of a shared transmit context. 0 or -FI_ENOMEM.
    [[nodiscard]] int post_from(vcq::Vcq& vcq) noexcept;
    /// Its own; nothing reaches memory by it any more.
    void close_vcq() noexcept { own_vcq_.close(); }
    /// The region table gives nothing to it any more.
    void detach() noexcept;
    void use(Peers* peers) noexcept { peers_ = peers; }
    [[nodiscard]] bool has_peers() const noexcept { return peers_ != nullptr; }
    /// `number`: in the domain; `known`: the address that peers know, of a context that of its scalable endpoint.
    void set_number(unsigned number, const EndpointAddress& known) noexcept;
    using TxContext::reports;
    [[nodiscard]] Reports& reports() noexcept { return reports_; }
    using TxContext::engines;
    [[nodiscard]] Engines& engines() noexcept { return engines_; }
    /// False: that of a shared transmit context will be used, and none has been bound yet.
    [[nodiscard]] bool has_vcq() const noexcept { return vcq_ != nullptr; }
    /// Nothing that was taken still has to leave. What waits for an answer of its peer alone has left.
    [[nodiscard]] bool all_has_left() const noexcept;
    /// Ends what waits, and gives back what it has at peers; before the VCQ is drained.
    void close() noexcept;
    /// Behind the engines' end. drop_memory(): what it has before there are any.
    void drop_engines() noexcept;
    void drop_memory() noexcept;

  private:
    static void on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept;

    Lock own_lock_;
    vcq::Vcq own_vcq_;
};

} // namespace tofu
