// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A file in memory that the processes of a user share on their node, and locks on its bytes, which the kernel releases
// when their holder ends (fcntl(2), open file description locks). Used by utofu/tni_allocator and av/shared_table.
#pragma once

#include <chrono>

#include <fcntl.h>
#include <sys/types.h>

namespace tofu {

/// The owner closes it; an owner that lives as long as the process leaves that to the kernel.
class NodeFile {
  public:
    NodeFile() = default;
    NodeFile(const NodeFile&) = delete;
    NodeFile& operator=(const NodeFile&) = delete;

    /// Opens the file, and makes it if it is not there. False: it can't be opened, or belongs to another user.
    [[nodiscard]] bool open(const char* path) noexcept;
    [[nodiscard]] bool is_open() const noexcept { return file_ >= 0; }
    [[nodiscard]] int descriptor() const noexcept { return file_; }
    /// True if its name is gone, or leads to another file by now.
    [[nodiscard]] bool is_removed() const noexcept;
    void remove() noexcept;
    void close() noexcept;

    /// F_RDLCK, F_WRLCK or F_UNLCK of so many bytes (0: all that follow). F_OFD_SETLK: is it done? F_OFD_GETLK: could
    /// it be had? The locks of one process do not meet each other.
    bool lock(short type, off_t from, off_t bytes, int command = F_OFD_SETLK) noexcept;
    /// The same by F_OFD_SETLK, repeated for `patience` while another process, perhaps a stopped one, has the lock.
    bool lock_within(std::chrono::milliseconds patience, short type, off_t from, off_t bytes) noexcept;

  private:
    int file_ = -1;
    char path_[64] = {};
};

} // namespace tofu
