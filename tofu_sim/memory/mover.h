// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The arena (a memfd that peers map) and the move of private anonymous pages into it, at their place. Under the lock of
// memory/registry. Uses: userfaultfd, memfd, mmap.
#pragma once

#include "job/descriptors.h"
#include "memory/advice.h"
#include "memory/vma.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

namespace tofu::sim {

class UniqueFd {
  public:
    explicit UniqueFd(int fd = -1) noexcept : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept
    {
        if (this != &other)
            reset(other.release());
        return *this;
    }
    ~UniqueFd() { reset(); }
    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] int release() noexcept
    {
        const int fd = fd_;
        fd_ = -1;
        return fd;
    }
    void reset(int fd = -1) noexcept;
    explicit operator bool() const noexcept { return fd_ >= 0; }

  private:
    int fd_;
};

/// Sparse file of fixed size, sealed. Space in it is handed out in windows: each range moved from one place has a
/// window of its own with much room behind it, because mremap may let a mapping grow into the following bytes of
/// the file, which must not be used otherwise. A window is handed out again when nothing of it is mapped any more,
/// and then a good while later.
class Arena {
  public:
    Arena();
    ~Arena() { file_.close(); }
    [[nodiscard]] bool open() noexcept;
    [[nodiscard]] int fd() const noexcept { return file_.get(); } ///< -1: the program has closed it
    [[nodiscard]] uint64_t device() const noexcept { return device_; }
    [[nodiscard]] uint64_t inode() const noexcept { return inode_; }
    /// A shared mapping of the arena, or a private one too (fork.cc).
    [[nodiscard]] bool is_mapped_by(const Vma& vma) const noexcept { return vma.shared && is_file_of(vma); }
    [[nodiscard]] bool is_file_of(const Vma& vma) const noexcept;

    /// The file offset for pages of [address, address + length), part of [whole_start, whole_end): parts of one
    /// whole that lie side by side do so in the file too. Never an offset used before. False: used up.
    [[nodiscard]] bool place(uint64_t address, uint64_t length, uint64_t whole_start, uint64_t whole_end,
                             uint64_t* offset);
    /// Releases the memory of pages that no mapping of this process shows any more, and their windows. Releases none
    /// while the program keeps on moving its mappings.
    void collect(const VmaQuery& vmas);
    [[nodiscard]] bool wants_collection() const noexcept
    {
        return placed_ > collect_at_ || used_windows_.size() > collect_windows_;
    }
    [[nodiscard]] bool empty() const noexcept { return used_windows_.empty(); }

    /// A run of moved pages is a separate mapping and divides another, and the number of mappings is limited. Beyond
    /// a share of them nothing more is moved, until a check of the mappings, once in a number of requests, finds room.
    [[nodiscard]] bool has_room(const VmaQuery& vmas);

  private:
    struct Window {
        uint64_t end;                      ///< address
        uint64_t offset;                   ///< in the file, of the window's first address
        std::map<uint64_t, uint64_t> used; ///< start → end, addresses
    };
    /// What of the file is mapped: by file offset, start → end.
    struct Shown {
        std::map<uint64_t, uint64_t> ranges;
        uint64_t bytes = 0;
        size_t runs = 0;
    };
    KeptFile file_;
    uint64_t device_ = 0;
    uint64_t inode_ = 0;
    [[nodiscard]] bool take_window(uint64_t* offset);
    [[nodiscard]] bool find_shown(const VmaQuery& vmas, Shown* shown) const;
    [[nodiscard]] bool take_shown(const std::vector<Vma>& all, Shown* shown) const;
    void punch(uint64_t start, uint64_t end) const noexcept;

    const size_t most_runs_;
    size_t runs_ = 0; ///< at most; those that the program has unmapped count until the next look
    bool full_ = false;
    size_t questions_ = 0;     ///< since the last look, being full
    uint64_t next_window_ = 0; ///< offset of the first one never used
    uint64_t placed_ = 0;      ///< bytes, unmapped ones included until the next collection
    uint64_t collect_at_ = uint64_t{64} << 20;
    size_t collect_windows_ = 256;
    std::map<uint64_t, Window> windows_; ///< by first address
    std::set<uint64_t> used_windows_;    ///< by offset
    std::deque<uint64_t> free_windows_;  ///< the one free for longest in front
};

enum class MoveStatus { moved, refused, no_memory };

class Mover {
  public:
    /// Asks the kernel for a userfaultfd of the best kind it grants.
    void open(Arena& arena, bool lock_pages) noexcept;
    ~Mover() { close(); }
    [[nodiscard]] bool available() const noexcept { return uffd_.number() >= 0; }
    [[nodiscard]] bool user_mode_only() const noexcept { return user_mode_only_; }
    void close() noexcept { uffd_.close(); }

    /// Replaces the pages of [address, address + length), all of one private anonymous readable and writable
    /// mapping, by a shared mapping of the arena at `offset` with the same bytes. Other threads that write
    /// meanwhile wait a moment; no store is lost. Must not be called for the calling thread's own stack. `advice` holds
    /// for the new mapping, too.
    [[nodiscard]] MoveStatus move(uint64_t address, uint64_t length, uint64_t offset, const Advice& advice) noexcept;

  private:
    [[nodiscard]] bool try_open(int flags, uint64_t features) noexcept;
    [[nodiscard]] bool copy_pages(int file, uint64_t address, uint64_t length, uint64_t offset) noexcept;
    KeptFile uffd_;
    const Arena* arena_ = nullptr;
    bool user_mode_only_ = false;
    bool protects_unpopulated_ = false;
    bool lock_pages_ = false;
};

} // namespace tofu::sim
