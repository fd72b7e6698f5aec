// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posted receives and the messages that came before theirs: an endpoint's own, or those of a shared receive context, where
// messages of several endpoints meet. Called by msg, tagged and shared contexts to post, by messengers to match;
// calls back the messenger through which a message came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rdma/fi_domain.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "proto/channel.h"
#include "proto/match.h"
#include "request.h"

namespace tofu::proto {

class Messenger;

/// One receive in any of its forms.
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

/// Everything under the lock of the endpoints that it serves: endpoints with a shared context share theirs
/// (Domain::shared_lock).
class ReceiveQueue {
  public:
    /// `receives` at most are posted; a multi-receive with less than `min_multi_recv` left is over. The latter
    /// is FI_OPT_MIN_MULTI_RECV of the object that owns the queue.
    ReceiveQueue(std::size_t receives, bool directed, const std::size_t& min_multi_recv);
    ReceiveQueue(const ReceiveQueue&) = delete;
    ReceiveQueue& operator=(const ReceiveQueue&) = delete;
    ~ReceiveQueue();

    // --- entries. 0 or a refusal without effect (-FI_EAGAIN: progress and retry).
    [[nodiscard]] ssize_t recv(const RecvCall& call) noexcept;
    /// 0 or -FI_ENOENT.
    [[nodiscard]] ssize_t cancel(void* context) noexcept;

    // --- messengers
    /// Their endpoints' queue and counter hear of what belongs to no message: cancelled receives, answers to FI_PEEK.
    /// The first that joined answers.
    void join(Messenger& messenger);
    /// What came through it and was not received yet is dropped.
    void leave(Messenger& messenger) noexcept;
    /// The receive that takes a message; it stays posted until withdrawn.
    [[nodiscard]] RecvRequest* match(const Message& message) const noexcept
    {
        return static_cast<RecvRequest*>(matcher(message.tagged).match(message.key, message.tag));
    }
    void withdraw(RecvRequest& receive) noexcept;
    void release(RecvRequest& receive) noexcept { receives_.release(&receive); }
    /// Is there room for a message with `large` bytes outside of its Unexpected?
    [[nodiscard]] bool has_room(std::size_t large) const noexcept
    {
        return kept_bytes_ + sizeof(Unexpected) + large <= kept_limit_;
    }
    /// Keeps a message and its payload until somebody wants it. False: no memory.
    [[nodiscard]] bool keep(Messenger& via, const Message& message, std::size_t large) noexcept;
    [[nodiscard]] bool directed() const noexcept { return directed_; }

  private:
    [[nodiscard]] Matcher& matcher(bool tagged) noexcept { return tagged ? tagged_ : plain_; }
    [[nodiscard]] const Matcher& matcher(bool tagged) const noexcept
    {
        return tagged ? tagged_ : plain_;
    }
    [[nodiscard]] int source_key(fi_addr_t source, std::uint64_t& key) noexcept;
    [[nodiscard]] ssize_t peek(const RecvCall& call) noexcept;
    [[nodiscard]] ssize_t claim(const RecvCall& call) noexcept;
    [[nodiscard]] RecvRequest* make_receive(const RecvCall& call, std::uint64_t key) noexcept;
    [[nodiscard]] bool discard(Unexpected& message) noexcept;
    void forget(Unexpected& message) noexcept;
    void look_around() noexcept;

    Matcher tagged_;
    Matcher plain_;
    Pool<RecvRequest> receives_;
    bool directed_; ///< FI_DIRECTED_RECV
    const std::size_t& min_multi_recv_;
    std::size_t kept_limit_; ///< bytes of unexpected messages
    std::size_t kept_bytes_ = 0;
    Pool<Unexpected> kept_;
    Unexpected* claimed_ = nullptr;
    std::vector<Messenger*> members_;
};

} // namespace tofu::proto
