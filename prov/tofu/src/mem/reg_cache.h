// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registrations of buffers without a region, kept from one transfer to the next while the memory is the same. Part of
// LocalMemory (mem/local_buffer.h), under the lock of its VCQ's owner.
//
// A registration names pages, a program names addresses. So a kept registration is used only while MemoryHooks says
// that the pages are still those that were registered; otherwise nothing is kept. The limits are those of
// libfabric (fi_mr(3), "Memory Registration Cache"), for each VCQ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "mem/mem_hooks.h"
#include "utofu/vcq.h"

namespace tofu {

class RegistrationCache {
  public:
    struct Limits {
        std::size_t count = 256;             ///< FI_MR_CACHE_MAX_COUNT; 0: no cache
        std::size_t bytes = ~std::size_t{0}; ///< FI_MR_CACHE_MAX_SIZE
    };
    /// Hooks into the C library, unless FI_TOFU_MR_CACHE or FI_MR_CACHE_MONITOR disables it. Called by fi_domain(),
    /// before the provider's threads run, and those of most programs: libucm replaces code, and a thread that is in
    /// that code, such as munmap(2), would return into the middle of other instructions.
    static void prepare() noexcept;
    /// Makes a cache. Null: the environment says no, or nothing can be watched.
    [[nodiscard]] static std::unique_ptr<RegistrationCache> make(vcq::Vcq& vcq) noexcept;
    /// Makes a cache with these limits, whatever the environment says. Null: no memory.
    [[nodiscard]] static std::unique_ptr<RegistrationCache> make(vcq::Vcq& vcq, MemoryHooks& hooks,
                                                                 Limits limits) noexcept;
    ~RegistrationCache();

    static constexpr unsigned none = ~0u, busy = none - 1;
    /// A number for release() and the STADD of `address`; none: the caller registers the buffer for this transfer;
    /// busy: it tries again later, since a transfer under way holds pages that have been replaced.
    [[nodiscard]] unsigned acquire(std::uintptr_t address, std::size_t length, bool read_only,
                                   utofu_stadd_t& stadd) noexcept;
    void release(unsigned number) noexcept;
    /// Ends the registrations that no transfer uses, when STADDs have run out. True if there were some.
    bool trim() noexcept;

    struct Counts {
        std::uint64_t hits = 0;
        std::uint64_t kept = 0;  ///< registrations made to be kept
        std::uint64_t stale = 0; ///< registrations whose pages had been replaced
    };
    [[nodiscard]] const Counts& counts() const noexcept { return counts_; }

  private:
    struct Entry {
        std::uintptr_t begin = 0;
        std::size_t length = 0; ///< 0: free
        utofu_stadd_t stadd = 0;
        WatchTicket ticket{};
        std::uint32_t users = 0;
        std::uint32_t used = 0; ///< last use, by clock_
        bool read_only = false;
        bool dead = false; ///< its pages have been replaced; its last user frees it
    };
    /// A range that was registered for a transfer; it is worth keeping if it comes again and again.
    struct Seen {
        std::uintptr_t begin = 0;
        std::size_t length = 0;
        std::uint16_t uses = 0;
        std::uint8_t doublings = 0; ///< of the uses needed to be kept: one for each time it was kept without a use
        bool is_written = false;    ///< a transfer has written it, as the next one may that finds it in the cache
    };
    static constexpr unsigned seen_count = 128;
    static constexpr unsigned uses_to_keep = 3;
    static constexpr int most_doublings = 8;

    RegistrationCache(vcq::Vcq& vcq, MemoryHooks& hooks, Limits limits, std::unique_ptr<Entry[]> entries) noexcept
        : vcq_(vcq), hooks_(hooks), limits_(limits), entries_(std::move(entries))
    {
    }
    [[nodiscard]] Seen& seen(std::uintptr_t begin, std::size_t length) noexcept;
    [[nodiscard]] bool worth_keeping(Seen& s) noexcept;
    static void count_unused(Seen& s, int most = most_doublings) noexcept;
    void drop_replaced() noexcept;
    [[nodiscard]] unsigned keep(std::uintptr_t begin, std::size_t length, bool read_only) noexcept;
    [[nodiscard]] unsigned free_entry(std::size_t length) noexcept;
    void outdated(Entry& entry) noexcept;
    void drop(Entry& entry) noexcept;

    vcq::Vcq& vcq_;
    MemoryHooks& hooks_;
    const Limits limits_;
    std::size_t bytes_ = 0; ///< of all entries
    std::uint32_t clock_ = 0;
    Counts counts_{};
    const std::unique_ptr<Entry[]> entries_; ///< limits_.count of them
    unsigned used_ = 0;                      ///< entries from here on have never been used
    Seen seen_[seen_count];
};

} // namespace tofu
