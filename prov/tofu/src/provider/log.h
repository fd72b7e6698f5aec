// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Logging through libfabric (FI_LOG_LEVEL, FI_LOG_PROV). Called by all; not on the data path.
#pragma once

#include <cerrno>

#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

namespace tofu {

/// The provider as libfabric knows it (init.cc).
extern fi_provider provider;

/// One line about a setting of the user's that cannot be met: through the log where it shows warnings, else on
/// stderr, for libfabric says nothing unless FI_LOG_LEVEL is set. `format` as printf's, without a newline.
void complain(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

} // namespace tofu

#define TOFU_WARN(subsystem, ...) FI_WARN(&::tofu::provider, subsystem, __VA_ARGS__)
#define TOFU_INFO(subsystem, ...) FI_INFO(&::tofu::provider, subsystem, __VA_ARGS__)
