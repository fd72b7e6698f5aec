// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posted receives and the messages that came before theirs: an endpoint's own, or those of a shared receive context,
// where messages of several endpoints meet. Called by msg, tagged and shared contexts to post, and by the protocol to
// match; calls back the peer through which a message came (srx_peer.h).
//
// The two seams are those of a peer SRX in libfabric 2 (fi_peer(3)): get_entry is get_msg and get_tag, alloc_entry what
// they give where no receive is posted, queue_entry is queue_msg and queue_tag; SrxPeer has start and discard. So another
// provider can take the application's place, and post its receives as their messages come (srx_owner.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_tagged.h>
#include <sys/types.h>

#include "match/entry.h"
#include "match/match.h"
#include "match/sized_pool.h"
#include "match/source_keys.h"
#include "match/srx_peer.h"
#include "provider/array.h"

namespace tofu::proto {

class SrxOwner;

/// Everything under the lock of the endpoints that it serves: endpoints with a shared context share theirs
/// (DomainBase::shared_lock).
class ReceiveQueue {
  public:
    /// A multi-receive with less than `min_multi_recv` left is over, FI_OPT_MIN_MULTI_RECV of the object that owns the
    /// queue. Memory alone bounds how many receives are posted.
    ReceiveQueue(bool directed, const std::size_t& min_multi_recv) noexcept;
    /// False: there was no memory, it can't be used.
    [[nodiscard]] bool valid() const noexcept { return tagged_.valid() && plain_.valid(); }
    ReceiveQueue(const ReceiveQueue&) = delete;
    ReceiveQueue& operator=(const ReceiveQueue&) = delete;

    // --- entries. 0 or a refusal without effect (-FI_EAGAIN: progress and retry).
    [[nodiscard]] ssize_t recv(const RecvCall& call) noexcept;
    /// The same for one buffer, which stands for the segments of `call`, or for_later (FI_TRIGGER). Inline where nothing
    /// came early and nothing special is asked for.
    [[nodiscard, gnu::always_inline]] ssize_t recv_one(const RecvCall& call, void* buffer,
                                                       std::size_t length, void* desc) noexcept
    {
        std::uint64_t key;
        if ((call.flags & (FI_PEEK | FI_CLAIM | FI_MULTI_RECV | FI_TRIGGER)) != 0 ||
            sources_.find(call.source, key) != 0) [[unlikely]]
            return recv_specially(call, buffer, length, desc);
        void* const memory = pool_.alloc(RecvRequest::size_with(1));
        if (memory == nullptr) [[unlikely]]
            return -FI_ENOMEM;
        auto* const r = ::new (memory) RecvRequest;
        r->fill(call, key);
        r->count = 1;
        r->length = length;
        ::new (r->buffers()) RecvRequest::Buffer{{buffer, length}, desc};
        Matcher& matching = matcher(call.tagged);
        if (matching.first() != nullptr) [[unlikely]]
            return take_kept(*r);
        matching.post(*r);
        r->posted = true;
        return 0;
    }
    /// 0 or -FI_ENOENT.
    [[nodiscard]] ssize_t cancel(void* context) noexcept;

    // --- the protocol
    /// Of what belongs to no message, cancelled receives and answers to FI_PEEK, the first that joined is told. 0 or
    /// -FI_ENOMEM.
    [[nodiscard]] int join(SrxPeer& peer) noexcept;
    /// What came through it and was not received yet is forgotten.
    void leave(SrxPeer& peer) noexcept;
    /// The receive that takes a message; it stays posted until withdrawn. Null: alloc_entry, then queue_entry.
    [[nodiscard]] RecvRequest* get_entry(bool tagged, std::uint64_t source, std::uint64_t tag) noexcept
    {
        return static_cast<RecvRequest*>(matcher(tagged).match(source, tag));
    }
    void withdraw(RecvRequest& receive) noexcept
    {
        matcher(receive.tagged).withdraw(receive);
        receive.posted = false;
    }
    void free_entry(RecvRequest& receive) noexcept { pool_.release(&receive, RecvRequest::size_with(receive.count)); }
    /// For a message that no receive takes, with room for what the protocol keeps of it. Null: no memory.
    [[nodiscard]] Unexpected* alloc_entry(std::size_t body_size) noexcept;
    /// Until somebody wants it. The protocol has filled it in.
    void queue_entry(Unexpected& message) noexcept { matcher(message.tagged).keep(message); }
    /// Or it comes to nothing.
    void free_entry(Unexpected& message) noexcept;
    /// Does a message of this source that came through `peer` wait for its receive?
    [[nodiscard]] bool holds(const SrxPeer& peer, std::uint64_t source) const noexcept;
    /// The first one's that joined; null: none has.
    [[nodiscard]] const RxContext* context() const noexcept { return members_.empty() ? nullptr : &members_[0]->rx; }

    // --- where the receives are another provider's: null, they are the application's. What its part here needs.
    void belong_to(SrxOwner& owner) noexcept { owner_ = &owner; }
    [[nodiscard]] SrxOwner* owner() const noexcept { return owner_; }
    [[nodiscard]] SizedPool& pool() noexcept { return pool_; }
    void post(RecvRequest& receive) noexcept
    {
        matcher(receive.tagged).post(receive);
        receive.posted = true;
    }
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
    /// A kept message has found its place, or comes to nothing: its memory goes back.
    void forget(Unexpected& message) noexcept;

  private:
    /// A message that FI_PEEK | FI_CLAIM took out of the matcher.
    struct Claim {
        const void* context = nullptr;
        Unexpected* message = nullptr;
        bool operator==(const Claim&) const noexcept = default;
    };
    [[nodiscard]] Matcher& matcher(bool tagged) noexcept { return tagged ? tagged_ : plain_; }
    [[nodiscard, gnu::noinline]] ssize_t recv_specially(RecvCall call, void* buffer, std::size_t length,
                                                        void* desc) noexcept;
    [[nodiscard]] ssize_t take_kept(RecvRequest& receive) noexcept;
    [[nodiscard]] ssize_t peek(const RecvCall& call) noexcept;
    [[nodiscard]] ssize_t claim(const RecvCall& call) noexcept;
    [[nodiscard]] RecvRequest* make_receive(const RecvCall& call, std::uint64_t key) noexcept;
    [[nodiscard]] bool discard(Unexpected& message, const RecvCall& call) noexcept;

    Matcher tagged_;
    Matcher plain_;
    const std::size_t& min_multi_recv_;
    SizedPool pool_; ///< of receives and messages
    std::size_t kept_limit_; ///< bytes of unexpected messages
    std::size_t kept_bytes_ = 0;
    Array<Claim> claims_;
    SrxOwner* owner_ = nullptr;
    Array<SrxPeer*> members_;
    SourceKeys sources_;
};

} // namespace tofu::proto
