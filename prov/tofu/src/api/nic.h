// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The description of the network interface in an info (fid_nic, fi_nic(3)). Used by info; calls utofu/library for the
// place of the node.
#pragma once

struct fid_nic;

namespace tofu {

namespace vcq {
class Backend;
}

/// Describes the interface controller of a node; a domain uses all its TNIs. The caller closes it, or gives it to an
/// info, which then owns it; fi_dupinfo copies it. Null: no memory.
[[nodiscard]] fid_nic* make_nic(const vcq::Backend& backend) noexcept;

} // namespace tofu
