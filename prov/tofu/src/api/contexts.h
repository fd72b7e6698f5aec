// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Several queues behind one address: scalable endpoints (ScalableEndpoint). One queue behind several addresses: shared
// contexts, of which several endpoints post from one VCQ (SharedTransmit) or match from one queue of receives
// (SharedReceive).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "api/endpoint.h"
#include "api/names.h"
#include "av/address.h"
#include "core/containers.h"
#include "core/limits.h"
#include "msg/receive_queue.h"
#include "utofu/vcq.h"

namespace tofu {

// --- ScalableEndpoint: fi_scalable_ep: one address for several transmit and receive contexts. It holds what they have
// in common and moves no data itself: each context is an Endpoint of one direction, with a VCQ, a lock and engines of
// its own.

class Peers;
class DomainBase;

/// Receive context i is the domain's endpoint number `first + i`: fi_rx_addr names it by adding. A transmit context has
/// any number; its anonymous packets carry the address of the scalable endpoint. The users (core/object.h) are the
/// contexts.
class ScalableEndpoint final : public Object<ScalableEndpoint, fid_ep, DomainBase> {
  public:
    explicit ScalableEndpoint(DomainBase& domain) noexcept;
    ~ScalableEndpoint();
    /// fi_scalable_ep(3). 0, -FI_EINVAL, -FI_ENOSPC (the domain has too few endpoint numbers left).
    [[nodiscard]] int set_up(const fi_info* info) noexcept;

    [[nodiscard]] EndpointAddress address() const noexcept;
    /// Null before fi_scalable_ep_bind.
    [[nodiscard]] Peers* av() noexcept { return av_; }
    /// Announces the service name that it was opened for; later calls do nothing. 0 or -FI_E*.
    int announce() noexcept;
    [[nodiscard]] names::Announcement& announcement() noexcept { return announcement_; }
    /// Called by a context that is being closed.
    void drop_context(bool sends, unsigned slot) noexcept;

    // --- the calls of fi_ep's operation tables. Any thread, without a lock; open_context() and announce() exclude each
    // other. The application does not bind or set options while it opens a context.
    /// fi_tx_context, fi_rx_context. The type of `attr`, fi_tx_attr or fi_rx_attr, says the direction; it may be null.
    template <class Attr>
    int open_context(int slot, Attr* attr, fid_ep** ep, void* context) noexcept;
    /// fi_scalable_ep_bind: one address vector of the domain. 0, -FI_EINVAL, -FI_EDOMAIN: one of another domain.
    int bind(struct fid* object, std::uint64_t flags) noexcept;
    /// fi_control(3): FI_ENABLE. 0, -FI_ENOAV (not bound), an error of announce(); -FI_ENOSYS: another command.
    int control(int command, void* argument) noexcept;
    /// fi_getname (fi_cm(3)). 0, -FI_EINVAL, -FI_ETOOSMALL.
    int name(void* buffer, std::size_t* length) const noexcept
    {
        return write_address(address(), config_.address_format, buffer, length);
    }
    /// FI_OPT_MIN_MULTI_RECV.
    [[nodiscard]] std::size_t& min_multi_recv() noexcept { return config_.min_multi_recv; }

  private:
    /// A closed receive context cannot be opened again, since peers may still write to its rings.
    enum class Slot : std::uint8_t { free, open, closed };

    Ref<Peers> av_;
    EndpointConfig config_{};       ///< contexts inherit it
    unsigned first_ = 0;            ///< number of receive context 0
    std::uint16_t incarnation_ = 0; ///< of the numbers
    unsigned tx_count_ = 0;
    unsigned rx_count_ = 0; ///< 0: no numbers have been taken
    Mutex mutex_;           ///< guards the members below
    Slot tx_[limits::max_contexts] = {};
    Slot rx_[limits::max_contexts] = {};
    bool announced_ = false;
    names::Announcement announcement_;
};

// --- SharedTransmit, SharedReceive: fi_stx_context, fi_srx_context. All endpoints of a domain that have a shared
// context of either kind share one lock (DomainBase::shared_lock), since groups that share a VCQ and groups that share
// receives may overlap.

/// A VCQ from which several transmit contexts post; they are its users (core/object.h).
class SharedTransmit final : public Object<SharedTransmit, fid_stx, DomainBase> {
  public:
    explicit SharedTransmit(DomainBase& domain) noexcept;
    ~SharedTransmit();
    /// fi_stx_context(3). 0, -FI_EINVAL, or an error of its VCQ.
    [[nodiscard]] int set_up(const fi_tx_attr* attr) noexcept;

    /// Posted from and polled under the shared lock.
    [[nodiscard]] vcq::Vcq& vcq() noexcept { return vcq_; }
    /// Called for each endpoint when it is bound, leave() when it is closed. Both take the shared lock.
    [[nodiscard]] int join(TxContext& context) noexcept;
    void leave(TxContext& context) noexcept;
    /// Takes over a closed endpoint with missing notices, and frees it when the VCQ is freed. Takes the
    /// shared lock.
    void keep(Endpoint& endpoint) noexcept;

  private:
    static void on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept;

    vcq::Vcq vcq_;
    Array<TxContext*> contexts_; ///< under the shared lock
    Endpoint* kept_ = nullptr;   ///< endpoints of keep(); under the shared lock
};

/// A queue of receives from which several endpoints match. The application posts receives to it as to an endpoint.
class SharedReceive final : public Object<SharedReceive, fid_ep, DomainBase, EpHandle> {
  public:
    explicit SharedReceive(DomainBase& domain) noexcept;
    /// fi_srx_context(3). With FI_PEER in op_flags `context` names another provider's receives (fi_peer(3)), and the
    /// application posts nothing here.
    static int open(fid_domain* domain, fi_rx_attr* attr, fid_ep** made, void* context) noexcept;
    /// 0, -FI_EINVAL, -FI_ENOMEM.
    [[nodiscard]] int set_up(const fi_rx_attr* attr) noexcept;
    [[nodiscard]] int set_up(peer::Srx* owner) noexcept;
    /// The owner of the receives, where that is another provider; null: they are our own.
    [[nodiscard]] proto::SrxOwner* srx_owner() noexcept { return owner_ ? &*owner_ : nullptr; }

    [[nodiscard]] proto::ReceiveQueue& queue() noexcept { return *queue_; }
    /// Endpoints that receive through it use one address vector (fi_endpoint(3), "Shared contexts"): the first enabled
    /// says which, and the last that is closed leaves the choice to others. False: another one; nothing has happened.
    [[nodiscard]] bool join(const Peers& av) noexcept;
    void leave() noexcept;

    // --- the calls of its operation tables. Any thread, which holds no lock: cancel() takes the shared lock.
    /// fi_cancel (fi_endpoint(3)). 0 or -FI_ENOENT.
    ssize_t cancel(void* context) noexcept;
    /// FI_OPT_MIN_MULTI_RECV; under the shared lock.
    [[nodiscard]] std::size_t& min_multi_recv() noexcept { return rx_.min_multi_recv; }
    /// fi_rx_size_left (fi_endpoint(3)): the size that was granted.
    ssize_t size_left() noexcept { return static_cast<ssize_t>(rx_.attr.size); }

  private:
    RxContext rx_;              ///< the rules for receives; each endpoint has a queue and counters of its own
    const Peers* av_ = nullptr; ///< of the endpoints that have joined; under the shared lock, as their number is
    unsigned joined_ = 0;
    std::optional<proto::SrxOwner> owner_;
    std::optional<proto::ReceiveQueue> queue_;
};

} // namespace tofu
