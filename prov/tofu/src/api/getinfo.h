// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo: evaluates a caller's hints, whether they can be met, and which capabilities, orders and style of keys
// follow from them (fits and others); describes the network interface (make_nic); and answers (get_info, find_peer,
// narrow).
#pragma once

#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include "av/address.h"

struct fid_nic;

namespace tofu {

// --- hints, against what core/limits.h promises

/// The two ways of registering memory (fi_mr(3)), by the origin of keys.
enum class KeyStyle { provider, user };

/// Fills in the halves of MSG, TAGGED, RMA and ATOMIC that the caller left open (fi_getinfo(3), "Capabilities").
[[nodiscard]] std::uint64_t expand(std::uint64_t caps) noexcept;

/// The capabilities of an info that answers these hints; null: no hints.
[[nodiscard]] std::uint64_t granted_caps(const fi_info* hints) noexcept;

/// Those of them that only a provider asks for that will own our queues: FI_PEER, FI_AV_USER_ID.
[[nodiscard]] std::uint64_t owner_caps(const fi_info* hints) noexcept;

/// The message orders that are available with these capabilities.
[[nodiscard]] std::uint64_t orders_for(std::uint64_t caps) noexcept;

/// Whether all requests of the hints can be met. A false leaves a line at info level that names the attribute. mr_mode
/// and the objects that are named are not checked: see mr_mode_for, and get_info.
[[nodiscard]] bool fits(const fi_info* hints) noexcept;
/// The same of fi_tx_attr or fi_rx_attr, with these capabilities.
template <class Attr>
[[nodiscard]] bool fits(const Attr& hint, std::uint64_t caps) noexcept;

/// Whether the enumerators exist. A caller in C can write any number.
[[nodiscard]] bool has_enumerators(const fi_domain_attr& attr) noexcept;

/// The mr_mode that the caller gets for this style of keys. False: its hints rule the style out. Before version 1.5 a
/// hint of 0 rules nothing out (fi_mr(3), FI_MR_UNSPEC); since then the caller sets the bits that it can do.
[[nodiscard]] bool mr_mode_for(KeyStyle style, std::uint32_t version, const fi_info* hints, int& mode) noexcept;

// --- the description of the network interface in an info (fid_nic, fi_nic(3))

namespace vcq {
class Backend;
}

/// Describes the interface controller of a node; a domain uses all its TNIs. The caller closes it, or gives it to an
/// info, which then owns it; fi_dupinfo copies it. Null: no memory.
[[nodiscard]] fid_nic* make_nic(const vcq::Backend& backend) noexcept;

// --- the answer: the provider's offers, filtered by the caller's hints

inline constexpr const char* fabric_name = "tofu";
/// "tofu-d", or "tofu-sim" over the simulator, so that fi_info shows the difference.
[[nodiscard]] const char* domain_name() noexcept;
inline constexpr std::uint32_t protocol = 0x746f6675; ///< ep_attr.protocol, a positive int: "tofu"

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
