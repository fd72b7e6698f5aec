// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// uTofu's return codes as libfabric's, and back to text. One table for both. Called by every object that
// turns an outcome into a completion; calls nothing.
#pragma once

#include <utofu.h>

namespace tofu {

/// Positive FI_E* for an outcome of a communication (UTOFU_ERR_TCQ_*, UTOFU_ERR_MRQ_*) or of a call; 0 for
/// success. Codes that uTofu does not define are FI_EIO.
int fi_error_of(int utofu_code) noexcept;

/// None of uTofu's: nobody told how it ended (vcq::Vcq::watch). It may still be carried out, so it is not repeated.
inline constexpr int never_told = -1000000;

/// Errors by which a peer's TNI says that what a key stood for is gone.
inline bool says_stale(int utofu_code) noexcept
{
    return utofu_code == UTOFU_ERR_MRQ_RMT_STADD || utofu_code == UTOFU_ERR_MRQ_RMT_MEMORY ||
           utofu_code == UTOFU_ERR_MRQ_RMT_LENGTH;
}

/// Does what was reached, or its key, have to be looked for anew?
inline bool doubts_target(int utofu_code) noexcept { return utofu_code == never_told || says_stale(utofu_code); }

/// What the code means and what to look at, one line without a full stop; never null.
const char* utofu_text(int utofu_code) noexcept;

} // namespace tofu
