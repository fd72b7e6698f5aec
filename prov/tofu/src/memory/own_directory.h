// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The owner's side of what peers read of a domain (memory/directory.h): entries go in and out, the pool of events is
// refilled. Owned by the region table, under the home lock; calls vcq.
//
// The directory lies under the reserved STag `directory_stag` of the home VCQ: 64 buckets of 256 bytes. A key
// belongs to one bucket by its hash; a peer reads that bucket by one Get. Entries that do not fit into the first
// table lie in a second one, each in one of two buckets; it grows, and each bucket of the first says where it is.
// Nothing is ever moved within a table, and a table that was replaced stays readable until the domain is closed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "local/pages.h"
#include "memory/directory.h"
#include "provider/array.h"

namespace tofu {

class DomainBase;

class OwnDirectory {
  public:
    explicit OwnDirectory(DomainBase& domain) noexcept : domain_(domain) {}
    /// Puts it under its STag; the home VCQ is open. 0 or -FI_E*.
    [[nodiscard]] int open() noexcept;
    void close() noexcept;

    /// All under the STag, from open() to close().
    [[nodiscard]] std::byte* area() const noexcept { return tables_[0].memory.get(); }
    /// The domain's table of collective groups is there for peers.
    void point_to_doors(utofu_stadd_t stadd) noexcept;
    /// An event has left the MRQ, whatever it hit.
    void count_event() noexcept { counted_events_++; }
    /// Puts back into the pool what the events counted since the last time have cost (remote/event_credits.h).
    void return_credits() noexcept
    {
        if (counted_events_ != 0) [[unlikely]]
            refill_pool();
    }

    /// Enters a region: generation and check are filled in here. 0 or -FI_E*.
    [[nodiscard]] int publish(directory::Entry entry) noexcept;
    void withdraw(std::uint64_t key) noexcept;

  private:
    struct Table {
        OwnMemory memory;
        directory::Bucket* buckets = nullptr; ///< in it
        unsigned log2 = 0;
        utofu_stadd_t stadd = 0;
    };
    /// A free entry of the key's bucket, of two of them in the emptier one, or null.
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
    Array<Table> tables_; ///< [0] the first; back() the second; between them those replaced
    std::uint32_t generation_ = 0;
    std::uint64_t counted_events_ = 0; ///< not yet back in the pool
};

} // namespace tofu
