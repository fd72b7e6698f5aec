// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_stx_context and fi_srx_context: a VCQ from which several endpoints post, and a queue of receives from which
// several endpoints match. Called by the application and by the endpoints bound to them; calls domain, vcq, proto.
//
// Endpoints with a shared context of either kind have one lock between them, the domain's (DomainBase::shared_lock): groups
// that share a VCQ and groups that share receives may overlap.
#pragma once

#include <cstddef>
#include <optional>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "endpoint/endpoint.h"
#include "match/receive_queue.h"
#include "match/srx_owner.h"
#include "provider/array.h"
#include "vcq/vcq.h"

namespace tofu {

class Peers;
class DomainBase;

/// Its users are the contexts that post from it.
class SharedTransmit final : public Object<SharedTransmit, fid_stx, DomainBase> {
  public:
    explicit SharedTransmit(DomainBase& domain) noexcept;
    ~SharedTransmit();
    /// fi_stx_context(3). 0, -FI_EINVAL, or an error of its VCQ.
    [[nodiscard]] int set_up(const fi_tx_attr* attr) noexcept;

    /// Posts and polls under the shared lock.
    [[nodiscard]] vcq::Vcq& vcq() noexcept { return vcq_; }
    /// By endpoints, as they are bound and closed. Takes the shared lock.
    [[nodiscard]] int join(TxContext& context) noexcept;
    void leave(TxContext& context) noexcept;
    /// Takes over a closed endpoint some of whose notices never came: it goes when the VCQ does. Takes the shared lock.
    void keep(Endpoint& endpoint) noexcept;

  private:
    static void on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept;

    vcq::Vcq vcq_;
    Array<TxContext*> contexts_; ///< under the shared lock
    Endpoint* kept_ = nullptr;         ///< likewise
};

/// The application posts receives to it as to an endpoint.
class SharedReceive final : public Object<SharedReceive, fid_ep, DomainBase, EndpointFace> {
  public:
    explicit SharedReceive(DomainBase& domain) noexcept;
    /// fi_srx_context(3), with FI_PEER in op_flags too: then `context` names another provider's receives (fi_peer(3)), and
    /// nothing is posted here.
    static int open(fid_domain* domain, fi_rx_attr* attr, fid_ep** made, void* context) noexcept;
    /// 0, -FI_EINVAL, -FI_ENOMEM.
    [[nodiscard]] int set_up(const fi_rx_attr* attr) noexcept;
    [[nodiscard]] int set_up(peer::Srx* owner) noexcept;
    /// Null: the receives are its own.
    [[nodiscard]] proto::SrxOwner* srx_owner() noexcept { return owner_ ? &*owner_ : nullptr; }

    [[nodiscard]] proto::ReceiveQueue& queue() noexcept { return *queue_; }
    /// Endpoints that receive through it use one address vector (fi_endpoint(3), "Shared contexts"): the first enabled
    /// says which. False: another one.
    [[nodiscard]] bool agrees(const Peers& av) noexcept;

    // --- the calls of its operation tables
    ssize_t cancel(void* context) noexcept;
    int get_option(int level, int name, void* value, std::size_t* length) noexcept;
    int set_option(int level, int name, const void* value, std::size_t length) noexcept;
    ssize_t size_left() noexcept { return static_cast<ssize_t>(rx_.attr.size); }

  private:
    RxContext rx_; ///< its rules; each endpoint has a queue and counters of its own
    const Peers* av_ = nullptr; ///< under the shared lock
    std::optional<proto::SrxOwner> owner_;
    std::optional<proto::ReceiveQueue> queue_;
};

} // namespace tofu
