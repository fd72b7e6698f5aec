// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tells whether pages of this process have been replaced: munmap, mmap over them, brk, mremap, madvise and shmat are
// noticed before they take effect. Called by registration_cache; calls libucm (UCX's memory hooks) and the kernel.
//
// libucm.so.0 is looked up at run time; without it nothing is watched. It patches the functions of the C library, so
// that calls by other libraries and by the C library itself are seen. Direct system calls of a program (syscall(2)) are
// not: such a program has to set FI_MR_CACHE_MONITOR=disabled.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace tofu {

/// Names a watched range; none: no range is watched.
struct WatchTicket {
    std::uint32_t span = 0;
    std::uint32_t serial = 0; ///< 0: none
    explicit operator bool() const noexcept { return serial != 0; }
};

/// There is one in a process, from the first use to its end: hooks are never removed from the C library. Any thread may
/// call it, under any lock. The hook takes no lock of ours and allocates nothing, since a thread that changes mappings
/// may hold any lock.
class MemoryHooks {
  public:
    /// The hooks of the process; null: libucm is not there or can't hook.
    [[nodiscard]] static MemoryHooks* get() noexcept;

    /// Watches the pages of [begin, end) from now on. None: too many ranges are watched, or not all of it is private
    /// memory of this process (a file may change under its mappings unnoticed).
    [[nodiscard]] WatchTicket watch(std::uintptr_t begin, std::uintptr_t end) noexcept;
    /// Are all pages still those of the call of watch()? One load. A change that another thread is making right now
    /// counts as made.
    [[nodiscard]] bool valid(WatchTicket ticket) const noexcept
    {
        // acquire: the caller sees what the hook has seen (partner: invalidate())
        return spans_[ticket.span].live.load(std::memory_order_acquire);
    }
    /// Ends a watch, valid or not. Does nothing for none.
    void unwatch(WatchTicket ticket) noexcept;

    /// The most ranges that are watched at a time.
    static constexpr unsigned span_count = 4096;

    MemoryHooks(const MemoryHooks&) = delete;
    MemoryHooks& operator=(const MemoryHooks&) = delete;

  private:
    /// Written under lock_, except `live`, which the hook clears.
    struct Span {
        std::atomic<std::uint64_t> begin{0}; ///< whole pages
        std::atomic<std::uint64_t> end{0};   ///< 0: free
        std::atomic<bool> live{false};
        std::uint32_t serial = 0;
    };

    MemoryHooks() = default;
    [[nodiscard]] bool start() noexcept;
    static void on_event(int type, void* event, void* self) noexcept;
    static void on_mremap(int type, void* event, void* self) noexcept;
    void try_mremap() noexcept;
    void invalidate(std::uint64_t begin, std::uint64_t end) noexcept;

    std::mutex lock_; ///< watch() and unwatch(); never taken by the hook
    Span spans_[span_count];
    std::atomic<unsigned> used_{0}; ///< entries from here on have never been used
    std::uint32_t serials_ = 0;
    std::atomic<std::byte*> tried_{nullptr}; ///< memory that try_mremap() moves; no other code moves it
    std::atomic<bool> loses_address_{true};  ///< libucm loses the address of mremap to a fixed address
};

} // namespace tofu
