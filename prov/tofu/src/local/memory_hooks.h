// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tells whether pages of this process are still the ones they were: munmap, mmap over them, brk, mremap, madvise and
// shmat are noticed before they do anything. Called by registration_cache; calls libucm (UCX's memory hooks) and the
// kernel.
//
// libucm.so.0 is looked up at run time; without it nothing is watched. It patches the functions of the C library, so
// that calls by other libraries and by the C library itself are seen. A program that calls the kernel by itself
// (syscall(2)) is not: such a program says FI_MR_CACHE_MONITOR=disabled.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace tofu {

/// Names one watched range for as long as it is kept; none: nobody watches.
struct WatchTicket {
    std::uint32_t span = 0;
    std::uint32_t serial = 0; ///< 0: none
    explicit operator bool() const noexcept { return serial != 0; }
};

/// One for the process, from the first use to the end of the process: hooks are never taken out of the C library. All
/// calls from any thread, under any lock. The hook takes no lock of ours and allocates nothing, for whoever changes the
/// mappings may hold every lock there is.
class MemoryHooks {
  public:
    /// The one of the process, or null where libucm is not there or can't hook.
    [[nodiscard]] static MemoryHooks* get() noexcept;

    /// Watches the pages of [begin, end) from now on. None: too many, or not private memory of this process alone
    /// throughout (a file may change under its mappings, and nobody tells).
    [[nodiscard]] WatchTicket watch(std::uintptr_t begin, std::uintptr_t end) noexcept;
    /// Are they all the pages they were at watch()? One load. A change that another thread is making at this moment
    /// counts as made.
    [[nodiscard]] bool valid(WatchTicket ticket) const noexcept
    {
        // acquire: what the hook has seen, the caller sees (partner: invalidate())
        return spans_[ticket.span].live.load(std::memory_order_acquire);
    }
    /// Ends a watch, also an invalid one. Nothing happens for none.
    void unwatch(WatchTicket ticket) noexcept;

    /// At most so many ranges at a time.
    static constexpr unsigned span_count = 4096;

    MemoryHooks(const MemoryHooks&) = delete;
    MemoryHooks& operator=(const MemoryHooks&) = delete;

  private:
    /// Written under lock_ but for `live`, which the hook clears.
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
    std::atomic<unsigned> used_{0}; ///< spans from here on have never been used
    std::uint32_t serials_ = 0;
    std::atomic<std::byte*> tried_{nullptr}; ///< what try_mremap() moves; it is mapped, so nobody else moves it
    std::atomic<bool> loses_address_{true};  ///< libucm, of mremap to a fixed address
};

} // namespace tofu
