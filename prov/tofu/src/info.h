// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo: what the provider offers, filtered by what the caller hints. Called by libfabric and, to check an
// info that comes back, by domain and endpoint. Calls backend.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>

#include "address.h"

namespace tofu {

inline constexpr const char* fabric_name = "tofu";
inline constexpr const char* domain_name = "tofu-d";
inline constexpr std::uint32_t protocol = 0x746f6675; ///< ep_attr.protocol, a positive int: "tofu"

/// fi_provider.getinfo; fi_getinfo(3). 0, -FI_ENODATA (nothing of ours fits), -FI_EINVAL, -FI_ENOMEM.
int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info);

/// Length of an address as text, "tofu://HOME.INDEX.NONCE" in hexadecimal digits, with its final zero.
inline constexpr std::size_t address_text_size = 7 + 16 + 1 + 4 + 1 + 16 + 1;

/// Writes the text of an address; `text` holds address_text_size characters.
void address_to_text(const EndpointAddress& address, char* text) noexcept;
/// False where the text is no address of this version.
bool address_from_text(const char* text, EndpointAddress& address) noexcept;
/// The same for an address that no endpoint has yet (names::placeholder).
bool placeholder_from_text(const char* text, EndpointAddress& address) noexcept;

} // namespace tofu
