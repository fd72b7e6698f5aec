// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The application's receives: fi_recv and fi_trecv in all forms, FI_PEEK, FI_CLAIM, fi_cancel (ReceiveQueue); and
// receives that another provider owns (Offer, SrxOwner). The protocol uses the base, MatchQueue (msg/match_queue.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_tagged.h>
#include <sys/types.h>

#include "core/containers.h"
#include "core/limits.h"
#include "core/peer_abi.h"
#include "mem/local_buffer.h"
#include "msg/match_queue.h"

namespace tofu {
class CompletionQueue;
class Lock;
} // namespace tofu

namespace tofu::proto {

/// Everything is called under the lock of the match queue.
class ReceiveQueue final : public MatchQueue {
  public:
    /// A multi-receive with less than `min_multi_recv` bytes left is over (FI_OPT_MIN_MULTI_RECV of the queue's owner).
    /// Only memory bounds the number of posted receives.
    ReceiveQueue(bool directed, const std::size_t& min_multi_recv) noexcept;

    // --- entries. 0, or a refusal without effect (-FI_EAGAIN: make progress and retry).
    [[nodiscard]] ssize_t recv(const RecvCall& call) noexcept;
    /// As above for one buffer in place of the segments of `call`; also must_be_deferred (FI_TRIGGER).
    [[nodiscard]] ssize_t recv_one(const RecvCall& call, void* buffer, std::size_t length, void* desc) noexcept;
    /// The fast path of recv_one(): an ordinary receive from a recent source, no early message. Where `few_only`, there
    /// are few receives, and it makes no call, so its caller saves no register. False: nothing has happened; call
    /// recv_one().
    template <bool few_only>
    [[nodiscard, gnu::always_inline]] bool post_at_once(const RecvCall& call, void* buffer, std::size_t length,
                                                        void* desc) noexcept
    {
        Matcher& posted = matcher(call.tagged);
        std::uint64_t key;
        if ((call.flags & special_flags) != 0 || is_null(buffer, length) || !sources_.find_recent(call.source, key) ||
            posted.first() != nullptr || (few_only && !posted.has_room_for_few())) [[unlikely]]
            return false;
        void* const memory = pool_.recycle(RecvRequest::size_with(1));
        if (memory == nullptr) [[unlikely]]
            return false;
        RecvRequest& r = make_single(memory, call, key, {{buffer, length}, desc});
        r.posted = true;
        few_only ? posted.post_few(r) : posted.post(r);
        return true;
    }
    /// Does a message wait for its receive?
    [[nodiscard]] bool has_unexpected(bool tagged) noexcept { return matcher(tagged).first() != nullptr; }
    /// Cancels a posted receive with this context. 0 or -FI_ENOENT. A multi-receive is reported as cancelled when the
    /// messages on their way into it have ended.
    [[nodiscard]] ssize_t cancel(void* context) noexcept;
    /// Gives the multi-receive that is behind the messages that came before it. False: there is still no room for one
    /// of them. The peer of that message calls again when there may be room; so does deliver() before a later message
    /// matches the receive. Until then receives that are posted, or peek, later are refused: none gets a message before
    /// the older receive has had its turn.
    [[nodiscard]] bool catch_up() noexcept;

    /// Drops what came through the peer and has not been received, claimed or not.
    void leave(SrxPeer& peer) noexcept;

  private:
    /// Flags of receives that recv_one() and post_at_once() leave to others.
    static constexpr std::uint64_t special_flags = FI_PEEK | FI_CLAIM | FI_MULTI_RECV | FI_TRIGGER;
    /// A message that FI_PEEK | FI_CLAIM has taken out of the matcher.
    struct Claim {
        const void* context = nullptr;
        Unexpected* message = nullptr;
        bool operator==(const Claim&) const noexcept = default;
    };
    [[nodiscard]] ssize_t claim_kept(RecvRequest& receive) noexcept;
    /// False: a receive of this kind is behind, and there is still no room.
    [[nodiscard]] bool none_behind(bool tagged) noexcept
    {
        return behind_ == nullptr || behind_->tagged != tagged || catch_up();
    }
    [[nodiscard]] ssize_t peek(const RecvCall& call) noexcept;
    [[nodiscard]] ssize_t claim(const RecvCall& call) noexcept;
    [[nodiscard]] RecvRequest* make_receive(const RecvCall& call, std::uint64_t key) noexcept;
    /// An ordinary receive with one buffer, in `memory`.
    [[gnu::always_inline]] static RecvRequest& make_single(void* memory, const RecvCall& call, std::uint64_t key,
                                                           const RecvRequest::Buffer& buffer) noexcept
    {
        auto* const r = ::new (memory) RecvRequest;
        r->fill(call, key);
        r->count = 1;
        r->length = buffer.iov_len;
        ::new (r->buffers()) RecvRequest::Buffer(buffer);
        return *r;
    }
    [[nodiscard]] bool discard(Unexpected& message, const RecvCall& call) noexcept;

