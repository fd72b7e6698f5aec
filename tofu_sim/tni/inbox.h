// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: puts on their way to a process, in its segment.
//
// The poster adds an entry with the time of its arrival. The target executes the entry when its clock reaches that
// time. Another process executes it earlier if it needs the result, or is about to access the target's memory. The
// executing process has the turn, so there is one at a time, and entries are executed in the order of their keys. So a
// message needs no switch to its poster.
//
// An entry that succeeds is freed. One that fails stays until its poster has read the error. The poster finds an entry
// by its index and serial number.
#pragma once

#include "clock/figures.h"
#include "job/layout.h"
#include "tni/descriptor.h"

#include <algorithm>
#include <cstring>

namespace tofu::sim {

/// The order of entries: by time, then by rank, then by the order of posting.
struct InboxKey {
    Picoseconds when;
    uint32_t rank;
    uint64_t number;

    [[nodiscard]] bool operator<(const InboxKey& other) const noexcept
    {
        return when != other.when ? when < other.when : rank != other.rank ? rank < other.rank : number < other.number;
    }
};

enum class InboxStage : uint32_t { free = 0, write = 1, notice = 2, failed = 3 };

struct InboxEntry {
    InboxKey key; ///< of the next stage
    InboxStage stage;
    uint32_t serial;
    uint32_t poster;   ///< slot of the posting process
    int32_t error;     ///< in stage failed: UTOFU_ERR_MRQ_*
    Picoseconds noted; ///< time of the remote notice, if there is one
    Picoseconds told;  ///< time at which the poster may see an error
    uint64_t vcq_id;   ///< of the poster
    uint64_t origin;   ///< for the trace
    Descriptor d;
    static constexpr size_t entry_bytes = 4096;
    static constexpr size_t header_bytes =
        4 * sizeof(uint64_t) + sizeof(InboxKey) + 4 * sizeof(uint32_t) + sizeof(Descriptor);
    static constexpr size_t room = entry_bytes - header_bytes;
    std::byte bytes[room]; ///< of a put
};
static_assert(sizeof(InboxEntry) == InboxEntry::entry_bytes);

/// Lies in zeroed memory. Each use of an index bounds it, since a process may have been killed during a change.
class Inbox {
  public:
    [[nodiscard]] uint32_t count() const noexcept { return std::min(count_, entries); }
    [[nodiscard]] InboxEntry& entry(uint32_t index) noexcept { return entries_[index % entries]; }
    /// The index of the entry at a position in the order of keys.
    [[nodiscard]] uint32_t index_at(uint32_t position) const noexcept { return order_[position % entries] % entries; }
    [[nodiscard]] Picoseconds due() noexcept { return count() != 0 ? entry(index_at(0)).key.when : UINT64_MAX; }

    /// A free entry, or null. It belongs to the caller until add().
    [[nodiscard]] InboxEntry* allocate(uint32_t& index) noexcept
    {
        if (free_count_ != 0) {
            free_count_ = std::min(free_count_, entries) - 1;
            index = free_[free_count_] % entries;
        } else if (made_ < entries) {
            index = made_++;
        } else {
            return nullptr;
        }
        return &entries_[index];
    }
    void add(uint32_t index) noexcept
    {
        uint32_t at = count();
        const InboxKey& key = entry(index).key;
        for (; at != 0 && key < entry(index_at(at - 1)).key; at--)
            order_[at % entries] = order_[at - 1];
        order_[at % entries] = static_cast<uint16_t>(index);
        count_ = count() + 1;
    }
    void remove_first() noexcept
    {
        count_ = std::max(count(), 1u) - 1;
        std::memmove(order_, order_ + 1, count_ * sizeof order_[0]);
    }
    void free(uint32_t index) noexcept
    {
        InboxEntry& e = entry(index);
        e.stage = InboxStage::free;
        e.serial++;
        if (free_count_ < entries)
            free_[free_count_++] = static_cast<uint16_t>(index);
    }

  private:
    static constexpr uint32_t entries = 250;

    uint32_t count_;
    uint32_t free_count_;
    uint32_t made_;
    uint16_t order_[entries];
    uint16_t free_[entries];
    alignas(InboxEntry::entry_bytes) InboxEntry entries_[entries];
};
static_assert(sizeof(Inbox) <= clock_area_bytes);

/// The inbox in a mapped segment that starts at `base`. It takes the room of the table of arrivals (clock/arrivals),
/// which exact mode does not need.
[[nodiscard]] inline Inbox& segment_inbox(std::byte* base) noexcept
{
    return *reinterpret_cast<Inbox*>(base + segment_clock_offset);
}
[[nodiscard]] Inbox& own_inbox() noexcept;

struct Remote;
struct Vcq;

/// The VCQ that an instruction goes to, now. Null: there is none any more.
[[nodiscard]] Remote* target_of(const Descriptor& d) noexcept;

/// Adds an entry that allocate() has returned, and that is filled.
void add_entry(const Remote& remote, Inbox& inbox, uint32_t index) noexcept;

/// An inbox whose entries are carried out. The caller has the turn.
struct Receiver {
    Inbox& inbox;
    uint32_t process;
    Vcq* poster = nullptr; ///< null: the inbox is our own
    bool waited = false;   ///< its thread has been idle until then, and continues anyhow
};

/// The first entry's next stage.
void carry_out_first(const Receiver& to) noexcept;
/// All entries before this one.
void bring_up_to(const Receiver& to, const InboxKey& key) noexcept;

} // namespace tofu::sim
