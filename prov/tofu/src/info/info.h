// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo: what the provider offers, filtered by what the caller hints. Called by libfabric and, to check an
// info that comes back, by domain and endpoint. Calls backend.
#pragma once

#include <cstdint>

#include <rdma/fabric.h>

#include "address/address.h"

namespace tofu {

inline constexpr const char* fabric_name = "tofu";
/// "tofu-d", or "tofu-sim" over the simulator: so that fi_info tells them apart.
[[nodiscard]] const char* domain_name() noexcept;
inline constexpr std::uint32_t protocol = 0x746f6675; ///< ep_attr.protocol, a positive int: "tofu"

/// fi_provider.getinfo; fi_getinfo(3). 0, -FI_ENODATA (nothing of ours fits), -FI_EINVAL, -FI_ENOMEM.
int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info) noexcept;

/// The peer that node and service of fi_getinfo and fi_av_insertsvc stand for. False: none.
[[nodiscard]] bool find_peer(const char* node, const char* service, EndpointAddress& peer) noexcept;

/// What a context gets that asks for `asked` and has `caps` at most (fi_endpoint(3)): `granted` holds what it would
/// inherit, and then what it has. False: more than can be had. Of fi_tx_attr and fi_rx_attr.
template <class Attr>
[[nodiscard]] bool narrow(const Attr& asked, std::uint64_t caps, Attr& granted) noexcept;

} // namespace tofu
