// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tells whether pages of this process are still the ones they were: unmapped, moved, discarded or replaced
// pages are noticed, whoever did it and by whatever system call. Called by registration_cache; calls the kernel.
//
// The kernel tells by userfaultfd: of pages registered with it, munmap, mmap over them, brk, mremap and
// madvise(DONTNEED, FREE) report an event, and the call does not return before the event has been read. That leaves
// a gap between the change and the reading, in which another thread may have been given the same addresses: valid()
// asks the kernel, and it refuses while an event is on its way. No page is ever protected: no access faults.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include <pthread.h>

namespace tofu {

/// Names one watched range for as long as it is kept; none: watched in vain.
struct WatchTicket {
    std::uint32_t span = 0;
    std::uint32_t serial = 0; ///< 0: none
    explicit operator bool() const noexcept { return serial != 0; }
};

/// One for the process, while somebody has it open. All calls from any thread. The thread that reads the events takes
/// no lock, so the caller may hold any, also one that others hold around munmap.
class MemoryWatch {
  public:
    /// The one of the process, or null where the kernel offers no userfaultfd with all that is needed (Linux 5.7
    /// with write-protect mode and events). Each open() that did not answer null wants a close().
    [[nodiscard]] static MemoryWatch* open() noexcept;
    static void close() noexcept;

    /// Watches the pages of [begin, end) from now on. None: not private anonymous memory throughout (a file may change
    /// under its mappings, and nobody tells), watched by others, discarded once before, or too many.
    [[nodiscard]] WatchTicket watch(std::uintptr_t begin, std::uintptr_t end) noexcept;
    /// Are they, at this moment, all the pages they were at watch()? One system call.
    [[nodiscard]] bool valid(WatchTicket ticket) noexcept;
    /// No event is being read. If so, a valid() that answered false was not disturbed by an event that is just passing.
    [[nodiscard]] bool settled() const noexcept
    {
        return (reading_.load(std::memory_order_acquire) & 1) == 0; // partner: read_events()
    }
    /// Ends a watch, also an invalid one. Overlapping watches become invalid.
    void unwatch(WatchTicket ticket) noexcept;

    MemoryWatch(const MemoryWatch&) = delete;
    MemoryWatch& operator=(const MemoryWatch&) = delete;

  private:
    enum class State : std::uint32_t {
        free,
        live, ///< -> stale: by the reader of events or by unwatch() of a neighbour; -> free: unwatch()
        stale ///< -> free: unwatch()
    };
    /// Written under slow_ but for `state`, which the reader of events changes from live to stale.
    struct Span {
        std::atomic<std::uint64_t> begin{0}; ///< whole pages
        std::atomic<std::uint64_t> end{0};
        std::atomic<State> state{State::free};
        std::uint32_t serial = 0;
    };
    /// Pages that were discarded (madvise). The event comes before the pages go, and nobody says when they have
    /// gone: such addresses are not watched again.
    struct Banned {
        std::atomic<std::uint64_t> begin{0};
        std::atomic<std::uint64_t> end{0};
    };
    static constexpr unsigned span_count = 1024;
    static constexpr unsigned ban_count = 64;

    MemoryWatch() = default;
    ~MemoryWatch();
    [[nodiscard]] bool start() noexcept;
    void read_events() noexcept;
    void handle(const void* message) noexcept;
    void invalidate(std::uint64_t begin, std::uint64_t end) noexcept;
    void ban(std::uint64_t begin, std::uint64_t end) noexcept;
    [[nodiscard]] bool banned(std::uint64_t begin, std::uint64_t end) const noexcept;
    void release(Span& span, bool registered) noexcept;
    [[nodiscard]] bool confirm(const Span& span) const noexcept;

    int uffd_ = -1;
    int stop_ = -1; ///< eventfd
    pthread_t reader_{};
    bool started_ = false;
    std::mutex slow_; ///< watch() and unwatch(); never taken by the reader of events
    Span spans_[span_count];
    unsigned next_ = 0;
    std::uint32_t serials_ = 0;
    Banned bans_[ban_count];
    std::atomic<unsigned> bans_used_{0}; ///< more than ban_count: everything is banned
    /// Odd while events are being read and handled.
    std::atomic<std::uint32_t> reading_{0};
};

} // namespace tofu
