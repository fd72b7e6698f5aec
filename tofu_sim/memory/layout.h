// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the memory layer keeps in shared memory: STag tables, extents, backings, the mailbox. Data only.
//
// All of it is valid when zero. Entries and backings are written by their owner alone, under its registry
// lock, and read by peers through a sequence word (odd: being changed). Only mailbox slots are written by
// peers. A reader copies, re-reads the sequence, and then checks every number against what it knows itself.
#pragma once

#include "job/layout.h"
#include "job/shared_word.h"

#include <cstddef>
#include <cstdint>

namespace tofu::sim {

// ---- STADD: (hardware STag << 40) + offset from the first page of the registration ----

inline constexpr unsigned stadd_offset_bits = 40;
inline constexpr uint64_t stadd_offset_mask = (uint64_t{1} << stadd_offset_bits) - 1;
inline constexpr uint32_t reserved_stags = 256;     ///< guide, table 6.4
inline constexpr uint32_t max_dynamic_stags = 6144; ///< live at once on one VCQ
inline constexpr uint32_t dynamic_slots = 8192;
inline constexpr uint32_t first_dynamic_stag = 0x1000;
inline constexpr uint32_t stag_slots = reserved_stags + dynamic_slots;
inline constexpr uint32_t stag_limit = 1u << 24;
inline constexpr uint32_t no_slot = ~uint32_t{0};

/// Slot of a hardware STag in the table of a VCQ with component `component`; no_slot where none can be.
/// A dynamic STag carries its slot and, above, a generation: the same slot is handed out again under another
/// STag, so an old STADD is an error for about a thousand lives of its slot.
[[nodiscard]] constexpr uint32_t slot_of_stag(uint32_t hw_stag) noexcept
{
    if (hw_stag >= stag_limit)
        return no_slot;
    if (hw_stag >= first_dynamic_stag)
        return reserved_stags + ((hw_stag - first_dynamic_stag) >> 1) % dynamic_slots;
    if (hw_stag >= 0x800)
        return hw_stag & 0xff;
    return no_slot;
}
[[nodiscard]] constexpr uint32_t reserved_hw_stag(unsigned component, uint32_t stag) noexcept
{
    return ((8 + component) << 8) + stag;
}
[[nodiscard]] constexpr uint64_t make_stadd(uint32_t hw_stag, uint64_t offset) noexcept
{
    return (uint64_t{hw_stag} << stadd_offset_bits) + offset;
}

// ---- Extents: how the bytes of a registration are reached ----

enum class Reach : uint32_t {
    none = 0,
    mapped = 1,  ///< in a backing that peers map
    movable = 2, ///< private anonymous: can be moved to the arena when a peer asks
    fixed = 3,   ///< only through the owner's address space or by the owner itself
};

/// Covers the offsets from the end of the extent before it (or the start of the registration) to `end`.
struct Extent {
    uint64_t end;         ///< offset from the first page of the registration
    uint64_t file_offset; ///< mapped: of the extent's first byte in the backing
    uint32_t backing;     ///< mapped: index in the owner's table of backings
    uint32_t reach;       ///< a Reach
    uint64_t reserved;
};
static_assert(sizeof(Extent) == 32);

inline constexpr uint32_t entry_read_only = 1;

struct alignas(apart) StagEntry {
    SharedWord<uint32_t> sequence; ///< odd: being changed
    uint32_t hw_stag;              ///< 0: free
    uint64_t page_base;            ///< owner's address of offset 0: a page's, of reserved STags any
    uint64_t first;                ///< offsets of the registered bytes: [first, limit)
    uint64_t limit;
    uint32_t flags;
    uint32_t extent_count; ///< 1: in `extent`; more: in the table's pool from extent_first
    uint32_t extent_first;
    uint32_t reach; ///< of the single extent; its file offset and backing follow
    uint64_t file_offset;
    uint32_t backing;
    uint32_t reserved;
};
static_assert(sizeof(StagEntry) == 64);

inline constexpr uint32_t extent_pool_size = 14336;
inline constexpr uint32_t max_extents = 4096; ///< of one registration

struct StagTable {
    StagEntry entries[stag_slots]; ///< reserved STags first
    Extent extents[extent_pool_size];
};
static_assert(sizeof(StagTable) <= stag_table_bytes);

// ---- Backings: memory objects of a process that peers may map ----

enum class BackingKind : uint32_t { none = 0, arena = 1, sealed = 2, unsealed = 3 };

struct alignas(apart) Backing {
    SharedWord<uint32_t> sequence; ///< odd: being changed
    uint32_t kind;                 ///< a BackingKind
    int32_t fd;                    ///< number in the owner: /proc/<pid>/fd/<fd>
    uint32_t reserved;
    uint64_t device; ///< st_dev and st_ino identify it, since another open may reuse its number
    uint64_t inode;
    uint64_t bytes; ///< size when it was entered
};
static_assert(sizeof(Backing) == 64);

inline constexpr uint32_t max_backings = 4096;             ///< [0] is the arena
inline constexpr uint64_t arena_bytes = uint64_t{1} << 56; ///< sparse, sealed against change of size

// ---- Mailbox: what a peer asks of the owner's service thread ----

/// A suggestion has no waiter: its slot is free when it has been answered.
enum class RequestKind : uint32_t { none = 0, move = 1, read = 2, write = 3, armw = 4, suggestion = 5 };

/// The phase of a slot, in its state word (memory/service.h) beside the claimant and a count, so that a claim
/// taken away from a dead requester and given to another never looks the same.
enum class SlotPhase : uint32_t { free = 0, claimed = 1, posted = 2, running = 3, done = 4, abandoned = 5 };

inline constexpr uint32_t mailbox_slots = 8;
inline constexpr uint32_t mailbox_data_bytes = 32 * 1024;

struct alignas(apart) MailboxSlot {
    SharedWord<uint64_t> state;
    SharedWord<uint32_t> answered; ///< grows with every answer; the requester waits on it
    uint32_t kind;                 ///< a RequestKind
    uint32_t vcq;                  ///< index of the target VCQ on its node
    uint32_t length;               ///< read, write: bytes in data; armw: 4 or 8
    uint64_t stadd;
    uint64_t operand;   ///< armw; move: bytes wanted
    uint64_t compare;   ///< armw: of compare-and-swap
    uint64_t old_value; ///< armw: result
    uint32_t operation; ///< armw: an ArmwOp
    uint32_t result;    ///< an AccessStatus
    std::byte data[mailbox_data_bytes];
};
static_assert(sizeof(MailboxSlot) == 64 + mailbox_data_bytes);

/// A copy through the kernel that a peer has under way (memory/announce.h).
struct alignas(apart) CopySlot {
    SharedWord<uint64_t> state; ///< as a MailboxSlot's: free, claimed, posted
    SharedWord<uint64_t> start; ///< addresses in the owner
    SharedWord<uint64_t> end;
};
static_assert(sizeof(CopySlot) == 64);
inline constexpr uint32_t copy_slots = 32;

struct ServiceArea {
    alignas(apart) SharedWord<uint32_t> bell; ///< grows with every posted request; the service thread waits on it
    SharedWord<uint32_t> heard;               ///< the last bell that the service thread has woken up to
    SharedWord<uint64_t> move_start;          ///< addresses of the pages that are being moved (memory/announce.h)
    SharedWord<uint64_t> move_end;            ///< 0: none are
    CopySlot copies[copy_slots];
    alignas(apart) Backing backings[max_backings];
    MailboxSlot slots[mailbox_slots];
};
static_assert(sizeof(ServiceArea) <= service_area_bytes);

} // namespace tofu::sim
