// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The owner's side of the directory (mem/mr_directory.h): enters and removes entries, refills the pool of event
// credits. Owned by the region table, under the home lock; calls vcq.
//
// The directory lies under the reserved STag `directory_stag` of the home VCQ: 64 buckets of 256 bytes. A key
// belongs to one bucket by its hash; a peer reads that bucket by one Get. Entries that do not fit into the first
// table lie in a second one, each in one of two buckets; it grows, and each bucket of the first says where it is.
// Nothing is ever moved within a table, and a table that was replaced stays readable until the domain is closed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/containers.h"
#include "mem/mr_directory.h"
#include "mem/pages.h"

namespace tofu {

class DomainBase;

class OwnDirectory {
  public:
    explicit OwnDirectory(DomainBase& domain) noexcept : domain_(domain) {}
    /// Registers the directory under its STag; the home VCQ is open. 0 or -FI_E*.
    [[nodiscard]] int open() noexcept;
    void close() noexcept;

    /// The memory under the STag, from open() to close().
    [[nodiscard]] std::byte* area() const noexcept { return tables_[0].memory.get(); }
    /// Tells peers where the domain's table of collective groups is.
    void point_to_doors(utofu_stadd_t stadd) noexcept;
    /// Counts an event that has left the MRQ, whatever it hit.
    void count_event() noexcept { counted_events_++; }
    /// Lies the STADD in the word where peers leave events that belong to no region?
    [[nodiscard]] bool is_event_word(utofu_stadd_t stadd) const noexcept
    {
        return stadd - (tables_[0].stadd + directory::event_offset) < sizeof(std::uint64_t);
    }
    /// Gives the pool one credit for each event counted since the last call (tx/event_credits.h).
    void return_credits() noexcept
    {
        if (counted_events_ != 0) [[unlikely]]
            refill_pool();
    }

    /// Enters a region, and fills in generation and check. 0 or -FI_E*.
    [[nodiscard]] int publish(directory::Entry entry) noexcept;
    void withdraw(std::uint64_t key) noexcept;

  private:
    struct Table {
        OwnMemory memory;
        directory::Bucket* buckets = nullptr; ///< in it
        unsigned log2 = 0;
        utofu_stadd_t stadd = 0;
    };
    /// A free entry in the key's bucket, or in the emptier of its two buckets; null: both are full.
    [[nodiscard]] static directory::Entry* room(const Table& table, std::uint64_t key) noexcept;
    /// The key's entry, or null.
    [[nodiscard]] static directory::Entry* seek(const Table& table, std::uint64_t key) noexcept;
    static void store(directory::Entry& to, const directory::Entry& value) noexcept;
    [[nodiscard]] int grow() noexcept;
    [[nodiscard]] bool refill(const Table& from, const Table& to) noexcept;
    void point_to(const Table& second) noexcept;
    void refill_pool() noexcept;
    template <class T>
    [[nodiscard]] T& at(std::size_t offset) const noexcept
    {
        return *reinterpret_cast<T*>(area() + offset);
    }
    [[nodiscard]] int make_table(unsigned log2, Table& table) const noexcept;

    DomainBase& domain_;
    Array<Table> tables_; ///< [0] the first table; back() the second; between them tables that were replaced
    std::uint32_t generation_ = 0;
    std::uint64_t counted_events_ = 0; ///< events whose credits are not back in the pool yet
};

} // namespace tofu
