// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Keeps registered pages from being swapped out, where UTOFU_SWAP_PROTECT asks for it (guide 4.3.2.5). Under the lock
// of memory/registry. Uses: mlock, munlock, /proc/self/status.
//
// Locked is "the memory region used for communication", within RLIMIT_MEMLOCK: what is registered no longer must not
// use up the limit for what is. The kernel has one lock for a page however often it is asked, so pages are counted
// here.
#pragma once

#include <cstdint>
#include <map>

namespace tofu::sim {

class PageLocks {
  public:
    /// Ranges of whole pages. Each `add` is answered by one `remove` of the same range. False: there is no memory to
    /// note it, and nothing was locked.
    [[nodiscard]] bool add(uint64_t start, uint64_t end) noexcept;
    void remove(uint64_t start, uint64_t end) noexcept;

  private:
    struct Run {
        uint64_t end;
        uint32_t count; ///< ranges that contain it; 0 inside of add() only
        bool ours;      ///< and not locked by the program before, whose lock stays
    };
    void split(uint64_t at);
    void enter(uint64_t start, uint64_t end);

    std::map<uint64_t, Run> runs_; ///< by start; they do not overlap
};

} // namespace tofu::sim
