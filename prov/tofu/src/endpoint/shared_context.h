// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_stx_context and fi_srx_context: a VCQ from which several endpoints post, and a queue of receives from which
// several endpoints match. Called by the application and by the endpoints bound to them; calls domain, vcq, proto.
//
// Endpoints with a shared context of either kind have one lock between them, the domain's (DomainBase::shared_lock): groups
// that share a VCQ and groups that share receives may overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "endpoint/endpoint.h"
#include "match/receive_queue.h"
#include "provider/array.h"
#include "provider/counted.h"
#include "vcq/vcq.h"

namespace tofu {

class Peers;
class DomainBase;

class SharedTransmit final : public fid_stx {
  public:
    /// fi_stx_context(3); holds the domain. 0, -FI_EINVAL, -FI_ENOMEM, or an error of its VCQ.
    static int open(fid_domain* domain, fi_tx_attr* attr, fid_stx** stx, void* context) noexcept;
    static SharedTransmit& of(fid_stx* s) noexcept { return *static_cast<SharedTransmit*>(s); }

    [[nodiscard]] DomainBase& domain() noexcept { return *domain_; }
    /// Posts and polls under the shared lock.
    [[nodiscard]] vcq::Vcq& vcq() noexcept { return vcq_; }
    /// By endpoints, as they are bound and closed. Takes the shared lock.
    [[nodiscard]] int join(TxContext& context) noexcept;
    void leave(TxContext& context) noexcept;
    /// Takes over a closed endpoint some of whose notices never came: it goes when the VCQ does. Takes the shared lock.
    void keep(Endpoint& endpoint) noexcept;
    int close() noexcept;

  private:
    SharedTransmit() = default;
    static void on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept;

    DomainBase* domain_ = nullptr;
    vcq::Vcq vcq_;
    Array<TxContext*> contexts_; ///< that post from it; under the shared lock
    Endpoint* kept_ = nullptr;         ///< likewise
};

/// The application posts receives to it as to an endpoint.
class SharedReceive final : public EndpointFace, public Counted {
  public:
    /// fi_srx_context(3); holds the domain. 0, -FI_EINVAL, -FI_ENOMEM.
    static int open(fid_domain* domain, fi_rx_attr* attr, fid_ep** ep, void* context) noexcept;
    static SharedReceive& of(fid_ep* e) noexcept { return *static_cast<SharedReceive*>(e); }

    [[nodiscard]] DomainBase& domain() noexcept { return *domain_; }
    [[nodiscard]] proto::ReceiveQueue& queue() noexcept { return queue_; }
    /// Endpoints that receive through it use one address vector (fi_endpoint(3), "Shared contexts"): the first enabled
    /// says which. False: another one.
    [[nodiscard]] bool agrees(const Peers& av) noexcept;

    // --- the calls of its operation tables
    ssize_t cancel(void* context) noexcept;
    int get_option(int level, int name, void* value, std::size_t* length) noexcept;
    int set_option(int level, int name, const void* value, std::size_t length) noexcept;
    [[nodiscard]] std::size_t size() const noexcept { return rx_.attr.size; }
    int close() noexcept;

  private:
    SharedReceive(DomainBase& domain, const fi_rx_attr& attr) noexcept;

    DomainBase* domain_;
    RxContext rx_; ///< its rules; each endpoint has a queue and counters of its own
    const Peers* av_ = nullptr; ///< under the shared lock
    proto::ReceiveQueue queue_;
};

} // namespace tofu
