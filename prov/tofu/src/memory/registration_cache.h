// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registrations of buffers without a region, kept from one transfer to the next while the memory is the same.
// Part of LocalMemory, under its VCQ's owner's lock; calls memory_watch and vcq.
//
// A registration names pages, a program names addresses. What is kept is therefore used only after MemoryWatch
// has said that the pages are still those that were registered; where it can't say so, nothing is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "memory/memory_watch.h"
#include "vcq/vcq.h"

namespace tofu {

class RegistrationCache {
  public:
    /// FI_TOFU_MR_CACHE: null where it says no, where nothing can be watched, or, by default, where registering costs
    /// no more than asking whether a registration is still good.
    [[nodiscard]] static std::unique_ptr<RegistrationCache> make(vcq::Vcq& vcq) noexcept;
    explicit RegistrationCache(vcq::Vcq& vcq, MemoryWatch& watch) noexcept : vcq_(vcq), watch_(watch) {}
    RegistrationCache(const RegistrationCache&) = delete;
    RegistrationCache& operator=(const RegistrationCache&) = delete;
    ~RegistrationCache();

    static constexpr unsigned none = ~0u;
    /// A number to release() and the STADD of `address`, or none: register it for this transfer.
    [[nodiscard]] unsigned acquire(std::uintptr_t address, std::size_t length, bool read_only,
                                   utofu_stadd_t& stadd) noexcept;
    void release(unsigned number) noexcept;
    /// Gives back what no transfer is using; true if there was something. For want of STADDs.
    bool trim() noexcept;

    struct Counts {
        std::uint64_t hits = 0;
        std::uint64_t kept = 0;  ///< registrations made to be kept
        std::uint64_t stale = 0; ///< found to be of other pages
    };
    [[nodiscard]] const Counts& counts() const noexcept { return counts_; }

  private:
    struct Entry {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0; ///< 0: free, or dead: goes with its last user
        utofu_stadd_t stadd = 0;
        WatchTicket ticket{};
        std::uint32_t users = 0;
        std::uint32_t used = 0; ///< when last, by clock_
        bool read_only = false;
    };
    /// A range that was registered for a transfer: worth keeping when it comes again and again.
    struct Seen {
        std::uintptr_t begin = 0;
        std::size_t length = 0;
        std::uint16_t uses = 0;
        std::uint8_t doublings = 0; ///< of the uses it takes: each time it was kept in vain
    };
    static constexpr unsigned entry_count = 64;
    static constexpr unsigned seen_count = 128;
    static constexpr unsigned uses_to_keep = 3;

    [[nodiscard]] Seen& seen(std::uintptr_t begin, std::size_t length) noexcept;
    [[nodiscard]] bool worth_keeping(std::uintptr_t begin, std::size_t length) noexcept;
    void kept_in_vain(std::uintptr_t begin, std::size_t length) noexcept;
    [[nodiscard]] unsigned keep(std::uintptr_t begin, std::size_t length, bool read_only) noexcept;
    [[nodiscard]] unsigned free_entry() noexcept;
    void outdated(Entry& entry) noexcept;
    void drop(Entry& entry) noexcept;

    vcq::Vcq& vcq_;
    MemoryWatch& watch_;
    std::uint32_t clock_ = 0;
    Counts counts_{};
    Entry entries_[entry_count];
    Seen seen_[seen_count];
};

} // namespace tofu
