// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Translates uTofu's return codes to libfabric's error codes and to text, by one table. Called by every object that
// turns the end of a communication into a completion; calls nothing.
#pragma once

#include <utofu.h>

namespace tofu {

/// Positive FI_E* for an outcome of a communication (UTOFU_ERR_TCQ_*, UTOFU_ERR_MRQ_*) or of a call; 0 for
/// success. Codes that uTofu does not define are FI_EIO.
int fi_error_of(int utofu_code) noexcept;

/// A code that uTofu does not have: no notice has told how a communication ended (vcq::Vcq::watch). The communication
/// may still be carried out, so it is not repeated.
inline constexpr int never_told = -1000000;

/// Does this error of a peer's TNI say that the region of a key is gone?
inline bool says_stale(int utofu_code) noexcept
{
    return utofu_code == UTOFU_ERR_MRQ_RMT_STADD || utofu_code == UTOFU_ERR_MRQ_RMT_MEMORY ||
           utofu_code == UTOFU_ERR_MRQ_RMT_LENGTH;
}

/// Does the error cast doubt on the target, so that its key has to be looked up anew?
inline bool doubts_target(int utofu_code) noexcept { return utofu_code == never_told || says_stale(utofu_code); }

/// The meaning of the code and what to look at, one line without a full stop; never null.
const char* utofu_text(int utofu_code) noexcept;

} // namespace tofu
