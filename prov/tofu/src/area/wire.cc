// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reading the header of a peer's area. Called by Outbound; calls nothing.
#include "area/wire.h"

namespace tofu::proto {

Heading read_header(const AreaHeader& header, std::uint64_t nonce, std::uint32_t index, Geometry& geometry,
                    std::uint32_t& ring) noexcept
{
    if (header.magic != area_magic || header.version != wire_version)
        return Heading::other_version;
    if (header.nonce != nonce || header.index != index)
        return Heading::other_process;
    const Geometry claimed{header.ring_count, header.ring_slots};
    if (!claimed.valid())
        return Heading::impossible;
    geometry = claimed;
    ring = header.hint - 1 < claimed.ring_count ? header.hint - 1 : claimed.ring_count;
    return Heading::usable;
}

} // namespace tofu::proto
