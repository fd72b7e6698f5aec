// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posted receives and unexpected messages (RecvRequest, Unexpected); the protocol behind the messages (SrxPeer);
// sources as receives name them (SourceKeys); the queue that the protocol matches with (MatchQueue), whose interface is
// that of libfabric's peers (fi_peer(3)). The application's calls are in msg/receive_queue.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

#include "av/peer_table.h"
#include "core/containers.h"
#include "core/pool.h"
#include "msg/match.h"
#include "tx/tx_context.h"

namespace tofu::proto {

// --- RecvRequest, Unexpected: a posted receive, and a message that came before its receive

class SrxPeer;

/// The flags of a receive's completion entry.
inline constexpr std::uint64_t recv_entry_flags(bool tagged) noexcept
{
    return FI_RECV | (tagged ? FI_TAGGED : FI_MSG);
}

/// Flags of a receive that uses no buffer (fi_tagged(3)): its segments are ignored.
inline constexpr std::uint64_t no_buffer_flags = FI_PEEK | FI_DISCARD;

/// What a call asks for: one receive, in any form of the call.
struct RecvCall {
    const iovec* iov = nullptr;
    void* const* desc = nullptr;
    std::size_t count = 0;
    fi_addr_t source = FI_ADDR_UNSPEC;
    std::uint64_t tag = 0;
    std::uint64_t ignore = 0;
    std::uint64_t flags = 0;
    void* context = nullptr;
    bool tagged = false;
};

/// A posted receive. Its list of buffers follows it in memory.
struct RecvRequest : Posted {
    struct Buffer : iovec {
        void* desc;
    };
    bool tagged = false;
    bool multi = false; ///< FI_MULTI_RECV
    bool posted = false;
    bool behind = false;    ///< multi: a message that came before it waits for room to be received (ReceiveQueue)
    bool cancelled = false; ///< multi: over when the messages on their way into it have ended
    std::uint8_t count = 0;
    std::uint32_t users = 0; ///< multi: messages still on their way into it
    void* context = nullptr;
    std::uint64_t flags = 0; ///< as posted
    std::size_t length = 0;
    std::size_t used = 0;     ///< multi: bytes given to messages
    std::size_t min_left = 0; ///< multi: with less room than this it is over

    /// Takes over everything from the call but its segments.
    void fill(const RecvCall& call, std::uint64_t key) noexcept
    {
        Posted::source = key;
        tag = call.tag;
        ignore = call.ignore;
        context = call.context;
        flags = call.flags;
        tagged = call.tagged;
    }
    [[nodiscard]] static constexpr std::size_t size_with(std::size_t count) noexcept
    {
        return sizeof(RecvRequest) + count * sizeof(Buffer);
    }
    [[nodiscard]] Buffer* buffers() noexcept { return reinterpret_cast<Buffer*>(this + 1); }
    [[nodiscard]] bool exhausted() const noexcept { return !multi || used == length || length - used < min_left; }
    /// Is it a multi-receive that has room for another message after one of `size` bytes?
    [[nodiscard]] bool lives_on(std::size_t size) const noexcept
    {
        const std::size_t left = length - used;
        return multi && size < left && left - size >= min_left;
    }
    /// Where the next message is placed; null: no byte is left.
    [[nodiscard]] void* place() noexcept;
    /// Gives the next `want` bytes, or as many as are left, to a message. Returns how many.
    std::size_t consume(std::size_t want, iovec* into, std::uint8_t& into_count) noexcept;
    /// Reports that the receive was cancelled: an entry with FI_ECANCELED, and one count. Its buffer is the
    /// application's again (FI_MULTI_RECV).
    void report_cancelled(const RxContext& rx) const noexcept;
};

/// A message that came before its receive. The protocol's part of it, such as the payload, follows it in memory and
/// takes no more than it needs, since there may be many.
struct Unexpected : UnexpectedLinks {
    SrxPeer* peer = nullptr;      ///< the protocol through which it came
    RecvRequest* owned = nullptr; ///< names it to another provider that owns the receives (msg/receive_queue.h)
    bool tagged = false;
    bool has_data = false;
    bool claimed = false; ///< by FI_PEEK | FI_CLAIM
    std::uint32_t body_size = 0;
    std::uint64_t data = 0;
    std::size_t length = 0;

    [[nodiscard]] std::size_t size() const noexcept { return sizeof(Unexpected) + body_size; }
    [[nodiscard]] std::byte* body() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
    [[nodiscard]] const std::byte* body() const noexcept { return reinterpret_cast<const std::byte*>(this + 1); }
};

// --- SrxPeer: what the receive queue asks of the protocol through which messages come, modelled on the peers of a
// shared receive context in libfabric (fi_peer(3), fi_ops_srx_peer). None of it is called for a message that finds its
// receive at once.

class SrxPeer {
  public:
    SrxPeer(const RxContext& rx, const Peers& peers) noexcept : rx(rx), peers(peers) {}
    SrxPeer(const SrxPeer&) = delete;
    SrxPeer& operator=(const SrxPeer&) = delete;

