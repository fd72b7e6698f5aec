// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two things that wait to be matched: a posted receive, and a message that came before its receive. Used by the
// receive queue and by the protocol through which messages come; calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_domain.h>
#include <sys/uio.h>

#include "msg/match.h"
#include "tx/tx_context.h"

namespace tofu::proto {

class SrxPeer;

/// The flags of a receive's completion entry.
inline constexpr std::uint64_t kind_of(bool tagged) noexcept { return FI_RECV | (tagged ? FI_TAGGED : FI_MSG); }

/// Flags of a receive that uses no buffer (fi_tagged(3)): whatever its segments name is not looked at.
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
    bool multi = false;      ///< FI_MULTI_RECV
    bool posted = false;
    bool behind = false;     ///< multi: a message that came before it waits for room to be received (ReceiveQueue)
    bool cancelled = false;  ///< multi: over when the messages on their way into it have ended
    std::uint8_t count = 0;
    std::uint32_t users = 0; ///< multi: messages still on their way into it
    void* context = nullptr;
    std::uint64_t flags = 0; ///< as posted
    std::size_t length = 0;
    std::size_t used = 0;    ///< multi: bytes given to messages
    std::size_t min_left = 0;///< multi: with less room than this it is over

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
    [[nodiscard]] bool exhausted() const noexcept
    {
        return !multi || used == length || length - used < min_left;
    }
    /// Is it a multi-receive that has room for another message after one of `size` bytes?
    [[nodiscard]] bool lives_on(std::size_t size) const noexcept
    {
        const std::size_t left = length - used;
        return multi && size < left && left - size >= min_left;
    }
    /// Where the next message is placed; null: no byte is left.
    [[nodiscard]] void* place() noexcept;
    /// Gives the next `want` bytes, or as many as are left, to a message. Returns how many.
    std::size_t take(std::size_t want, iovec* into, std::uint8_t& into_count) noexcept;
    /// Reports that the receive was cancelled: an entry with FI_ECANCELED, and one count. Its buffer is the
    /// application's again (FI_MULTI_RECV).
    void report_cancelled(const RxContext& rx) const noexcept;
};

/// A message that came before its receive. The protocol's part of it, such as the payload, follows it in memory and
/// takes no more than it needs, since there may be many.
struct Unexpected : Arrived {
    SrxPeer* peer = nullptr; ///< the protocol through which it came
    RecvRequest* owned = nullptr; ///< names it to another provider that owns the receives (msg/srx_owner.h)
    bool tagged = false;
    bool has_data = false;
    bool claimed = false;    ///< by FI_PEEK | FI_CLAIM
    std::uint32_t body_size = 0;
    std::uint64_t data = 0;
    std::size_t length = 0;

    [[nodiscard]] std::size_t size() const noexcept { return sizeof(Unexpected) + body_size; }
    [[nodiscard]] std::byte* body() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
    [[nodiscard]] const std::byte* body() const noexcept { return reinterpret_cast<const std::byte*>(this + 1); }
};

} // namespace tofu::proto
