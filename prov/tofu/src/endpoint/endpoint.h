// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_endpoint (FI_EP_RDM): a tx context and an rx context, the objects bound to them, and the engines that use them;
// the same with one of the two open as a context of a scalable endpoint. Called by the application and, for progress,
// by queues and counters; calls the engines.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

#include "address/address.h"
#include "context/face.h"
#include "context/rx_context.h"
#include "context/own_tx_context.h"
#include "endpoint/bindings.h"
#include "endpoint/engines.h"
#include "endpoint/service_name.h"
#include "progress/domain_base.h"
#include "progress/progress.h"
#include "queue/cq.h"

namespace tofu {

class ScalableEndpoint;

/// What an endpoint or a context is made of.
struct EndpointPlan {
    /// As fi_endpoint(3) and fi_scalable_ep ask for it. 0 or -FI_EINVAL (another type of endpoint among others).
    [[nodiscard]] int take(const fi_info* info) noexcept;

    std::uint64_t caps = 0;
    fi_tx_attr tx{};
    fi_rx_attr rx{};
    std::uint32_t address_format = FI_FORMAT_UNSPEC;
    std::uint64_t name_key = 0; ///< the service name it was opened for (info/names.h), 0: none
    bool sends = true;    ///< what the application may do with it: one direction only of a context
    bool receives = true;
    unsigned number = 0;                ///< of a receive context
    unsigned slot = 0;                  ///< of a context in its scalable endpoint
    ScalableEndpoint* parent = nullptr; ///< of a context
    bool shares_tx = false; ///< fi_endpoint(3), FI_SHARED_CONTEXT: a shared context will be bound
    bool shares_rx = false;
    std::size_t min_multi_recv = 64;
};

/// A round of progress polls the VCQ, resumes what is pending, and asks each engine that has something to do. The VCQ is
/// closed before the engines go, so that no waiter of theirs is called afterwards. Its users are its aliases.
class Endpoint final : public Object<Endpoint, fid_ep, DomainBase, EndpointFace>, public Pollable {
  public:
    explicit Endpoint(DomainBase& domain) noexcept;
    ~Endpoint();
    /// fi_endpoint(3). -FI_EINVAL, or as the next.
    [[nodiscard]] int set_up(const fi_info* info) noexcept;
    /// Opens a VCQ, unless one is to be shared. 0 or -FI_E*.
    [[nodiscard]] int set_up(const EndpointPlan* plan) noexcept;
    /// Also of an alias.
    static Endpoint& of(fid_ep* e) noexcept { return *static_cast<EndpointFace*>(e)->endpoint; }
    static Endpoint& of(struct fid* f) noexcept { return of(reinterpret_cast<fid_ep*>(f)); }
    [[nodiscard]] TxContext& tx_context() noexcept { return tx_; }
    [[nodiscard]] RxContext& rx_context() noexcept { return rx_; }
    [[nodiscard]] const EndpointAddress& address() const noexcept { return tx_.plan().known; }
    /// FI_FORMAT of fi_getname.
    [[nodiscard]] std::uint32_t address_format() const noexcept { return plan_.address_format; }
    [[nodiscard]] bool enabled() const noexcept { return enabled_; }

    /// One bounded round of the endpoint's own VCQ and its engines. Takes the lock, or returns at once
    /// where another thread holds it and `patient` is not asked for. True where the VCQ had something.
    bool progress(bool patient) noexcept override;
    [[nodiscard]] const vcq::Vcq& polled() const noexcept override { return tx_.vcq(); }
    /// progress() for the reader of `queue`: messages wait for another round where that is filled by now.
    void look(const CompletionQueue& queue) noexcept;

    // --- the calls of fi_ep's operation tables (calls.cc) that change what it is
    int bind(struct fid* object, std::uint64_t flags) noexcept;
    int enable() noexcept;
    int close() noexcept;
    int join(const void* address, std::uint64_t flags, fid_mc** mc, void* context) noexcept;
    ssize_t cancel(void* context) noexcept;
    /// Behind close(), of one whose memory the VCQ of a shared transmit context may still reach: that has been freed.
    void bury() noexcept;
    Endpoint* next_kept = nullptr; ///< among those that such a context keeps

  private:
    static bool round(void* self) noexcept;
    void choose_operations() noexcept;
    int announce() noexcept;
    [[nodiscard]] bool stop() noexcept;
    void drop_all() noexcept;

    EndpointPlan plan_{};
    OwnTxContext tx_;
    RxContext rx_;
    EndpointEngines engines_;
    bool enabled_ = false;
    Bindings bound_{tx_, rx_};
    ServiceName name_;
};

} // namespace tofu
