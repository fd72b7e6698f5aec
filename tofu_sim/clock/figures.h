// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What Tofu-D and its processor take for what, the numbers of docs/time-model.md.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tofu::sim {

/// The unit of the virtual clock: a byte on a link takes 147 of them.
using Picoseconds = uint64_t;

namespace figures {

// ---- The processor ----
inline constexpr Picoseconds post_call = 230'000; ///< a start function, until the TNI hears of it
inline constexpr Picoseconds found = 60'000;      ///< a poll that finds an entry, a look that finds memory written
inline constexpr Picoseconds look_at_clock = 25'000;
inline constexpr Picoseconds registration = 1'500'000; ///< of memory, or its end
inline constexpr Picoseconds registration_page = 60'000;
inline constexpr uint64_t page_bytes = 65536;

// ---- TNI and memory ----
inline constexpr Picoseconds fetch = 80'000;  ///< of the descriptor
inline constexpr Picoseconds read = 120'000;  ///< of payload, until the first byte arrives
inline constexpr Picoseconds write = 50'000;  ///< of payload, until a look finds it
inline constexpr Picoseconds notice = 75'000; ///< an entry of a TCQ or an MRQ, after its bytes
inline constexpr Picoseconds armw = 11'000;

// ---- Network ----
inline constexpr Picoseconds wire = 341'000; ///< TNI to TNI, without the hops
inline constexpr Picoseconds hop = 77'500;
inline constexpr uint32_t largest_packet = 1920; ///< payload (guide 2.2.9)
inline constexpr uint32_t packet_overhead = 132; ///< bytes of a link's time that a packet takes besides its payload
inline constexpr uint32_t request_bytes = 16;    ///< of a get or an ARMW, on its way to the target
/// Of a virtual channel at the receiving end of a link, in bytes as they pass it. Assumed: see docs/time-model.md.
inline constexpr uint32_t channel_buffer = 4096;
inline constexpr unsigned crowd = 4;                ///< TNIs of a node that share a port without loss
inline constexpr Picoseconds crowd_pause = 790'000; ///< what the port loses when one more comes while it is busy

// ---- Barrier gates ----
// A packet of a gate takes a hop in the time of any other packet.
inline constexpr Picoseconds gates_start = 370'000; ///< besides the call and the poll
inline constexpr Picoseconds gates_sum = 300'000;   ///< how much more a reduction takes
inline constexpr Picoseconds gate = 180'000;

/// 6.8 GB/s.
[[nodiscard]] constexpr Picoseconds link_time(uint64_t bytes) noexcept
{
    return bytes * 2500 / 17;
}

/// How long a link is busy with a message in packets of up to `mtu` bytes of payload.
[[nodiscard]] constexpr Picoseconds stream_time(uint64_t length, uint32_t mtu) noexcept
{
    const uint64_t packets = std::max<uint64_t>(1, (length + mtu - 1) / mtu);
    return link_time(length + packets * packet_overhead);
}

/// A packet leaves when all of it was read; the next ones are read meanwhile. 7.5 GB/s.
[[nodiscard]] constexpr Picoseconds first_packet(uint64_t length, uint32_t mtu) noexcept
{
    return length == 0 ? 0 : read + std::min<uint64_t>(length, mtu) * 400 / 3;
}

} // namespace figures
} // namespace tofu::sim
