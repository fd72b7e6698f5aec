// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See message.h.
#include "msg/message.h"

namespace tofu::proto {

void Message::pack(Unexpected& to) const noexcept
{
    to.source = in->key;
    to.tag = tag;
    to.tagged = tagged;
    to.has_data = has_data;
    to.data = data;
    to.length = length;
    std::memcpy(to.body(), static_cast<const Kept*>(this), sizeof(Kept));
    std::byte* const rest = to.body() + sizeof(Kept);
    if (type == Type::rts) {
        std::memcpy(rest, &vcq, sizeof vcq);
        std::memcpy(rest + sizeof vcq, segments, segment_count * sizeof(Segment));
    } else if (length != 0) {
        std::memcpy(rest, payload, length);
    }
}

Message Message::unpack(const Unexpected& from) noexcept
{
    const std::byte* const rest = payload_of(from);
    const Kept of_it = kept_of(from); // made in its place, it would cover what lies in its tail (GCC 12)
    Message m{of_it, from.tagged, from.has_data, from.tag, from.data, from.length, rest};
    if (m.type == Type::rts) {
        std::memcpy(&m.vcq, rest, sizeof m.vcq);
        std::memcpy(m.segments, rest + sizeof m.vcq, m.segment_count * sizeof(Segment));
    }
    return m;
}

} // namespace tofu::proto
