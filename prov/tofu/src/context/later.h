// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Calls with FI_TRIGGER, given or by the endpoint's default flags: they leave their way in before anything has
// happened, and are made when their counter has reached its threshold. Called by the entries of fi_msg, fi_tagged,
// fi_rma and fi_atomic with no lock held; implemented by trigger.
#pragma once

#include <sys/types.h>

namespace tofu {

struct AtomicCall;
struct EndpointFace;
struct RmaCall;
namespace proto {
struct RecvCall;
struct SendCall;
}

class CompletionQueue;
class TxContext;

class Later {
  public:
    /// 0, or a refusal: -FI_EBADFLAGS for an endpoint without FI_TRIGGER.
    virtual ssize_t take(EndpointFace& face, const proto::SendCall& call) noexcept = 0;
    virtual ssize_t take(EndpointFace& face, const proto::RecvCall& call) noexcept = 0;
    virtual ssize_t take(EndpointFace& face, const RmaCall& call) noexcept = 0;
    virtual ssize_t take(EndpointFace& face, const AtomicCall& call) noexcept = 0;

    // --- for endpoints with FI_TRIGGER
    /// At enable. 0 or -FI_ENOMEM.
    [[nodiscard]] virtual int open() noexcept = 0;
    /// Where receives of deferred work end (RxContext::relay).
    [[nodiscard]] virtual CompletionQueue* relay() const noexcept = 0;
    /// fi_cancel: of an operation that waits, or of a deferred receive that has been posted. 0 or -FI_ENOENT.
    virtual ssize_t cancel(const TxContext& tx, const void* context) noexcept = 0;
    /// The endpoint is about to go and makes no progress any more; `quiet`: nothing of it is under way.
    virtual void forget(const TxContext& tx, bool quiet) noexcept = 0;

  protected:
    ~Later() = default;
};

/// What a way in that holds a lock answers for such a call.
inline constexpr ssize_t for_later = 1;

} // namespace tofu
