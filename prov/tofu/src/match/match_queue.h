// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posted receives and the messages that came before theirs, as the protocol sees them: an endpoint's own, or those of a
// shared receive context, where messages of several endpoints meet. Used by the protocol to match, by the receive queue
// (receive_queue.h) to post; calls back the peer through which a message came (srx_peer.h).
//
// The two seams are those of a peer SRX in libfabric 2 (fi_peer(3)): get_entry is get_msg and get_tag, alloc_entry what
// they give where no receive is posted, queue_entry is queue_msg and queue_tag; SrxPeer has start and discard. So another
// provider can take the application's place, and post its receives as their messages come (srx_owner.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "match/entry.h"
#include "match/match.h"
#include "match/sized_pool.h"
#include "match/srx_peer.h"
#include "provider/array.h"

namespace tofu::proto {

class SrxOwner;

/// Everything under the lock of the endpoints that it serves: endpoints with a shared context share theirs
/// (DomainBase::shared_lock).
class MatchQueue {
  public:
    MatchQueue(const MatchQueue&) = delete;
    MatchQueue& operator=(const MatchQueue&) = delete;
    /// False: there was no memory, it can't be used.
    [[nodiscard]] bool valid() const noexcept { return tagged_.valid() && plain_.valid(); }

    // --- whose messages come here
    /// Of what belongs to no message, cancelled receives and answers to FI_PEEK, the first that joined is told. 0 or
    /// -FI_ENOMEM.
    [[nodiscard]] int join(SrxPeer& peer) noexcept;
    /// The first one's that joined; null: none has.
    [[nodiscard]] const RxContext* context() const noexcept { return members_.empty() ? nullptr : &members_[0]->rx; }

    // --- receives
    /// The receive that takes a message; it stays posted until withdrawn. Null: alloc_entry, then queue_entry.
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
    void free_entry(RecvRequest& receive) noexcept { pool_.release(&receive, RecvRequest::size_with(receive.count)); }
    /// The first posted one that is wanted, or null.
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
    /// For a message that no receive takes, with room for what the protocol keeps of it. Null: no memory.
    [[nodiscard]] Unexpected* alloc_entry(std::size_t body_size) noexcept;
    /// Until somebody wants it. The protocol has filled it in.
    void queue_entry(Unexpected& message) noexcept { matcher(message.tagged).keep(message); }
    /// Or it comes to nothing.
    void free_entry(Unexpected& message) noexcept;
    /// It was queued, and has found its place, or comes to nothing: its memory goes back.
    void forget(Unexpected& message) noexcept;
    /// Does a message of this source that came through `peer` wait for its receive?
    [[nodiscard]] bool holds(const SrxPeer& peer, std::uint64_t source) const noexcept;
    /// All that wait for their receives; `visit` may forget the one that it is called with.
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

    // --- where the receives are another provider's: null, they are the application's
    void belong_to(SrxOwner& owner) noexcept { owner_ = &owner; }
    [[nodiscard]] SrxOwner* owner() const noexcept { return owner_; }
    [[nodiscard]] SizedPool& pool() noexcept { return pool_; }

  protected:
    MatchQueue() noexcept;
    ~MatchQueue() = default;
    /// What came through it and waits for its receive is forgotten.
    void leave(SrxPeer& peer) noexcept;
    [[nodiscard]] Matcher& matcher(bool tagged) noexcept { return tagged ? tagged_ : plain_; }

    Matcher tagged_; // the matchers come first: they are what each message needs
    Matcher plain_;
    SizedPool pool_; ///< of receives and messages
    Array<SrxPeer*> members_;

  private:
    std::size_t kept_limit_; ///< bytes of unexpected messages
    std::size_t kept_bytes_ = 0;
    SrxOwner* owner_ = nullptr;
};

} // namespace tofu::proto
