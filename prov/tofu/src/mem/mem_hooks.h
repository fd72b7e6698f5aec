// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether addresses still name the pages that were registered: what is mapped there (pages_of), whether pages of a file
// have been replaced (MemoryFile), and hooks that notice changes before they take effect (MemoryHooks, by libucm, the
// memory hooks of UCX). The registration cache asks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/system.h"

namespace tofu {

// --- What is mapped at an address of this process

/// The owner of the pages of a range.
enum class Pages : std::uint8_t {
    unknown, ///< a hole, a private view of a file, more than one file, or the kernel does not say
    own,     ///< private memory of no file, which no other process can change
    file,    ///< shared pages of one file, and perhaps pages of the kind above
};

/// The file of Pages::file, and one of its mappings.
struct MappedFile {
    std::uint64_t device = 0; ///< as st_dev
    std::uint64_t inode = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    char name[256] = ""; ///< as the kernel shows it: a path, if there is one still; empty: none, or one that is longer
};

/// Recognises private memory that has a file behind it: that of the simulator (utofu/library.h). Null: there is
/// none.
using IsPrivate = int (*)(const void* address, std::size_t size);

/// The owner of all pages of [begin, end). `file` is written for Pages::file only. Takes 0.3 us for each mapping below
/// it. A query of one mapping (PROCMAP_QUERY, Linux 6.11) would save them, once for each registration that is kept.
[[nodiscard]] Pages pages_of(std::uint64_t begin, std::uint64_t end, IsPrivate is_private, MappedFile& file) noexcept;

// --- MemoryFile: files whose pages are memory (memfd, /dev/shm, shared anonymous and System V memory), mapped by this
// process: finds whether any page of such a file may have been replaced, by any process. A mapping shows pages of a
// file. These are exchanged by cutting the file or by a hole in it: ftruncate, fallocate, madvise(MADV_REMOVE), by any
// process that has the file. The kernel notes the time of each such change in the file (st_ctime). So the pages are the
// same as long as that time is. The first store to a page by a process moves it, too, which costs a registration; later
// ones do not. Only tmpfs is known to note all three calls: files of other systems are refused.

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

    /// The time after which a change is visible. False: the last change was in this tick of the clock, so that
    /// one more in the same tick would not show. Asked again some milliseconds later it answers.
    [[nodiscard]] bool begin(ChangeTime& since) const noexcept;
    /// Is the file as it was at `since`? One system call. Any thread, while the file is open.
    [[nodiscard]] bool unchanged(ChangeTime since) const noexcept;

  private:
    [[nodiscard]] bool look(int fd, ChangeTime& changed) const noexcept;
    [[nodiscard]] bool adopt(int fd) noexcept;
    [[nodiscard]] int find_descriptor() const noexcept;

    int fd_ = -1;
    std::uint64_t device_ = 0;
    std::uint64_t inode_ = 0;
};

// --- MemoryHooks: finds out whether pages of this process have been replaced: munmap, mmap over them, brk, mremap,
// madvise and shmat are seen before they take effect. libucm.so.0 is looked up at run time; without it nothing is
// watched. It patches the functions of the C library, so that calls by other libraries and by the C library itself are
// seen. Direct system calls of a program (syscall(2)) are not: such a program has to set FI_MR_CACHE_MONITOR=disabled.
// Neither is remap_file_pages(2), which libucm does not know. Pages of a file in memory can be replaced by others that
// have the file: a MemoryFile shows that. An Open MPI in the process gets all that is seen, since its own patches
// of these functions are lost under those of libucm.

/// Names a watched range; none: no range is watched.
struct WatchTicket {
    std::uint32_t span = 0;
    std::uint32_t serial = 0; ///< 0: none
    bool later = false;       ///< of none: it may be available some milliseconds later
    explicit operator bool() const noexcept { return serial != 0; }
};

/// opal_mem_hooks_release_hook; the last argument says that the C library may call it from within malloc.
using OpenMpiRelease = void (*)(void* begin, std::size_t length, bool from_alloc);

/// There is one in a process, from the first use to its end: hooks are never removed from the C library. Any thread may
/// call it, under any lock. The hook takes no lock of the provider and allocates nothing, since a thread that changes
/// mappings may hold any lock.
class MemoryHooks {
  public:
    /// The hooks of the process; null: libucm is missing or cannot hook.
    [[nodiscard]] static MemoryHooks* get() noexcept;

    /// Watches the pages of [begin, end) from now on. None: too many ranges or files are watched, or the pages are
    /// neither private memory of this process nor shared ones of one file in memory (MemoryFile).
    [[nodiscard]] WatchTicket watch(std::uintptr_t begin, std::uintptr_t end, IsPrivate is_private) noexcept;
    /// Are all pages still those of the call of watch()? One load; of pages of a file one system call more. A change
    /// that another thread is making right now counts as made.
    [[nodiscard]] bool valid(WatchTicket ticket) const noexcept
    {
        const Span& span = spans_[ticket.span];
        return mapped(ticket) && (span.file == none || files_[span.file].file.unchanged(span.since));
    }
    /// The first half of valid(): do the addresses still name the same mapping?
    [[nodiscard]] bool mapped(WatchTicket ticket) const noexcept
    {
        // acquire: the caller sees what the hook has seen (partner: invalidate())
        return spans_[ticket.span].live.load(std::memory_order_acquire);
    }
    /// Ends a watch, valid or not. Does nothing for none.
    void unwatch(WatchTicket ticket) noexcept;

    /// The most ranges that are watched at a time.
    static constexpr unsigned span_count = 4096;
    /// The most files that they may be of.
    static constexpr unsigned file_count = 64;

  private:
    /// Written under lock_, except `live`, which the hook clears.
    struct Span {
        std::atomic<std::uint64_t> begin{0}; ///< whole pages
        std::atomic<std::uint64_t> end{0};   ///< 0: free
        std::atomic<bool> live{false};
        std::uint32_t serial = 0;
        std::uint32_t file = none; ///< of files_; this and `since` are read by the holder of the ticket
        ChangeTime since = 0;
    };
    static constexpr std::uint32_t none = ~0u;
    struct File {
        MemoryFile file;
        unsigned spans = 0; ///< 0: not open
    };

    MemoryHooks() = default;
    [[nodiscard]] bool start() noexcept;
    static void on_event(int type, void* event, void* self) noexcept;
    static void on_mremap(int type, void* event, void* self) noexcept;
    void try_mremap() noexcept;
    void invalidate(std::uint64_t begin, std::uint64_t end) noexcept;
    [[nodiscard]] bool same_from_now_on(WatchTicket& ticket, std::uint64_t begin, std::uint64_t end,
                                        IsPrivate is_private) noexcept;
    [[nodiscard]] std::uint32_t open_file(const MappedFile& mapped) noexcept;

    Mutex lock_; ///< watch() and unwatch(); never taken by the hook
    Span spans_[span_count];
    File files_[file_count];        ///< opened and closed under lock_
    std::atomic<unsigned> used_{0}; ///< entries from here on have never been used
    std::uint32_t serials_ = 0;
    OpenMpiRelease open_mpi_ = nullptr;
    std::atomic<std::byte*> tried_{nullptr}; ///< memory that try_mremap() moves; no other code moves it
    std::atomic<bool> loses_address_{true};  ///< libucm loses the address of mremap to a fixed address
};

} // namespace tofu
