// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where the kernel writes by itself: stacks of threads (signal frames), their descriptors and thread-local data. Uses:
// get_robust_list, sigaltstack, /proc/self/task.
//
// Such pages are not moved. Without the right to hold up the kernel (UFFD_USER_MODE_ONLY) a signal frame or an rseq
// area that it cannot write ends the process. And the word that it clears and wakes when a thread ends
// (clear_child_tid) is a futex that is not private: its key changes with the mapping, and a waiter by the old key waits
// for ever.
#pragma once

#include "memory/vma.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tofu::sim {

/// Used under the process's lock.
class ThreadAreas {
  public:
    /// False: the kernel does not report where they are, and nothing may be moved.
    [[nodiscard]] bool open(const VmaQuery& vmas);
    /// Looks at the threads that there are now, but for `except`. False: it is not known where all of them are, and
    /// nothing may be moved.
    [[nodiscard]] bool look(const VmaQuery& vmas, int except);
    /// The calling thread's alternative signal stack, and its own stack if [start, end) lies close above: that of a
    /// coroutine cannot be found otherwise. No thread can find this for another one.
    void note_caller(uint64_t start, uint64_t end);

    /// Is `address` in one? *stop: until where this answer holds, at most; left alone where it is farther.
    [[nodiscard]] bool holds(uint64_t address, uint64_t* stop) const noexcept;

  private:
    struct Area {
        uint64_t start;
        uint64_t end;
        int tid = 0;       ///< owner; 0: of a thread that called
        uint64_t head = 0; ///< of its list of robust futexes

        [[nodiscard]] bool holds(uint64_t address) const noexcept;
    };
    void note(Area area);

    uint64_t reach_ = 0;      ///< of descriptor and thread-local data, on either side of the list
    std::vector<int> tids_;   ///< of the last look
    std::vector<Area> found_; ///< by the last look
    std::vector<Area> noted_; ///< the last ones
    size_t next_noted_ = 0;
};

} // namespace tofu::sim
