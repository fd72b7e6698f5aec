// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a domain offers beyond libfabric's interfaces (rdma/fi_ext_tofu.h). Called by domain.
#pragma once

#include <cstdint>

#include <rdma/fabric.h>

namespace tofu {

/// fi_open_ops(3) of a domain: 0, -FI_EINVAL, or -FI_ENOSYS for a name that is not known.
int open_extension(struct fid* domain, const char* name, std::uint64_t flags, void** ops, void* context) noexcept;

} // namespace tofu
