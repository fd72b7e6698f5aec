// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an info says of the network interface (fid_nic, fi_nic(3)). Used by info; calls vcq/backend for where the node is.
#pragma once

struct fid_nic;

namespace tofu {

namespace vcq {
class Backend;
}

/// The interface controller of a node, all TNIs of which a domain uses. The caller closes it, or gives it to an info, whose
/// release does: libfabric copies it by fi_dupinfo. Null: no memory.
[[nodiscard]] fid_nic* make_nic(const vcq::Backend& backend) noexcept;

} // namespace tofu
