// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Files whose pages are memory (memfd, /dev/shm, shared anonymous and System V memory), mapped by this process: tells
// whether any page of such a file may have been replaced, by whatever process. Called by memory_hooks; calls the
// kernel.
//
// A mapping shows pages of a file. These are exchanged by cutting the file or by a hole in it: ftruncate, fallocate,
// madvise(MADV_REMOVE), by any process that has the file. The kernel notes the time of each such change in the file
// (st_ctime). So the pages are the same as long as that time is. The first store to a page by a process moves it, too,
// which costs a registration; later ones do not. Only tmpfs is known to note all three calls: files of other systems
// are refused.
#pragma once

#include <cstdint>

#include "mem/mapping.h"

namespace tofu {

/// When a file was last changed, nanoseconds.
using ChangeTime = std::int64_t;

/// A file that is kept open for the question. Its owner sees to it that open() and close() are alone.
class MemoryFile {
  public:
    MemoryFile() = default;
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    /// False: not a file in memory, or this process may not open it (memory that has no name and no descriptor of this
    /// process is opened by its mapping, for which Linux wants CAP_CHECKPOINT_RESTORE).
    [[nodiscard]] bool open(const MappedFile& mapped) noexcept;
    void close() noexcept;
    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
    [[nodiscard]] bool is(const MappedFile& mapped) const noexcept
    {
        return is_open() && device_ == mapped.device && inode_ == mapped.inode;
    }

    /// The time from which on a later change can be told. False: the last change was in this tick of the clock, so that
    /// one more in the same tick would not show. Asked again some milliseconds later it answers.
    [[nodiscard]] bool begin(ChangeTime& since) const noexcept;
    /// Is the file as it was at `since`? One system call. Any thread, while the file is open.
    [[nodiscard]] bool unchanged(ChangeTime since) const noexcept;

  private:
    [[nodiscard]] bool look(int fd, ChangeTime& changed) const noexcept;
    [[nodiscard]] bool take(int fd) noexcept;
    [[nodiscard]] int find_descriptor() const noexcept;

    int fd_ = -1;
    std::uint64_t device_ = 0;
    std::uint64_t inode_ = 0;
};

} // namespace tofu
