// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posted receives and unexpected messages, as the protocol sees them: those of an endpoint, or of a shared receive
// context, where messages of several endpoints meet. The protocol uses it to match, the receive queue (receive_queue.h)
// to post. Calls back the peer through which a message came (srx_peer.h).
//
// The two seams are those of a peer SRX in libfabric 2 (fi_peer(3)): get_entry is get_msg and get_tag, alloc_entry what
// they give where no receive is posted, queue_entry is queue_msg and queue_tag; SrxPeer has start and discard. So
// another provider can take the application's place, and post its receives as their messages come (srx_owner.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/containers.h"
#include "msg/match.h"
#include "msg/match_entry.h"
#include "msg/sized_pool.h"
#include "msg/srx_peer.h"

namespace tofu::proto {

class SrxOwner;

/// Everything is called under the lock of the endpoints that it serves; endpoints with a shared context share one
/// (DomainBase::shared_lock).
class MatchQueue {
  public:
    MatchQueue(const MatchQueue&) = delete;
    MatchQueue& operator=(const MatchQueue&) = delete;
    /// False: there was no memory, and the queue can't be used.
    [[nodiscard]] bool valid() const noexcept { return tagged_.valid() && plain_.valid(); }

    // --- the endpoints that it serves
    /// From now on messages come through this peer. The first peer that has joined reports what belongs to no message:
    /// cancelled receives and answers to FI_PEEK. 0 or -FI_ENOMEM.
    [[nodiscard]] int join(SrxPeer& peer) noexcept;
    /// The receive context of the first peer that has joined; null: none has.
    [[nodiscard]] const RxContext* context() const noexcept { return members_.empty() ? nullptr : &members_[0]->rx; }

    // --- receives
    /// The receives of one kind, for the short way of a message: a receive that is withdrawn there has to be freed.
    [[nodiscard]] Matcher& matcher(bool tagged) noexcept { return tagged ? tagged_ : plain_; }
    /// The receive that takes a message; it stays posted until it is withdrawn. Null: call alloc_entry, then
    /// queue_entry.
    [[nodiscard]] RecvRequest* get_entry(bool tagged, std::uint64_t source, std::uint64_t tag) noexcept
    {
        return static_cast<RecvRequest*>(matcher(tagged).match(source, tag));
    }
    [[gnu::always_inline]] void post(RecvRequest& receive) noexcept
    {
        matcher(receive.tagged).post(receive);
        receive.posted = true;
    }
    void withdraw(RecvRequest& receive) noexcept
    {
        matcher(receive.tagged).withdraw(receive);
        receive.posted = false;
    }
    /// Reports a cancelled receive, to which no message is on its way any more, and frees it. `last` reports where no
    /// peer is left.
    void end_cancelled(RecvRequest& receive, const RxContext& last) noexcept;
    /// Of a receive with one buffer.
    void free_single(RecvRequest& receive) noexcept { pool_.release(&receive, RecvRequest::size_with(1)); }
    void free_entry(RecvRequest& receive) noexcept { pool_.release(&receive, RecvRequest::size_with(receive.count)); }
    /// The first posted receive for which `wanted` holds, or null.
    template <class Wanted>
    [[nodiscard]] RecvRequest* find_posted(Wanted wanted) const noexcept
    {
        const auto as_posted = [&](const Posted& p) {
            return wanted(const_cast<RecvRequest&>(static_cast<const RecvRequest&>(p)));
        };
        Posted* const found = tagged_.find_posted(as_posted);
        return static_cast<RecvRequest*>(found != nullptr ? found : plain_.find_posted(as_posted));
    }

    // --- messages that came early
    /// Memory for a message that no receive takes, with `body_size` bytes for the protocol. Null: no memory.
    [[nodiscard]] Unexpected* alloc_entry(std::size_t body_size) noexcept;
    /// Keeps a message, which the protocol has filled in, until a receive takes it.
    void queue_entry(Unexpected& message) noexcept { matcher(message.tagged).keep(message); }
    /// Frees a message that was not queued.
    void free_entry(Unexpected& message) noexcept;
    /// Removes and frees a queued message, which a receive has taken or nobody wants.
    void forget(Unexpected& message) noexcept;
    /// Does a message for which `wanted` holds and that came through `peer` wait for its receive?
    template <class Wanted>
    [[nodiscard]] bool holds(const SrxPeer& peer, Wanted&& wanted) const noexcept
    {
        for (const Matcher* m : {&tagged_, &plain_})
            for (const Arrived* a = m->first(); a != nullptr; a = a->next)
                if (const auto& kept = static_cast<const Unexpected&>(*a); kept.peer == &peer && wanted(kept))
                    return true;
        return false;
    }
    /// Calls `visit` for each message that waits for its receive; `visit` may forget() it.
    template <class Visit>
    void visit_kept(Visit visit) noexcept
    {
        for (Matcher* m : {&tagged_, &plain_})
            for (Arrived* a = m->first(); a != nullptr;) {
                auto& kept = *static_cast<Unexpected*>(a);
                a = a->next;
                visit(kept);
            }
    }

    // --- receives that another provider owns. owner() is null where the application posts them
    void belong_to(SrxOwner& owner) noexcept { owner_ = &owner; }
    [[nodiscard]] SrxOwner* owner() const noexcept { return owner_; }
    [[nodiscard]] SizedPool& pool() noexcept { return pool_; }

  protected:
    MatchQueue() noexcept;
    ~MatchQueue() = default;
    /// Drops the messages that came through the peer and wait for their receives.
    void leave(SrxPeer& peer) noexcept;

    Matcher tagged_; // the matchers come first, since every message needs one
    Matcher plain_;
    SizedPool pool_; ///< memory of receives and messages
    Array<SrxPeer*> members_;

  private:
    std::size_t kept_limit_; ///< bytes of unexpected messages, at most
    std::size_t kept_bytes_ = 0;
    SrxOwner* owner_ = nullptr;
};

} // namespace tofu::proto
