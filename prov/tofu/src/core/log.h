// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Logging through libfabric (FI_LOG_LEVEL, FI_LOG_PROV). Called by all; not on the data path.
#pragma once

#include <cerrno>

#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

namespace tofu {

/// The provider as libfabric knows it (provider.cc).
extern fi_provider provider;

/// Writes one line about a setting of the user that can't be met: to the log if that shows warnings, else to stderr,
/// since libfabric logs nothing unless FI_LOG_LEVEL is set. `format` as for printf, without a newline.
void complain(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

} // namespace tofu

#define TOFU_WARN(subsystem, ...) FI_WARN(&::tofu::provider, subsystem, __VA_ARGS__)
#define TOFU_INFO(subsystem, ...) FI_INFO(&::tofu::provider, subsystem, __VA_ARGS__)
