// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An endpoint or a context of a scalable endpoint: its engines (EndpointEngines), what it is bound to (Bindings) and
// made of (EndpointConfig), and the object itself (Endpoint): a tx context and an rx context, the objects bound to
// them, and the engines that use them. The operation tables are in api/endpoint_calls.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

#include "api/names.h"
#include "av/address.h"
#include "av/peer_table.h"
#include "cq/cq.h"
#include "cq/domain_base.h"
#include "cq/progress.h"
#include "tx/ep_handle.h"
#include "tx/tx_context.h"

namespace tofu {

// --- EndpointEngines: fi_enable creates the engines that the caps request, fi_close destroys them

class Atomics;
class Rma;
namespace coll {
class Collectives;
}
namespace proto {
class MessageEngine;
}

/// The engines; null where the caps do not ask for one. The tx context has a list of those that post from it (Engines).
struct EndpointEngines {
    EndpointEngines() noexcept;
    ~EndpointEngines();
    /// Makes the engines. `joins`: the endpoint may join collective groups. 0 or -FI_E*; after an error the caller
    /// calls drop().
    [[nodiscard]] int make(TxContext& tx, RxContext& rx, bool joins) noexcept;
    /// Destroys the engines. Takes the context's lock.
    void drop(TxContext& tx) noexcept;

    std::unique_ptr<Rma> rma;
    std::unique_ptr<Atomics> atomic;
    std::unique_ptr<proto::MessageEngine> messages;
    std::unique_ptr<coll::Collectives> collectives;
};

// --- Bindings: what an endpoint or a context is bound to (fi_endpoint(3), fi_ep_bind), and the progress sets that it
// is in because of that

class EventQueue;
class SharedReceive;
class SharedTransmit;

/// Hands what is bound to the two contexts, which use it: queues, counters, an address vector, a shared VCQ, a shared
/// queue of receives.
class Bindings {
  public:
    Bindings(TxContext& tx, RxContext& rx) noexcept;
    ~Bindings();
    /// fi_ep_bind(3). 0, -FI_EINVAL, -FI_EDOMAIN, -FI_EBADFLAGS, -FI_ENOMEM.
    [[nodiscard]] int add(struct fid* object, std::uint64_t flags) noexcept;
    [[nodiscard]] int add_addresses(Peers& av) noexcept;
    /// Checks before fi_enable that everything needed is bound and fits together. 0, or the refusal.
    [[nodiscard]] int check() noexcept;
    /// Adds the endpoint to the progress sets of all bound objects, and of the event queue if `notifies`. 0 or
    /// -FI_ENOMEM.
    [[nodiscard]] int list(Pollable& endpoint, bool notifies) noexcept;
    void unlist(Pollable& endpoint) noexcept;
    void release_all() noexcept;
    /// Null: none.
    [[nodiscard]] EventQueue* events() const noexcept { return eq_; }
    [[nodiscard]] SharedTransmit* shared_transmit() const noexcept { return shared_tx_; }

  private:
    [[nodiscard]] int add_events(EventQueue& events) noexcept;
    [[nodiscard]] int add_shared(SharedTransmit& shared) noexcept;
    [[nodiscard]] int add_shared(SharedReceive& shared) noexcept;

    TxContext& tx_;
    RxContext& rx_;
    SharedTransmit* shared_tx_ = nullptr;
    Ref<SharedReceive> shared_rx_;
    bool joined_rx_ = false; ///< enabled, or tried to be
    Peers::Watcher watcher_; ///< notifies the owner of shared receives of changed addresses
    Ref<EventQueue> eq_;
    bool listed_ = false;
};

// --- Endpoint: fi_endpoint (FI_EP_RDM). A context of a scalable endpoint is the same with one of tx and rx context
// open.

class ScalableEndpoint;

/// What an endpoint or a context is made of.
struct EndpointConfig {
    /// Reads the info that was given to fi_endpoint or fi_scalable_ep. 0 or -FI_EINVAL (such as another type of
    /// endpoint).
    [[nodiscard]] int configure(const fi_info* info) noexcept;

