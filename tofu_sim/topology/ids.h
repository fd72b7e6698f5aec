// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bits of VCQ IDs, VBG IDs and path IDs (guide 3.1.1.1, 3.3.2, 3.5; layout as seen on real systems).
#pragma once

#include "topology/topology.h"

#include <cstdint>

namespace tofu::sim {

/// From the top: TNI 63-61, C 59, B 58-57, A 56, Z 55-48, Y 47-40, X 39-32, path C 31, path B 30-29, path A 28,
/// bit 27 set, component 26-24, CQ 3-0; the rest is zero.
struct VcqAddress {
    Coords coords{};
    PathCoords path{};
    uint8_t tni = 0;
    uint8_t cq = 0;
    uint8_t component = 0;

    friend bool operator==(const VcqAddress&, const VcqAddress&) = default;
};

inline constexpr uint64_t vcq_id_path_mask = uint64_t{0xf} << 28;
inline constexpr uint64_t vcq_id_mark = uint64_t{1} << 27;
inline constexpr uint64_t vcq_id_zero_bits = (uint64_t{1} << 60) | 0x00fffff0u;

/// path ID: a + (b << 1) + (c << 3)
[[nodiscard]] constexpr uint8_t encode_path(const PathCoords& path) noexcept
{
    return static_cast<uint8_t>(path[0] | path[1] << 1 | path[2] << 3);
}
[[nodiscard]] constexpr PathCoords decode_path(unsigned path_id) noexcept
{
    return {static_cast<uint8_t>(path_id & 1), static_cast<uint8_t>(path_id >> 1 & 3),
            static_cast<uint8_t>(path_id >> 3 & 1)};
}

[[nodiscard]] constexpr uint64_t encode_place(const Coords& c, unsigned tni) noexcept
{
    return uint64_t{tni} << 61 | uint64_t{c[5]} << 59 | uint64_t{c[4]} << 57 | uint64_t{c[3]} << 56 |
           uint64_t{c[2]} << 48 | uint64_t{c[1]} << 40 | uint64_t{c[0]} << 32;
}
[[nodiscard]] constexpr Coords decode_coords(uint64_t id) noexcept
{
    return {static_cast<uint8_t>(id >> 32),     static_cast<uint8_t>(id >> 40),     static_cast<uint8_t>(id >> 48),
            static_cast<uint8_t>(id >> 56 & 1), static_cast<uint8_t>(id >> 57 & 3), static_cast<uint8_t>(id >> 59 & 1)};
}
[[nodiscard]] constexpr unsigned decode_tni(uint64_t id) noexcept
{
    return static_cast<unsigned>(id >> 61);
}

[[nodiscard]] constexpr uint64_t encode_vcq_id(const VcqAddress& a) noexcept
{
    return encode_place(a.coords, a.tni) | uint64_t{encode_path(a.path)} << 28 | vcq_id_mark |
           uint64_t{a.component} << 24 | a.cq;
}
[[nodiscard]] constexpr VcqAddress decode_vcq_id(uint64_t id) noexcept
{
    return {decode_coords(id), decode_path(id >> 28 & 0xf), static_cast<uint8_t>(decode_tni(id)),
            static_cast<uint8_t>(id & 0xf), static_cast<uint8_t>(id >> 24 & 7)};
}

/// The ID without its path: what names the VCQ itself.
[[nodiscard]] constexpr uint64_t vcq_key(uint64_t id) noexcept
{
    return id & ~vcq_id_path_mask;
}
/// The ID with the destination's own A, B, C as path: what notices carry (guide 3.7.6.1).
[[nodiscard]] constexpr uint64_t with_default_path(uint64_t id) noexcept
{
    const Coords c = decode_coords(id);
    return vcq_key(id) | uint64_t{encode_path({c[3], c[4], c[5]})} << 28;
}

/// VBG ID: place as above, bits 31-24 zero, gate number in the low bits.
[[nodiscard]] constexpr uint64_t encode_vbg_id(const Coords& c, unsigned tni, unsigned gate) noexcept
{
    return encode_place(c, tni) | gate;
}

static_assert(encode_vcq_id({{0, 0x16, 0x0b, 0, 0, 0}, {0, 0, 0}, 1, 0, 7}) == 0x200b16000f000000);

} // namespace tofu::sim
