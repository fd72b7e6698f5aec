// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A uTofu library, surrounded, that tells nothing of accesses to what is not registered, or no longer: one that exists
// does so, though the guide promises an error (2.2.12).
#pragma once

#include <atomic>
#include <chrono>

#include "prov/lib/library.h"
#include "utofu/vcq.h"

namespace tofu::test {

inline bool silent = false;               ///< about accesses that failed
inline bool deaf = false;                 ///< to the ends of ARMWs, which are carried out
inline std::atomic<unsigned> failures{0}; ///< of accesses, and unreported completions

/// From now on; what has not ended for so long is taken for such an access.
inline void fall_silent(std::chrono::milliseconds lost_after)
{
    static bool surrounded = false;
    vcq::Vcq::lost_after = lost_after;
    silent = true;
    if (surrounded)
        return;
    surrounded = true;
    surround<[](auto next, utofu_vcq_hdl_t vcq, unsigned long flags, utofu_mrq_notice* notice) {
        while (true) {
            const int code = next(vcq, flags, notice);
            const bool failed = code <= UTOFU_ERR_MRQ_OTHER && code >= UTOFU_ERR_MRQ_RMT_LENGTH;
            const bool unheard = deaf && code == UTOFU_SUCCESS && notice->notice_type == UTOFU_MRQ_TYPE_LCL_ARMW;
            failures += failed || unheard;
            if (!unheard && !(silent && failed))
                return code;
        }
    },
             &vcq::Functions::poll_mrq>(library_functions());
}

} // namespace tofu::test
