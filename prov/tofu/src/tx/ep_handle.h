// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the calls of the application begin with: the calls with FI_TRIGGER, which are deferred (DeferredCalls), and the
// object behind a fid_ep (EpHandle). api/ fills both in.
#pragma once

#include <cstdint>

#include <rdma/fi_endpoint.h>
#include <sys/types.h>

namespace tofu {

// --- DeferredCalls: an entry of fi_msg, fi_tagged, fi_rma or fi_atomic hands such a call over before it has done
// anything, with no lock held; the call is made when its counter has reached its threshold.

struct AtomicCall;
struct EpHandle;
struct RmaCall;
namespace proto {
struct RecvCall;
struct SendCall;
} // namespace proto

class CompletionQueue;
class TxContext;

class DeferredCalls {
  public:
    /// Accepts a call. 0, or a refusal: -FI_EBADFLAGS for an endpoint without FI_TRIGGER.
    virtual ssize_t defer(EpHandle& handle, const proto::SendCall& call) noexcept = 0;
    virtual ssize_t defer(EpHandle& handle, const proto::RecvCall& call) noexcept = 0;
    virtual ssize_t defer(EpHandle& handle, const RmaCall& call) noexcept = 0;
    virtual ssize_t defer(EpHandle& handle, const AtomicCall& call) noexcept = 0;

    // --- for endpoints with FI_TRIGGER
    /// Called by fi_enable. 0 or -FI_ENOMEM.
    [[nodiscard]] virtual int open() noexcept = 0;
    /// The queue to which receives of deferred work report (RxContext::internal_cq).
    [[nodiscard]] virtual CompletionQueue* internal_cq() const noexcept = 0;
    /// fi_cancel of an operation that waits for its counter, or of a deferred receive that has been posted. 0 or
    /// -FI_ENOENT.
    virtual ssize_t cancel(const TxContext& tx, const void* context) noexcept = 0;
    /// Drops the operations of an endpoint that wait for their counters. Called as its close begins: another thread's
    /// progress would begin them.
    virtual void cancel_waiting(const TxContext& tx) noexcept = 0;
    /// Drops the other operations of an endpoint that makes no progress any more. `quiet`: none of its communications
    /// is under way.
    virtual void forget(const TxContext& tx, bool quiet) noexcept = 0;

  protected:
    ~DeferredCalls() = default;
};

/// The answer of an entry that holds a lock to a call that DeferredCalls has to accept.
inline constexpr ssize_t must_be_deferred = 1;

// --- EpHandle: the object behind a fid_ep of the application: an endpoint or a context, an alias of one with operation
// flags of its own (fi_ep_alias, fi_endpoint(3)), or a shared receive context.

class Endpoint;
class Lock;
namespace proto {
class ReceiveQueue;
}

struct EpHandle : fid_ep {
    TxContext* tx = nullptr;                 ///< where operations are posted; null: a shared receive context
    proto::ReceiveQueue* receives = nullptr; ///< where fi_recv posts
    Lock* receive_lock = nullptr;            ///< of `receives`
    std::uint64_t tx_flags = 0;              ///< defaults of the calls without a flags argument
    std::uint64_t rx_flags = 0;
    Endpoint* endpoint = nullptr; ///< null: a shared receive context
    bool reads_descs = false;     ///< arrays of descs are valid or null (DomainModel::valid_descs)

    /// An array of descs that the application passed, or null where it may be anything.
    [[nodiscard]] void* const* descs(void* const* array) const noexcept { return reads_descs ? array : nullptr; }
    [[nodiscard]] void** descs(void** array) const noexcept { return reads_descs ? array : nullptr; }

    static EpHandle& of(fid_ep* e) noexcept { return *static_cast<EpHandle*>(e); }
};

} // namespace tofu
