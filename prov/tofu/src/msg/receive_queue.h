// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The application's receives: fi_recv and fi_trecv in all forms, FI_PEEK, FI_CLAIM, fi_cancel. Called by the entries of
// fi_msg and fi_tagged and by shared contexts; calls the match queue, which the protocol uses, and the peer through
// which a message came.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_tagged.h>
#include <sys/types.h>

#include "core/containers.h"
#include "mem/local_buffer.h"
#include "msg/match_entry.h"
#include "msg/match_queue.h"
#include "msg/source_keys.h"

namespace tofu::proto {

/// Everything is called under the lock of the match queue.
class ReceiveQueue final : public MatchQueue {
  public:
    /// A multi-receive with less than `min_multi_recv` bytes left is over (FI_OPT_MIN_MULTI_RECV of the queue's owner).
    /// Only memory bounds the number of posted receives.
    ReceiveQueue(bool directed, const std::size_t& min_multi_recv) noexcept;

    // --- entries. 0, or a refusal without effect (-FI_EAGAIN: make progress and retry).
    [[nodiscard]] ssize_t recv(const RecvCall& call) noexcept;
    /// As above for one buffer in place of the segments of `call`; also for_later (FI_TRIGGER). Inline where no message
    /// came early and the call asks for nothing special.
    [[nodiscard, gnu::always_inline]] ssize_t recv_one(const RecvCall& call, void* buffer,
                                                       std::size_t length, void* desc) noexcept
    {
        std::uint64_t key;
        if ((call.flags & (FI_PEEK | FI_CLAIM | FI_MULTI_RECV | FI_TRIGGER)) != 0 || is_nowhere(buffer, length) ||
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
        if (matcher(call.tagged).first() != nullptr) [[unlikely]]
            return take_kept(*r);
        post(*r);
        return 0;
    }
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
    /// A message that FI_PEEK | FI_CLAIM has taken out of the matcher.
    struct Claim {
        const void* context = nullptr;
        Unexpected* message = nullptr;
        bool operator==(const Claim&) const noexcept = default;
    };
    [[nodiscard, gnu::noinline]] ssize_t recv_specially(RecvCall call, void* buffer, std::size_t length,
                                                        void* desc) noexcept;
    [[nodiscard]] ssize_t take_kept(RecvRequest& receive) noexcept;
    /// False: a receive of this kind is behind, and there is still no room.
    [[nodiscard]] bool none_behind(bool tagged) noexcept
    {
        return behind_ == nullptr || behind_->tagged != tagged || catch_up();
    }
    [[nodiscard]] ssize_t peek(const RecvCall& call) noexcept;
    [[nodiscard]] ssize_t claim(const RecvCall& call) noexcept;
    [[nodiscard]] RecvRequest* make_receive(const RecvCall& call, std::uint64_t key) noexcept;
    [[nodiscard]] bool discard(Unexpected& message, const RecvCall& call) noexcept;

    const std::size_t& min_multi_recv_;
    Array<Claim> claims_;
    RecvRequest* behind_ = nullptr; ///< posted (RecvRequest::behind)
    SourceKeys sources_;
};

} // namespace tofu::proto