    /// start_msg, start_tag: the message has found its receive; moves it there. False: there is no room now, and
    /// nothing has happened.
    [[nodiscard]] virtual bool start(RecvRequest& receive, Unexpected& message) noexcept = 0;
    /// discard_msg, discard_tag: the message is discarded; its sender is notified as if it had been received. False: as
    /// above.
    [[nodiscard]] virtual bool discard(Unexpected& message) noexcept = 0;
    /// The queue has dropped the message and frees its memory when this returns.
    virtual void forgotten(Unexpected& message) noexcept = 0;
    /// The address of the sender, where completions report it (FI_SOURCE); else FI_ADDR_NOTAVAIL.
    [[nodiscard]] virtual fi_addr_t source_of(const Unexpected& message) noexcept = 0;
    /// Makes some progress; `everywhere`: looks for messages of new senders, too.
    virtual void progress(bool everywhere) noexcept = 0;

    /// Where receives that no message takes are reported, and the address vector of sources.
    const RxContext& rx;
    const Peers& peers;

  protected:
    ~SrxPeer() = default;
};

// --- SourceKeys: from the source address of a receive to the key of that peer, which is compared with the key of a
// message's sender

class SourceKeys {
  public:
    /// `directed`: FI_DIRECTED_RECV; without it the source argument of receives is ignored (fi_msg(3)). The address
    /// vector is that of the endpoints that have joined.
    SourceKeys(bool directed, const Array<SrxPeer*>& members) noexcept : directed_(directed), members_(members) {}
    /// 0 and the key, or -FI_EINVAL: no peer has this address.
    [[nodiscard]] int find(fi_addr_t source, std::uint64_t& key) noexcept
    {
        return find_recent(source, key) ? 0 : lookup(source, key);
    }
    /// Inline, for a source that was asked for lately. False: call find().
    [[nodiscard, gnu::always_inline]] bool find_recent(fi_addr_t source, std::uint64_t& key) const noexcept
    {
        key = any_source;
        if (!directed_ || source == FI_ADDR_UNSPEC)
            return true;
        const Found& found = recent_.at(source);
        key = found.key;
        return source == found.address && members_[0]->peers.generation() == found.generation;
    }
    /// An endpoint has left: forgets the keys found so far.
    void forget() noexcept { recent_ = {}; }

  private:
    [[nodiscard, gnu::noinline]] int lookup(fi_addr_t source, std::uint64_t& key) noexcept;

    const bool directed_;
    const Array<SrxPeer*>& members_;
    /// A key found earlier; valid as long as the address vector has not changed.
    struct Found {
        fi_addr_t address = FI_ADDR_UNSPEC;
        std::uint32_t generation = 0;
        std::uint64_t key = any_source;
    };
    Recent<Found> recent_;
};

// --- MatchQueue: posted receives and unexpected messages, as the protocol sees them: those of an endpoint, or of a
// shared receive context, where messages of several endpoints meet. The protocol uses it to match, the receive queue
// (receive_queue.h) to post. The two seams are those of a peer SRX in libfabric 2 (fi_peer(3)): get_entry is get_msg
// and get_tag, alloc_entry what they give where no receive is posted, queue_entry is queue_msg and queue_tag; SrxPeer
// has start and discard. So another provider can take the application's place, and post its receives as their messages
// come (receive_queue.h).

class SrxOwner;

/// Everything is called under the lock of the endpoints that it serves; endpoints with a shared context share one
/// (DomainBase::shared_lock).
class MatchQueue {
  public:
    MatchQueue(const MatchQueue&) = delete;
    MatchQueue& operator=(const MatchQueue&) = delete;
    /// False: there was no memory, and the queue is not usable.
    [[nodiscard]] bool valid() const noexcept { return tagged_.valid() && plain_.valid(); }

    // --- the endpoints that it serves
    /// From now on messages come through this peer. The first peer that has joined reports what belongs to no message:
    /// cancelled receives and answers to FI_PEEK. 0 or -FI_ENOMEM.
    [[nodiscard]] int join(SrxPeer& peer) noexcept { return members_.push(&peer) ? 0 : -FI_ENOMEM; }
    /// The receive context of the first peer that has joined; null: none has.
    [[nodiscard]] const RxContext* context() const noexcept { return members_.empty() ? nullptr : &members_[0]->rx; }

    // --- receives
    /// The receives of one kind, for the fast path of a message: a receive that is withdrawn there has to be freed.
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
    /// Removes and frees a queued message, which a receive has taken or which is discarded.
    void forget(Unexpected& message) noexcept;
    /// Does a message for which `wanted` holds and that came through `peer` wait for its receive?
    template <class Wanted>
    [[nodiscard]] bool holds(const SrxPeer& peer, Wanted&& wanted) const noexcept
    {
        for (const Matcher* m : {&tagged_, &plain_})
            for (const UnexpectedLinks* a = m->first(); a != nullptr; a = a->next)
                if (const auto& kept = static_cast<const Unexpected&>(*a); kept.peer == &peer && wanted(kept))
                    return true;
        return false;
    }
    /// Calls `visit` with each message that waits for its receive; `visit` may forget() it.
    template <class Visit>
    void visit_kept(Visit visit) noexcept
    {
        for (Matcher* m : {&tagged_, &plain_})
            for (UnexpectedLinks* a = m->first(); a != nullptr;) {
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
