// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The runner: takes atomic operations over, decides when each may begin and in which way, and lets the parts carry them
// out: word by word, in a batch, in spans (parts.h), or under a lock word (wide.h). Called by the engine and by the
// pending queue under the context's lock; calls its parts.
#pragma once

#include <cstddef>

#include "atomic/parts.h"
#include "atomic/wide.h"

namespace tofu {

class AtomicRunner {
  public:
    AtomicRunner(vcq::Vcq& vcq, Pending& pending, RemoteAccess& access) noexcept : ops(vcq, pending, access, *this) {}

    /// True if each operation has to take effect after the earlier ones to the same peer.
    bool ordered = false;

    // --- one element, one ARMW
    /// May an operation to the peer at `home` be posted at once? False: others have to go before it.
    [[nodiscard]] bool open_for_native(utofu_vcq_id_t home) const noexcept
    {
        return !ops.waiting().may_hold(home) && (!ordered || !ops.loops_at(home));
    }
    // --- everything else
    /// Takes the operation over: starts what can be started now; progress() does the rest. With `inject` the operand
    /// and compare lists are not read any more after the call.
    void submit(AtomicOp* op, bool inject) noexcept;
    void close() noexcept;

    AtomicOps ops;
    WordRunner words{ops};
    BatchRunner batches{ops};
    SpanRunner spans{ops, words};
    WideRunner wide{ops};

  private:
    friend class Pending::Stream;
    void prepare(AtomicOp& op, bool inject) noexcept;
    void keep_injected(AtomicOp& op) noexcept;
    [[nodiscard]] bool may_go_on(const AtomicOp& op) noexcept;
    [[nodiscard]] Lack start(AtomicOp& op) noexcept;
    [[nodiscard]] bool start_next(AtomicOp& op) noexcept;
    [[nodiscard]] Lack go_on(AtomicOp& op) noexcept;
    void through(AtomicOp& op) noexcept;
    void cancel(AtomicOp& op) noexcept;
};

} // namespace tofu
