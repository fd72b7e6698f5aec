// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How long a port has had no credit, by virtual channel; in memory that all processes of a job share.
//
// The calendars let a link go on while what it has brought waits for the next one. On the machine what waits stands in
// a buffer at the link's end; where that is full the port in front of it has no credit and stops. So much is counted
// here, behind the calendars' back: what they say of waits becomes the level of that buffer, and from that follows when
// the port could have sent on. Nothing that the clock says depends on it.
#pragma once

#include "clock/calendar.h"
#include "topology/route.h"

#include <vector>

namespace tofu::sim {

inline constexpr unsigned virtual_channels = 4;
inline constexpr uint32_t most_channel_buffer = 1u << 20;
inline constexpr const char* channel_buffer_expected =
    "use the bytes of a virtual channel's buffer at the end of a link, 0 to 1048576";

/// Of one channel of a port. Bytes are counted by the time that a link takes for them.
struct alignas(apart) Credit {
    static constexpr unsigned most = 10;
    struct Departure {
        Picoseconds passed; ///< so much had left the buffer,
        Picoseconds when;   ///< by then
    };

    SharedWord<uint32_t> lock;
    uint32_t count;
    Picoseconds sent;    ///< until when the port is busy with the last content of the buffer, including waits for
                         ///< credit
    Picoseconds without; ///< credit, in total
    Departure left[most];
};
static_assert(sizeof(Credit) == 192);

/// What has come through a port and had to wait behind it: when its first and its last byte came, and left.
struct Standing {
    Interval came;
    Interval left;
};

/// `room`: what the buffer holds.
void account(Credit& credit, const Standing& standing, Picoseconds work, Picoseconds room) noexcept;

/// By which channel a stream leaves through `links[index]`: 0 and 1 on the way out, 2 and 3 for answers; the second of
/// each from the link on that goes around the end of an axis, and in the last part of a route, along A, B and C.
[[nodiscard]] unsigned channel_of(const Topology& topology, const std::vector<Link>& links, size_t index,
                                  bool answer) noexcept;

/// Of the machine's counter: 425 MHz.
[[nodiscard]] constexpr uint64_t credit_cycles(Picoseconds without) noexcept
{
    return without / 1000 * 425 / 1000;
}

} // namespace tofu::sim
