// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The program's advice to the kernel about pages (mlock, madvise), which a new mapping in their place would lose. Uses:
// madvise, /proc/self/smaps.
//
// The kernel shows these flags in /proc/self/smaps only, which costs a look at each page of the process. A change of
// one page's flag splits its mapping in two, and no change does not: that is found out by two calls.
#pragma once

#include "memory/vma.h"

namespace tofu::sim {

struct Advice {
    bool locked = false;       ///< mlock
    bool dont_fork = false;    ///< MADV_DONTFORK: a child has nothing there
    bool dont_dump = false;    ///< MADV_DONTDUMP: no core file has it
    bool wipe_on_fork = false; ///< MADV_WIPEONFORK, which shared mappings cannot have
};

/// Of the page at `at`, in the mapping `vma` of this process. No other thread may fork or advise about this page
/// meanwhile.
[[nodiscard]] Advice advice_of(const VmaQuery& vmas, const Vma& vma, uint64_t at) noexcept;

/// Of a whole mapping: MADV_DONTDUMP. False also where it would cost much to find out: a mapping of one page, an old
/// kernel.
[[nodiscard]] bool is_kept_from_dumps(const VmaQuery& vmas, const Vma& vma) noexcept;

/// Says it again, of a new mapping; but for wipe_on_fork.
void repeat(const Advice& advice, uint64_t address, uint64_t length) noexcept;

} // namespace tofu::sim
