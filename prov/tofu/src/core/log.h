// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the provider reports of itself: the log of libfabric (FI_LOG_LEVEL, FI_LOG_PROV), the texts and libfabric's
// numbers of uTofu's return codes, and probes for tracers.
#pragma once

#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <utofu.h>

namespace tofu {

/// The provider as libfabric knows it (api/provider.cc).
extern fi_provider provider;

/// Writes one line about a setting of the user that cannot be met: to the log if that shows warnings, else to stderr,
/// since libfabric logs nothing unless FI_LOG_LEVEL is set. `format` as for printf, without a newline.
void warn_user(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

#define TOFU_WARN(subsystem, ...) FI_WARN(&::tofu::provider, subsystem, __VA_ARGS__)
#define TOFU_INFO(subsystem, ...) FI_INFO(&::tofu::provider, subsystem, __VA_ARGS__)

// --- uTofu's return codes as libfabric's error codes and as text, by one table

/// Positive FI_E* for an outcome of a communication (UTOFU_ERR_TCQ_*, UTOFU_ERR_MRQ_*) or of a call; 0 for
/// success. Codes that uTofu does not define are FI_EIO.
int fi_error_of(int utofu_code) noexcept;

/// A code that uTofu does not have: no notice has reported the end of a communication (vcq::Vcq::watch). The
/// communication may still be carried out, so it is not repeated.
inline constexpr int never_notified = -1000000;

/// Does this error of a peer's TNI say that the region of a key is gone?
inline bool is_stale(int utofu_code) noexcept
{
    return utofu_code == UTOFU_ERR_MRQ_RMT_STADD || utofu_code == UTOFU_ERR_MRQ_RMT_MEMORY ||
           utofu_code == UTOFU_ERR_MRQ_RMT_LENGTH;
}

/// Does the error cast doubt on the target, so that its key has to be looked up anew?
inline bool doubts_target(int utofu_code) noexcept
{
    return utofu_code == never_notified || is_stale(utofu_code);
}

/// The meaning of the code and what to look at, one line without a full stop; never null.
const char* utofu_text(int utofu_code) noexcept;

} // namespace tofu

// --- Probes for tracers (fi_tofu(7), "PROBES"): USDT, that is a `nop` and a note in the binary, if systemtap's header
// was there at build time; else nothing. Their arguments are values at hand, which cost no instruction of their own.

#if __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define TOFU_PROBE(name, ...) STAP_PROBEV(tofu, name, __VA_ARGS__)
#else
#define TOFU_PROBE(name, ...) ((void)0)
#endif
