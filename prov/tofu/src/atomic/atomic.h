// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_atomic: which operations of a context may begin, and the way that each takes (AtomicRunner); what a call asks for
// (AtomicList, AtomicCall), and the calls (Atomics). The application enters by atomic_ops, rounds of progress and
// the pending queue resume. Under the context's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <rdma/fi_atomic.h>

#include "atomic/op_table.h"
#include "atomic/ops.h"
#include "atomic/wide.h"
#include "tx/tx_context.h"

namespace tofu {

// --- AtomicRunner: takes atomic operations over, decides when each may begin and in which way, and lets the parts
// carry them out: word by word, in a batch, in spans (atomic/ops.h), or under a lock word (atomic/wide.h)

class AtomicRunner {
  public:
    AtomicRunner(vcq::Vcq& vcq, PendingQueue& pending, RemoteMemory& access) noexcept : ops(vcq, pending, access, *this)
    {
    }

    /// True if each operation has to take effect after the earlier ones to the same peer.
    bool ordered = false;

    // --- one element, one ARMW
    /// May an operation to the peer at `target_vcq` be posted at once? False: others have to go before it.
    [[nodiscard]] bool open_for_native(utofu_vcq_id_t target_vcq) const noexcept
    {
        return !ops.waiting().may_block(target_vcq) && (!ordered || !ops.loops_at(target_vcq));
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
    friend class PendingQueue::SubQueue;
    void keep_injected(AtomicOp& op) noexcept;
    /// May the next word go now, as far as order across the VCQs of a peer is concerned, where that was promised?
    [[nodiscard]] bool may_go_on(const AtomicOp& op) noexcept
    {
        return !op.strong || ops.access.may_go_to(op.peer.target_vcq, op.next().vcq);
    }
    [[nodiscard]] BlockReason start(AtomicOp& op) noexcept;
    [[nodiscard]] bool start_next(AtomicOp& op) noexcept;
    [[nodiscard]] BlockReason resume(AtomicOp& op) noexcept { return op.notifying ? ops.notify_target(op) : start(op); }
    void unblocked(AtomicOp& op) noexcept { op.notifying ? ops.finish(op) : ops.end_one(op, UTOFU_SUCCESS); }
    void cancel(AtomicOp& op) noexcept;
};

// --- Atomics: from a call to the runner that carries it out

struct FastOp;

/// The endpoint's operation table (fid_ep::atomic): every entry is filled.
extern fi_ops_atomic atomic_ops;

struct AtomicList {
    const fi_ioc* at;
    std::size_t n;
};
/// What a call asks for, in the widest form.
struct AtomicCall {
    Family family;
    fi_msg_atomic msg;
    AtomicList compare;
    AtomicList result;
    std::uint64_t flags;
    bool is_inject; ///< fi_inject_atomic: no entry on success
    [[nodiscard]] AtomicList operand() const noexcept { return {msg.msg_iov, msg.iov_count}; }
};

/// The atomics of one context. Everything is called under its lock.
class Atomics final : public Engine {
  public:
    static Atomics& of(TxContext& tx) noexcept { return static_cast<Atomics&>(*tx.engines()[atomic]); }
    using Call = AtomicCall;
    using List = AtomicList;
    using Ends = std::array<vcq::CompletionHandler::Function, 3>; ///< of the fast path, by Fetched

    /// With FI_ORDER_ATOMIC_* (or the plain FI_ORDER_RAR ... WAW) each operation takes effect after the earlier ones to
    /// the same peer.
    explicit Atomics(TxContext& tx) noexcept;

    /// Flags that the msg calls may have; a call with others is refused.
    static constexpr std::uint64_t known_flags = FI_COMPLETION | FI_MORE | FI_INJECT | FI_FENCE | FI_INJECT_COMPLETE |
                                                 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
    /// The number of elements of a list; -FI_EINVAL if there is no list, -FI_EMSGSIZE if it exceeds the limit of a
    /// call.
    [[nodiscard]] static ssize_t elements_of(const List& list) noexcept;
    /// Accepts and begins an operation. 0, or a refusal without any effect; a later failure becomes an error entry.
    [[nodiscard]] ssize_t submit(const Call& call) noexcept;
    /// Checks what can be checked without knowing the peer. The number of elements, or the refusal.
    [[nodiscard]] ssize_t check(const Call& call) const noexcept;

    /// Continues words of operations under way that have to be posted again. Called in each round of progress, after
    /// the poll of the VCQ.
    void progress() noexcept
    {
        if (!runner_.ops.retry_list.empty()) [[unlikely]]
            runner_.ops.retry_list.round();
    }
    /// Does anything wait for progress()?
    [[nodiscard]] bool waits() const noexcept { return !runner_.ops.retry_list.empty(); }
    [[nodiscard]] bool all_has_left() const noexcept override { return runner_.ops.outstanding() == 0; }
    /// Operations under way to other peers count, too: they end soon.
    [[nodiscard]] bool idle_towards(const Peer&) const noexcept override
    {
        return runner_.ops.outstanding() == runner_.ops.waiting().size();
    }
    [[nodiscard]] bool needs_polls() const noexcept override { return runner_.ops.outstanding() != 0; }
    /// Closes the runner first: else operations that end now would begin those that wait.
    void close() noexcept override { runner_.close(); }
    void on_unsignaled_error(int utofu_code, vcq::Unsignaled kind, utofu_vcq_id_t) noexcept override
    {
        if (kind == vcq::Unsignaled::armw && posted_unsignaled_)
            report_failure(tx_.reports(), FI_ATOMIC | FI_WRITE, nullptr, utofu_code);
    }
    [[nodiscard]] AtomicRunner& runner() noexcept { return runner_; }

    // --- for the fast path (armw.h)
    /// An ARMW of the fast path has failed: a read is tried by a Get, any other is reported.
    [[gnu::cold]] void native_failed(const FastOp& op, bool base, bool entry, int code) noexcept;
    /// Notes that an unsignaled ARMW is posted: from now on an unsignaled error may be its.
    void unsignaled() noexcept { posted_unsignaled_ = true; }
    [[nodiscard]] unsigned long native_flags() const noexcept { return native_flags_; }
    [[nodiscard]] vcq::CompletionHandler::Function native_end(Fetched fetched, bool entry) const noexcept
    {
        return (entry ? ends_[true] : ends_[false])[static_cast<unsigned>(fetched)];
    }
    [[nodiscard]] unsigned long inject_flags() const noexcept { return inject_flags_; }
    [[nodiscard]] RemoteMemory& access() noexcept { return access_; }
    /// May an inject be unsignaled? Such an ARMW cannot be counted.
    [[nodiscard]] bool short_inject() const noexcept { return short_inject_; }

  private:
    [[nodiscard]] bool read_by_get(const FastOp& fast, bool entry) noexcept;

    TxContext& tx_;
    unsigned long native_flags_;
    unsigned long inject_flags_;
    bool short_inject_;
    bool posted_unsignaled_ = false;
    Ends ends_[2]; ///< [an entry is wanted]
    RemoteMemory access_;
    AtomicRunner runner_;
};

} // namespace tofu
