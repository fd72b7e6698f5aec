// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Receives that another provider owns (fi_peer(3), struct fid_peer_srx): the owner says which receive takes a message
// that has come, or takes note of the message and says so later. Called by the receiver and by the owner; calls the
// owner, and the peer through which a message came.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>

#include "core/limits.h"
#include "core/peer_abi.h"
#include "msg/match_entry.h"

namespace tofu {
class CompletionQueue;
class Lock;
} // namespace tofu

namespace tofu::proto {

class MatchQueue;

/// What the owner is told of a message that has come.
struct Offer {
    bool tagged;
    bool has_data;
    fi_addr_t source; ///< the sender in the address vector, or FI_ADDR_UNSPEC
    std::size_t length;
    std::uint64_t tag;
    std::uint64_t data;
};

/// Everything is called under the lock of the endpoints that the queue serves, except for the owner's calls, which take
/// it. The owner does not make these while it makes progress of ours ("Peer SRX").
class SrxOwner {
  public:
    SrxOwner(peer::Srx& srx, MatchQueue& queue, Lock& lock) noexcept;
    SrxOwner(const SrxOwner&) = delete;
    SrxOwner& operator=(const SrxOwner&) = delete;

    enum class Answer : std::uint8_t {
        receive, ///< the receive that takes the message. done() gives it back, hold() posts it
        none,    ///< no receive: keep the message, then call note(); or call done()
        refused, ///< the owner has no receives for this kind of message
        later    ///< no memory: nothing has happened
    };
    [[nodiscard]] Answer ask(SrxPeer& peer, const Offer& offer, RecvRequest*& receive) noexcept;
    /// There is no room for the message yet. Posts its receive to our own queue, where the message finds it when it is
    /// offered again.
    void hold(RecvRequest& receive, std::uint64_t source, std::uint64_t tag) noexcept;
    /// Tells the owner that a message without a receive waits in our queue. False: the owner does not want the message,
    /// which is forgotten.
    [[nodiscard]] bool note(Unexpected& message, RecvRequest& receive) noexcept;
    /// The receive has ended and has been reported, or it came to nothing: gives it back to the owner.
    void done(RecvRequest& receive, CompletionQueue* told) noexcept;
    /// Continues messages that the owner has started and that found no room. Called now and then.
    void resume() noexcept;
    /// The message is dropped without having found its receive.
    void forsake(Unexpected& message) noexcept;
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
    [[nodiscard]] bool go_on(Unexpected& message) noexcept;
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
