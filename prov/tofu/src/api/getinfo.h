// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo: the provider's offers, filtered by the caller's hints. Called by libfabric and, to check an info that
// comes back, by domain and endpoint. Calls backend.
#pragma once

#include <cstdint>

#include <rdma/fabric.h>

#include "av/address.h"

namespace tofu {

inline constexpr const char* fabric_name = "tofu";
/// "tofu-d", or "tofu-sim" over the simulator, so that fi_info shows the difference.
[[nodiscard]] const char* domain_name() noexcept;
inline constexpr std::uint32_t protocol = 0x746f6675; ///< ep_attr.protocol, a positive int: "tofu"

/// fi_provider.getinfo; fi_getinfo(3). 0, -FI_ENODATA (nothing of ours fits), -FI_EINVAL, -FI_ENOMEM.
int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info) noexcept;

/// The address of the peer that `node` and `service` of fi_getinfo or fi_av_insertsvc name. False: there is none.
[[nodiscard]] bool find_peer(const char* node, const char* service, EndpointAddress& peer) noexcept;

/// The attributes (fi_tx_attr or fi_rx_attr) of a context that asks for `asked` and has at most `caps`
/// (fi_endpoint(3)). `granted` holds the attributes that it would inherit, then those that it gets. False: it asks for
/// too much.
template <class Attr>
[[nodiscard]] bool narrow(const Attr& asked, std::uint64_t caps, Attr& granted) noexcept;

} // namespace tofu
