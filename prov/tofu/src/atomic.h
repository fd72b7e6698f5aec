// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_atomic: the calls of an endpoint. They check their arguments, resolve peer and key, and hand the
// operation to the runner. Called by the application through atomic_ops and by the endpoint's progress;
// calls av, mr, request, vcq.
#pragma once

#include <cstdint>

#include <rdma/fi_atomic.h>

#include "atomic_loop.h"
#include "atomic_table.h"

namespace tofu {

class Endpoint;

/// The endpoint's operation table (fid_ep::atomic): every entry is filled.
extern fi_ops_atomic atomic_ops;

/// The atomics of one endpoint. Everything under the endpoint's lock.
class AtomicEngine {
  public:
    explicit AtomicEngine(Endpoint& endpoint) noexcept;
    /// Reads the endpoint's orders: with FI_ORDER_ATOMIC_* (or the plain FI_ORDER_RAR ... WAW) each operation
    /// takes effect after the earlier ones to the same peer. 0.
    [[nodiscard]] int open() noexcept;

    /// Continues operations that met a full queue, back off or wait for a fence. The endpoint calls it in
    /// each of its rounds, after polling its VCQ.
    void progress() noexcept
    {
        if (runner_.wants_progress()) [[unlikely]]
            runner_.progress();
    }
    /// No atomic of this endpoint is under way (fences of other engines wait for this).
    [[nodiscard]] bool idle() const noexcept { return runner_.outstanding() == 0; }
    [[nodiscard]] AtomicRunner& runner() noexcept { return runner_; }

  private:
    Endpoint& endpoint_;
    AtomicRunner runner_;
};

} // namespace tofu
