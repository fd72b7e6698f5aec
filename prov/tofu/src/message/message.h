// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A message that has come, from its packet to its receive, and who sent it. Used by the receiver and its parts; calls
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "area/packet.h"
#include "match/receive_queue.h"
#include "ring/inbound.h"

namespace tofu::proto {

/// Tells a sender how what waits for that FIN word has ended: 0 or FI_E*. False: no room now.
[[nodiscard]] inline bool put_fin(vcq::Vcq& vcq, utofu_vcq_id_t home, utofu_stadd_t area, const Ack& fin,
                                  int status) noexcept
{
    const FinWord word = fin_word(fin.seq, static_cast<std::uint32_t>(status));
    return vcq.put_inline(home, &word, area + fin_offset(fin.fin), sizeof word, {}) != vcq::Post::busy;
}

/// What of a message that waits for its receive does not stand in its Unexpected, but behind it (body).
struct Kept {
    Ring* in = nullptr;   ///< who sent it
    Ack fin{};
    Type type = Type::none;
    bool ack = false;     ///< FIN is due when it has been received,
    bool at_match = false;///< and not before it has found its receive
    std::uint8_t segment_count = 0;
};

/// A message that is to be given to a receive, wherever its payload is.
struct Message : Kept {
    bool tagged = false;
    bool has_data = false;
    bool kept = false;    ///< it came before its receive: its sender may have gone since
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    std::size_t length = 0;
    const std::byte* payload = nullptr; ///< eager
    std::uint64_t vcq = 0;              ///< rts
    Segment segments[max_segments] = {};

    /// What stays of it where it has to wait for its receive: a Kept, and behind that its payload, or the body of its
    /// RTS.
    [[nodiscard]] std::size_t kept_size() const noexcept
    {
        return sizeof(Kept) + (type == Type::rts ? sizeof vcq + segment_count * sizeof(Segment) : length);
    }
    void pack(Unexpected& to) const noexcept;
    /// Its Kept alone, and the payload of one that is eager.
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
