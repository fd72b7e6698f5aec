// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The runner: takes atomic operations over, says which may begin now and in which way, and has the parts carry them out:
// word by word, in a batch, in spans (parts.h), or under a lock word (wide.h). Called by the engine under the context's lock and by the pending queue; calls its parts.
#pragma once

#include <cstddef>

#include "atomic/parts.h"
#include "atomic/wide.h"

namespace tofu {

class AtomicRunner {
  public:
    AtomicRunner(vcq::Vcq& vcq, Pending& pending, RemoteAccess& access) noexcept : ops_(vcq, pending, access, *this) {}

    /// Each operation takes effect after the earlier ones to the same peer.
    void set_ordered(bool on) noexcept { ordered_ = on; }
    [[nodiscard]] bool ordered() const noexcept { return ordered_; }

    // --- one element, one ARMW
    /// May an operation towards the peer at `home` be posted at once? False: others have to go before it.
    [[nodiscard]] bool open_for_native(utofu_vcq_id_t home) const noexcept
    {
        return !ops_.waiting().may_hold(home) && (!ordered_ || !ops_.loops_at(home));
    }
    /// May it go to this VCQ of the peer at `home` now? Where order was promised, a change of the VCQ has to wait.
    [[nodiscard]] bool native_may_go_to(utofu_vcq_id_t home, utofu_vcq_id_t vcq) noexcept
    {
        return !ordered_ || ops_.access.may_go_to(home, vcq);
    }
    // --- everything else
    /// Null when too many are under way (-FI_EAGAIN for the caller).
    [[nodiscard]] AtomicOp* alloc() noexcept { return ops_.alloc(); }
    void release(AtomicOp* op) noexcept { ops_.release(op); }
    /// Takes the operation over: starts what can be started now, progress() does the rest. With `inject` the
    /// operand and compare lists are not read any more when the call returns.
    void submit(AtomicOp* op, bool inject) noexcept;
    /// Takes over an operation that was refused on the short way: begins once its keys are known anew.
    void submit_anew(AtomicOp* op) noexcept
    {
        ops_.take_over();
        ops_.begin_again(*op);
    }

    /// Operations that have not ended, and those of them that do not wait in a line.
    [[nodiscard]] std::size_t outstanding() const noexcept { return ops_.outstanding(); }
    [[nodiscard]] std::size_t under_way() const noexcept { return ops_.outstanding() - ops_.waiting().size(); }
    /// Some of those under way have to be posted again.
    [[nodiscard]] bool wants_progress() const noexcept { return ops_.outstanding() != 0 && !ops_.agenda.empty(); }
    void progress() noexcept { ops_.agenda.round(); }
    void close() noexcept;

    // --- the parts
    [[nodiscard]] AtomicOps& ops() noexcept { return ops_; }
    [[nodiscard]] WordRunner& words() noexcept { return words_; }
    [[nodiscard]] BatchRunner& batches() noexcept { return batches_; }
    [[nodiscard]] SpanRunner& spans() noexcept { return spans_; }
    [[nodiscard]] WideRunner& wide() noexcept { return wide_; }

    /// Of the operations that wait.
    static const Pending::Stream::Steps steps;

  private:
    void prepare(AtomicOp& op, bool inject) noexcept;
    void keep_injected(AtomicOp& op) noexcept;
    [[nodiscard]] bool may_go_on(const AtomicOp& op) noexcept;
    [[nodiscard]] Lack start(AtomicOp& op) noexcept;
    [[nodiscard]] bool start_next(AtomicOp& op) noexcept;
    [[nodiscard]] Lack go_on(AtomicOp& op) noexcept;
    void through(AtomicOp& op) noexcept;
    void cancel(AtomicOp& op) noexcept;

    bool ordered_ = false;
    AtomicOps ops_;
    WordRunner words_{ops_};
    BatchRunner batches_{ops_};
    SpanRunner spans_{ops_, words_};
    WideRunner wide_{ops_};
};

} // namespace tofu