    const std::size_t& min_multi_recv_;
    Array<Claim> claims_;
    RecvRequest* behind_ = nullptr; ///< posted (RecvRequest::behind)
    SourceKeys sources_;
};

// --- SrxOwner: receives that another provider owns (fi_peer(3), struct fid_peer_srx). The owner says which receive
// takes a message that has come, or takes note of the message and says so later.

/// The description of an arrived message for the owner.
struct Offer {
    bool tagged;
    bool has_data;
    fi_addr_t source; ///< the sender in the address vector, or FI_ADDR_UNSPEC
    std::size_t length;
    std::uint64_t tag;
    std::uint64_t data;
};

/// Everything is called under the lock of the endpoints that the queue serves, except for the owner's calls, which take
/// it. The owner does not make these calls while it makes progress of this provider ("Peer SRX").
class SrxOwner {
  public:
    SrxOwner(peer::Srx& srx, MatchQueue& queue, Lock& lock) noexcept : srx_(srx), queue_(queue), lock_(lock)
    {
        srx.peer = &peer_ops;
    }
    SrxOwner(const SrxOwner&) = delete;
    SrxOwner& operator=(const SrxOwner&) = delete;

    enum class Answer : std::uint8_t {
        receive, ///< the receive that takes the message. done() gives it back, hold() posts it
        none,    ///< no receive: keep the message, then call note(); or call done()
        refused, ///< the owner has no receives for this kind of message
        later    ///< no memory: nothing has happened
    };
    [[nodiscard]] Answer query_owner(SrxPeer& peer, const Offer& offer, RecvRequest*& receive) noexcept;
    /// There is no room for the message yet. Posts its receive to our own queue, where the message finds it when it is
    /// offered again.
    void hold(RecvRequest& receive, std::uint64_t source, std::uint64_t tag) noexcept;
    /// Notifies the owner of a message without a receive in this queue. False: the owner discards the message,
    /// which is forgotten.
    [[nodiscard]] bool note(Unexpected& message, RecvRequest& receive) noexcept;
    /// The receive has ended and has been reported, or it came to nothing: gives it back to the owner.
    void done(RecvRequest& receive, CompletionQueue* reported_to) noexcept;
    /// Continues messages that the owner has started and that found no room. Called now and then.
    void resume() noexcept;
    /// The message is dropped without having found its receive.
    void abandon(Unexpected& message) noexcept;
    /// No message comes through this peer any more.
    void leave(const SrxPeer& peer) noexcept;
    /// The address vector has changed. Takes the lock.
    void addresses_changed() noexcept;

  private:
    /// What follows the buffers of a receive in memory.
    struct Tail {
        peer::Entry* entry;  ///< the owner's; null: the owner has dropped it
        const SrxPeer* peer; ///< the protocol through which its message comes
        bool started;        ///< the owner has started the message, which is still in our queue
    };
    static constexpr std::size_t receive_size = RecvRequest::size_with(limits::iov_limit) + sizeof(Tail);
    [[nodiscard]] static Tail& tail_of(RecvRequest& receive) noexcept
    {
        return *reinterpret_cast<Tail*>(receive.buffers() + limits::iov_limit);
    }
    static void fill(RecvRequest& receive) noexcept;
    void cancel(RecvRequest& receive) noexcept;
    [[nodiscard]] bool resume(Unexpected& message) noexcept;
    [[nodiscard]] static int begin(peer::Entry* entry, bool wanted) noexcept;
    static int start(peer::Entry* entry) noexcept { return begin(entry, true); }
    static int discard(peer::Entry* entry) noexcept { return begin(entry, false); }
    static fi_addr_t source_of(peer::Entry* entry) noexcept;
    static peer::SrxPeerOps peer_ops;

    peer::Srx& srx_;
    MatchQueue& queue_;
    Lock& lock_;
    std::size_t waiting_ = 0; ///< messages that were started and found no room
};

} // namespace tofu::proto
