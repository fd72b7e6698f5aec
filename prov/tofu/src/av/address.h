// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The address of an endpoint (EndpointAddress): what fi_getname gives and fi_av_insert takes. By convention all that a
// peer needs for its first byte follows from it: remote access goes to the target VCQ of the peer's domain, where
// endpoint number `index` keeps its message area under the reserved STag `index + 1`, and the domain its directory of
// regions under STag 0. The form in which an application has addresses (AddressForm).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/limits.h"

struct fi_info;

namespace tofu {

/// Version of everything that peers read of each other; docs/wire-protocol.md. Peers of another version
/// are refused.
inline constexpr std::uint16_t wire_version = 13;

struct EndpointAddress {
    std::uint32_t magic;      ///< address_magic
    std::uint8_t version;     ///< wire_version
    std::uint8_t flags;       ///< address_counts_events, or 0
    std::uint8_t index;       ///< number of the endpoint in its domain, 0 ... max_endpoints - 1
    std::uint8_t further;     ///< receive contexts besides the first: they have the numbers that follow
    std::uint64_t target_vcq; ///< ID of the domain's target VCQ (utofu_vcq_id_t)
    std::uint64_t nonce;      ///< of the endpoint (endpoint_nonce): VCQ IDs and numbers are used again, nonces are not

    [[nodiscard]] constexpr bool is_valid() const noexcept;
};
static_assert(sizeof(EndpointAddress) == 24 && std::is_trivially_copyable_v<EndpointAddress>);
static_assert(wire_version <= UINT8_MAX);

/// The endpoint was opened with FI_RMA_EVENT: operations that target it carry a notice. That is the target's wish
/// (fi_getinfo(3)), so its address says it.
inline constexpr std::uint8_t address_counts_events = 1;
/// The flags of an endpoint's address, from its capabilities.
[[nodiscard]] std::uint8_t address_flags(std::uint64_t caps) noexcept;

inline constexpr std::uint32_t address_magic = 0x55664f54; // "TOfU"

/// Reserved STags of a target VCQ, of which a TNI has 256: 0 for the directory of regions, 1 + index for each endpoint,
/// then one for the rings that each of the first few endpoints registers later, the last ones for the directory's
/// second tables, by the binary logarithm of their size.
inline constexpr unsigned directory_stag = 0;
inline constexpr unsigned max_endpoints = 240;
constexpr unsigned endpoint_stag(unsigned index)
{
    return index + 1;
}
inline constexpr unsigned growing_endpoints = 5;
constexpr unsigned further_stag(unsigned index)
{
    return 1 + max_endpoints + index;
}
constexpr unsigned table_stag(unsigned log2)
{
    return 239 + log2;
}

/// Length of an address as text, "tofu://VCQ.INDEX.NONCE" in hexadecimal digits (INDEX: flags, further, index), with
/// its final zero.
inline constexpr std::size_t address_text_size = 7 + 16 + 1 + 6 + 1 + 16 + 1;

/// Writes the text of an address; `text` holds address_text_size characters.
void address_to_text(const EndpointAddress& address, char* text) noexcept;
/// Reads the text of an address. False: it is no address of this version.
bool address_from_text(const char* text, EndpointAddress& address) noexcept;
/// Reads what may be is_valid(), or one that no endpoint has yet (names::placeholder). False, and nothing is written:
/// neither.
bool scan_address(const char* text, EndpointAddress& address) noexcept;

/// An address in the application's form: bytes, or, with FI_ADDR_STR, text.
struct AddressForm {
    AddressForm(const EndpointAddress& address, bool textual) noexcept;
    std::size_t size;
    char bytes[address_text_size];
};
static_assert(address_text_size == limits::max_err_data);
/// fi_getname(3): the address in the format of an info. 0, -FI_ETOOSMALL, -FI_EINVAL.
int write_address(const EndpointAddress& own, std::uint32_t format, void* buffer, std::size_t* length) noexcept;
/// The key of the service name that fi_getinfo left in the source address of an info (names.h); 0: none.
std::uint64_t name_key_of(const fi_info& info) noexcept;

/// The nonce of an endpoint: {its incarnation: 16 bits, the nonce of its domain: 48}. The latter is random, since a VCQ
/// ID is used again after its process has gone. The former counts the endpoints of the domain, since a number is used
/// again after its endpoint has been closed.
inline constexpr int domain_nonce_bits = 48;
[[nodiscard]] constexpr std::uint64_t nonce_of_domain(std::uint64_t nonce) noexcept
{
    return nonce & ((std::uint64_t{1} << domain_nonce_bits) - 1);
}
[[nodiscard]] constexpr std::uint64_t endpoint_nonce(std::uint64_t of_domain, std::uint16_t incarnation) noexcept
{
    return std::uint64_t{incarnation} << domain_nonce_bits | of_domain;
}

/// Makes an address of this version.
[[nodiscard]] constexpr EndpointAddress make_address(std::uint64_t target_vcq, std::uint64_t nonce, unsigned index,
                                                     unsigned further = 0, unsigned flags = 0) noexcept
{
    return {address_magic,
            wire_version,
            static_cast<std::uint8_t>(flags),
            static_cast<std::uint8_t>(index),
            static_cast<std::uint8_t>(further),
            target_vcq,
            nonce};
}
/// An address that an endpoint of this version can have. Bytes of the application's are not trusted.
constexpr bool EndpointAddress::is_valid() const noexcept
{
    return magic == address_magic && version == wire_version && target_vcq != 0 &&
           (flags & ~address_counts_events) == 0 && unsigned{index} + further < max_endpoints;
}

/// The key of a peer endpoint, which matching compares. Never 0.
[[nodiscard]] constexpr std::uint64_t peer_key(std::uint64_t target_vcq, std::uint64_t nonce, std::uint32_t index)
{
    std::uint64_t h = (target_vcq ^ (nonce * 0x9e3779b97f4a7c15) ^ index) * 0xff51afd7ed558ccd;
    h ^= h >> 33;
    h = (h + index) * 0xc4ceb9fe1a85ec53;
    h ^= h >> 33;
    return h | 1;
}

} // namespace tofu