    std::uint64_t caps = 0;
    fi_tx_attr tx{};
    fi_rx_attr rx{};
    std::uint32_t address_format = FI_FORMAT_UNSPEC;
    std::uint64_t name_key = 0; ///< of the service name that it was opened for (api/names.h), 0: none
    bool sends = true;          ///< the directions that the application may use; a context has one only
    bool receives = true;
    unsigned number = 0;                ///< of a receive context
    unsigned slot = 0;                  ///< index of a context in its scalable endpoint
    ScalableEndpoint* parent = nullptr; ///< of a context; null: an endpoint
    bool shares_tx = false;             ///< fi_endpoint(3), FI_SHARED_CONTEXT: a shared context will be bound
    bool shares_rx = false;
    std::size_t min_multi_recv = 64;
};

/// A round of progress polls the VCQ, resumes what is pending, and calls each engine that has something to do. The VCQ
/// is closed before the engines are destroyed, so that none of their completion handlers is called afterwards. The
/// users of an endpoint (core/object.h) are its aliases.
class Endpoint final : public Object<Endpoint, fid_ep, DomainBase, EpHandle>, public Pollable {
  public:
    explicit Endpoint(DomainBase& domain) noexcept;
    ~Endpoint();
    /// fi_endpoint(3). 0, -FI_EINVAL, or an error of the next function.
    [[nodiscard]] int set_up(const fi_info* info) noexcept;
    /// Opens what the plan asks for, with a VCQ unless that is to be shared. 0 or -FI_E*.
    [[nodiscard]] int set_up(const EndpointConfig* config) noexcept;
    /// The endpoint of a fid; of an alias, the endpoint that it is an alias of.
    static Endpoint& of(fid_ep* e) noexcept { return *static_cast<EpHandle*>(e)->endpoint; }
    static Endpoint& of(struct fid* f) noexcept { return of(reinterpret_cast<fid_ep*>(f)); }
    [[nodiscard]] TxContext& tx_context() noexcept { return tx_; }
    [[nodiscard]] RxContext& rx_context() noexcept { return rx_; }
    [[nodiscard]] const EndpointAddress& address() const noexcept { return tx_.config().known; }
    /// FI_FORMAT of fi_getname.
    [[nodiscard]] std::uint32_t address_format() const noexcept { return config_.address_format; }
    [[nodiscard]] bool enabled() const noexcept { return enabled_; }

    /// One bounded round of the endpoint's own VCQ and its engines. Takes the lock; if another thread holds it and
    /// `patient` is false, returns at once. True if the poll found a notice.
    bool progress(bool patient) noexcept override;
    [[nodiscard]] const vcq::Vcq& polled() const noexcept override { return tx_.vcq(); }
    // --- for the readers of queues and counters (api/cq_read.cc)
    [[nodiscard]] PollHint poll_hint() noexcept;
    void accept_packets(const PollHint& hint) noexcept;
    /// False: none has come.
    bool accept_notices() noexcept;
    /// A round of the message engine, if there is one.
    void accept_messages() noexcept;
    /// progress() for the reader of `queue`. Once the poll has filled the queue, messages wait for the next round.
    void poll(const CompletionQueue& queue) noexcept;

    // --- the calls of fi_ep's operation tables (api/endpoint_calls.cc) that change the endpoint
    int bind(struct fid* object, std::uint64_t flags) noexcept;
    int enable() noexcept;
    int close() noexcept;
    int join(const void* address, std::uint64_t flags, fid_mc** mc, void* context) noexcept;
    ssize_t cancel(void* context) noexcept;
    /// Frees an endpoint that close() had to leave alive, because the VCQ of its shared transmit context might still
    /// have reached its memory. Called when that VCQ has been freed.
    void destroy() noexcept;
    Endpoint* next_kept = nullptr; ///< in the list of such endpoints of a shared transmit context

  private:
    static bool round(void* self) noexcept;
    void choose_operations() noexcept;
    int announce() noexcept;
    template <class Done>
    [[nodiscard]] int make_progress_until(Done&& done, std::chrono::milliseconds patience) noexcept;
    void drain_sends() noexcept;
    void stop_writers() noexcept;
    [[nodiscard]] bool stop() noexcept;
    void close_area() noexcept;
    void release_all() noexcept;
    void release_number() noexcept;

    EndpointConfig config_{};
    TxContext tx_;
    RxContext rx_;
    EndpointEngines engines_;
    bool enabled_ = false;
    bool leaves_copies_ = false; ///< the domain's orphaned copies has the area, and the number with it
    Bindings bound_{tx_, rx_};
    names::Announcement own_name_;
    names::Announcement* name_ = nullptr; ///< by which it can be found: its own or its scalable endpoint's; null: none
    unsigned rounds_ = 0;                 ///< with a name
};

} // namespace tofu
