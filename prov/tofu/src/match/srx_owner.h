// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Another provider's queue of receives, of which ours is a part (fi_peer(3), struct fid_peer_srx): it says which receive
// takes a message that has come, or takes note of it and says so later. Called by the receiver and by the owner; calls the
// owner, and the peer through which a message came.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>

#include "match/entry.h"
#include "provider/limits.h"
#include "provider/peer.h"

namespace tofu {
class CompletionQueue;
class Lock;
} // namespace tofu

namespace tofu::proto {

class MatchQueue;

/// A message that has come, as the owner sees it.
struct Offer {
    bool tagged;
    bool has_data;
    fi_addr_t source; ///< of the address vector, or FI_ADDR_UNSPEC
    std::size_t length;
    std::uint64_t tag;
    std::uint64_t data;
};

/// All under the lock of the endpoints that the queue serves, but for what the owner calls, which takes it. The owner
/// serialises what it calls with the progress that it asks for ("Peer SRX").
class SrxOwner {
  public:
    SrxOwner(peer::Srx& srx, MatchQueue& queue, Lock& lock) noexcept;
    SrxOwner(const SrxOwner&) = delete;
    SrxOwner& operator=(const SrxOwner&) = delete;

    enum class Answer : std::uint8_t {
        receive, ///< the message's. It is given back by done(), or posted by hold()
        none,    ///< keep the message, then note(); or done()
        refused, ///< it is nobody's: the owner has no receives of its kind
        later    ///< no memory: nothing has happened
    };
    [[nodiscard]] Answer ask(SrxPeer& peer, const Offer& offer, RecvRequest*& receive) noexcept;
    /// There is no room for the message yet, which is offered again: our own queue has its receive for it.
    void hold(RecvRequest& receive, std::uint64_t source, std::uint64_t tag) noexcept;
    /// The message that none was found for waits in our queue. False: the owner does not want it; it is forgotten.
    [[nodiscard]] bool note(Unexpected& message, RecvRequest& receive) noexcept;
    /// It has ended, and stands in the queue, if there is one; or it came to nothing.
    void done(RecvRequest& receive, CompletionQueue* told) noexcept;
    /// Once in a while: what the owner has started, and found no room, goes on.
    void resume() noexcept;
    /// The message goes without having found its receive.
    void forsake(Unexpected& message) noexcept;
    /// No message comes through the peer any more.
    void leave(const SrxPeer& peer) noexcept;
    /// The address vector has changed. Takes the lock.
    void addresses_changed() noexcept;

  private:
    /// Behind the buffers of a receive.
    struct Tail {
        peer::Entry* entry;  ///< null: the owner has it no more
        const SrxPeer* peer; ///< through whom its message comes
        bool started;        ///< the owner has called; the message is still in our queue
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
    std::size_t waiting_ = 0; ///< messages that were started, and found no room
};

} // namespace tofu::proto
