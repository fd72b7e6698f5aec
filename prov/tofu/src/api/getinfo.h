// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo: what the provider offers, filtered by a caller's hints (get_info), and what other calls ask of that:
// peers by name (find_peer), the attributes of a context (narrow).
#pragma once

#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include "av/address.h"

namespace tofu {

/// Fills in the halves of MSG, TAGGED, RMA and ATOMIC that the caller left open (fi_getinfo(3), "Capabilities").
[[nodiscard]] std::uint64_t expand(std::uint64_t caps) noexcept;

/// Whether the enumerators exist. A caller in C can write any number.
[[nodiscard]] bool has_enumerators(const fi_domain_attr& attr) noexcept;

inline constexpr const char* fabric_name = "tofu";
/// "tofu-d", or "tofu-sim" over the simulator, so that fi_info shows the difference.
[[nodiscard]] const char* domain_name() noexcept;

/// fi_provider.getinfo; fi_getinfo(3). 0, -FI_ENODATA (no match), -FI_EINVAL, -FI_ENOMEM.
int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** info) noexcept;

/// The address of the peer that `node` and `service` of fi_getinfo or fi_av_insertsvc name. False: there is none.
[[nodiscard]] bool find_peer(const char* node, const char* service, EndpointAddress& peer) noexcept;

/// The attributes (fi_tx_attr or fi_rx_attr) of a context that asks for `asked` and has at most `caps`
/// (fi_endpoint(3)). `granted` holds the attributes that it would inherit, then those that it gets. False: it asks for
/// too much.
template <class Attr>
[[nodiscard]] bool narrow(const Attr& asked, std::uint64_t caps, Attr& granted) noexcept;

} // namespace tofu
