// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_endpoint (FI_EP_RDM): a posting VCQ, the objects bound to it, and the engines that use them. Called by
// the application through the operation tables of rma, atomic, msg and tagged; calls those engines.
#pragma once

#include <cstdint>
#include <memory>

#include <rdma/fi_endpoint.h>

#include "av.h"
#include "cntr.h"
#include "cq.h"
#include "domain.h"
#include "lock.h"
#include "mr.h"
#include "vcq/vcq.h"

namespace tofu {

class AtomicEngine;
class RmaEngine;
namespace proto {
class Messenger;
}

/// Which completions an endpoint's side reports, from fi_ep_bind and the tx/rx attributes.
struct Binding {
    CompletionQueue* cq = nullptr;
    bool selective = false;       ///< FI_SELECTIVE_COMPLETION: only with FI_COMPLETION
    std::uint64_t op_flags = 0;   ///< default operation flags (fi_endpoint(3))
};

/// The six counters an endpoint can be bound to (fi_endpoint(3), fi_ep_bind).
struct Counters {
    Counter* send = nullptr;
    Counter* recv = nullptr;
    Counter* read = nullptr;
    Counter* write = nullptr;
    Counter* remote_read = nullptr;
    Counter* remote_write = nullptr;
};

class Endpoint final : public fid_ep {
  public:
    static int open(fid_domain* domain, fi_info* info, fid_ep** ep, void* context);
    static Endpoint& of(fid_ep* e) noexcept { return *static_cast<Endpoint*>(e); }

    [[nodiscard]] Domain& domain() noexcept { return *domain_; }
    [[nodiscard]] AddressVector& av() noexcept { return *av_; }
    [[nodiscard]] unsigned index() const noexcept { return index_; }
    [[nodiscard]] std::uint64_t caps() const noexcept { return caps_; }
    [[nodiscard]] EndpointAddress address() const noexcept;

    // --- for the engines; all below under lock()
    [[nodiscard]] Lock& lock() noexcept { return lock_; }
    [[nodiscard]] vcq::Vcq& vcq() noexcept { return vcq_; }
    [[nodiscard]] LocalMemory& local_memory() noexcept { return *local_memory_; }
    [[nodiscard]] const Binding& tx() const noexcept { return tx_; }
    [[nodiscard]] const Binding& rx() const noexcept { return rx_; }
    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
    [[nodiscard]] RmaEngine& rma() noexcept { return *rma_; }
    [[nodiscard]] AtomicEngine& atomic() noexcept { return *atomic_; }
    [[nodiscard]] proto::Messenger& messages() noexcept { return *messages_; }
    [[nodiscard]] bool enabled() const noexcept { return enabled_; }

    /// One bounded round of the endpoint's own VCQ and message rings. Takes the lock, or returns at once
    /// where another thread holds it.
    void progress() noexcept;
    /// A peer's notice concerning this endpoint's message area (home VCQ). Takes the lock.
    void area_notice(const vcq::RemoteNotice& notice, std::uint64_t offset) noexcept;

  private:
    Domain* domain_ = nullptr;
    AddressVector* av_ = nullptr;
    std::uint64_t caps_ = 0;
    unsigned index_ = 0;
    bool enabled_ = false;
    Lock lock_;
    vcq::Vcq vcq_;
    Binding tx_{};
    Binding rx_{};
    Counters counters_{};
    std::unique_ptr<LocalMemory> local_memory_;
    std::unique_ptr<RmaEngine> rma_;
    std::unique_ptr<AtomicEngine> atomic_;
    std::unique_ptr<proto::Messenger> messages_;
};

} // namespace tofu
