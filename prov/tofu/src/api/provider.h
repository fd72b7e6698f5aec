// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one symbol that libfabric looks for, and fi_fabric(3). Called by libfabric.
#pragma once

#include <rdma/fabric.h>

namespace tofu {

// fi_fabric(3): opens domains, event queues and wait sets.

/// fi_fabric(3). 0, -FI_EINVAL, -FI_ENOMEM.
int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) noexcept;

} // namespace tofu
