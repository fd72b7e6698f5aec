// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A message that has come, between its packet and its receive. Used by the receiver and its parts; calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "msg/packet.h"
#include "msg/receive_queue.h"
#include "msg/rx_ring.h"

namespace tofu::proto {

/// Writes a completion word: tells the sender how the send that waits for it has ended, 0 or FI_E*. False: no room now.
[[nodiscard]] inline bool put_completion(vcq::Vcq& vcq, utofu_vcq_id_t home, utofu_stadd_t area, const Ack& fin,
                                  int status) noexcept
{
    const CompletionWord word = completion_word(fin.seq, static_cast<std::uint32_t>(status));
    return vcq.put_inline(home, &word, area + completion_offset(fin.fin), sizeof word, {}) != vcq::Post::busy;
}

/// The protocol's part of a message that waits for its receive; it follows the Unexpected in memory (body).
struct Kept {
    Ring* in = nullptr;   ///< describes the sender
    Ack fin{};
    Type type = Type::none;
    bool ack = false;     ///< a completion word is due when the message has been taken,
    bool at_match = false;///< and not before it has been matched
    std::uint8_t segment_count = 0;
};

/// A message on its way to a receive, wherever its payload is.
struct Message : Kept {
    bool tagged = false;
    bool has_data = false;
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    std::size_t length = 0;
    const std::byte* payload = nullptr; ///< eager
    std::uint64_t vcq = 0;              ///< rts
    Segment segments[max_segments] = {};

    /// Bytes that are kept while it waits for its receive: a Kept, then its payload or the body of its RTS.
    [[nodiscard]] std::size_t kept_size() const noexcept
    {
        return sizeof(Kept) + (type == Type::rts ? sizeof vcq + segment_count * sizeof(Segment) : length);
    }
    void pack(Unexpected& to) const noexcept;
    /// Reads the Kept back. payload_of(): the payload of an eager message.
    [[nodiscard]] static Kept kept_of(const Unexpected& from) noexcept
    {
        Kept kept;
        std::memcpy(&kept, from.body(), sizeof kept);
        return kept;
    }
    [[nodiscard]] static const std::byte* payload_of(const Unexpected& from) noexcept
    {
        return from.body() + sizeof(Kept);
    }
    [[nodiscard]] static Message unpack(const Unexpected& from) noexcept;
};

} // namespace tofu::proto
