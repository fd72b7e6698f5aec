// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The atomic operations of one context: which wait, how far each has been started, how each ends; and the members that
// the parts share that carry them out (parts.h, wide.h). Called by these parts and by the runner under the context's
// lock; calls vcq, request, tx/remote_memory.
#pragma once

#include <cstddef>

#include "atomic/op.h"
#include "tx/pending_queue.h"
#include "tx/remote_memory.h"
#include "utofu/vcq.h"

namespace tofu {

class AtomicOps {
  public:
    static constexpr std::size_t max_ops = 512;
    /// Places of the completion window that are left to the context's other engines.
    static constexpr unsigned window_reserve = 48;

    AtomicOps(vcq::Vcq& vcq, Pending& pending, RemoteAccess& access, AtomicRunner& runner) noexcept;
    AtomicOps(const AtomicOps&) = delete;
    AtomicOps& operator=(const AtomicOps&) = delete;

    /// Makes an operation. Null: too many are under way.
    [[nodiscard]] AtomicOp* alloc() noexcept;
    void release(AtomicOp* op) noexcept { ops_.renew(op); }
    /// The number of operations that have not ended.
    [[nodiscard]] std::size_t outstanding() const noexcept { return ops_.in_use(); }
    /// The operations that wait to be started, or to notify their targets.
    [[nodiscard]] Pending::Stream& waiting() noexcept { return waiting_; }
    [[nodiscard]] const Pending::Stream& waiting() const noexcept { return waiting_; }
    /// Is an operation that takes several round trips under way at this peer?
    [[nodiscard]] bool loops_at(utofu_vcq_id_t home) const noexcept
    {
        return looping_ != nullptr && find_loop(home);
    }

    // --- for the parts
    vcq::Vcq& vcq;
    RemoteAccess& access; ///< in the runner's order
    Agenda agenda;        ///< parts that go on in later rounds; closed at the end
    BouncePool scratch;   ///< blocks that Gets write to: words, wide elements, spans

    /// Has the window room for one communication, and `more` besides?
    [[nodiscard]] bool has_room(unsigned more = 0) const noexcept { return vcq.window().free() > window_reserve + more; }
    /// Handles a refused post of a part. 0: the part goes on in a later round; else the code that it ends with, because
    /// there are no later rounds or the post was refused for good.
    [[nodiscard]] int put_off(Deferred& item, vcq::Post posted) noexcept
    {
        if (posted == vcq::Post::error)
            return vcq.last_error();
        if (agenda.closed())
            return UTOFU_ERR_MRQ_OTHER;
        agenda.add(item);
        vcq.set_busy();
        return UTOFU_SUCCESS;
    }
    /// Handles the result of a post of `elements`, which `pending` counts already. False: it was refused, and nothing
    /// has changed.
    [[nodiscard]] bool took(AtomicOp& op, vcq::Post posted, std::size_t elements) noexcept;
    /// Moves on: so many more elements have been started.
    void advance(AtomicOp& op, std::size_t elements) noexcept;
    /// Stops an operation that has failed: no further word is started.
    void abandon(AtomicOp& op, int err, int code) noexcept;
    void abandon(AtomicOp& op, int code) noexcept;
    /// Something that `pending` counts has ended. The operation may be gone afterwards.
    void end_one(AtomicOp& op, int code) noexcept;
    /// The end of one word, span or wide element of a piece, likewise. A piece that was refused because its key was
    /// stale is repeated when all else has ended.
    void settle_part(AtomicOp& op, unsigned piece, int code) noexcept;
    /// Is the code a refusal that lets the pieces it concerns be repeated?
    [[nodiscard]] bool is_to_be_repeated(const AtomicOp& op, int code) const noexcept
    {
        return op.is_to_be_repeated(code) && !agenda.closed();
    }

    // --- for the runner
    /// Pending::Stream::Steps::go_on for an operation that notifies its target.
    [[nodiscard]] Lack notify_target(AtomicOp& op) noexcept;
    void finish(AtomicOp& op) noexcept;
    void begin_again(AtomicOp& op) noexcept;
    void end(AtomicOp& op) noexcept;

  private:
    void refuse(AtomicOp& op, unsigned piece, int code) noexcept;
    static void event_done(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    [[nodiscard]] bool find_loop(utofu_vcq_id_t home) const noexcept;
    [[nodiscard]] vcq::Post post_event(AtomicOp& op) noexcept;

    AtomicRunner& runner_;
    AtomicOp* looping_ = nullptr; ///< list of operations of several round trips under way
    Pending::Stream waiting_;
    Pool<AtomicOp> ops_{max_ops};
};

} // namespace tofu
