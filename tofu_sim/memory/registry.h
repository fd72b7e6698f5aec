// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The owner's side: what this process has registered, where those bytes are, and publishing both.
//
// One lock per process covers registration, deregistration, moves and owner-executed requests: memory is never
// touched on behalf of a peer after the call that deregistered it has returned.
#pragma once

#include "memory/memory.h"
#include "memory/mover.h"
#include "memory/page_locks.h"
#include "memory/threads.h"
#include "memory/vma.h"

#include <deque>
#include <map>
#include <mutex>
#include <pthread.h>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace tofu::sim {

inline constexpr uint64_t move_chunk_bytes = uint64_t{256} << 10; ///< a writer waits at most for one of these
/// Where system calls that write into pages being moved fail (UFFD_USER_MODE_ONLY), the moment must be short.
inline const uint64_t short_chunk_bytes = page_bytes < uint64_t{32} << 10 ? uint64_t{32} << 10 : page_bytes;

[[nodiscard]] inline uint64_t page_floor(uint64_t value) noexcept
{
    return value & ~(page_bytes - 1);
}
[[nodiscard]] inline uint64_t page_ceil(uint64_t value) noexcept
{
    return page_floor(value + page_bytes - 1);
}

struct ProcessMemory::Impl {
    std::mutex mutex;
    const pid_t pid = ::getpid(); ///< another's: inherited by a child of fork
    std::byte* segment = nullptr;
    size_t mrq_entries = 0; ///< of the segment, whose header peers can write: read once
    VmaQuery vmas;
    Arena arena;
    Mover mover;
    ThreadAreas threads;
    bool lock_pages = false;  ///< UTOFU_SWAP_PROTECT, guide 4.3.2.5
    bool reuse_stags = false; ///< the lowest free STag is given at once (TOFU_SIM_CHAOS, tags)
    PageLocks locks;          ///< empty unless lock_pages
    uint64_t main_stack = 0;  ///< an address of the first thread's stack
    std::map<std::pair<uint64_t, uint64_t>, uint32_t> backings; ///< (device, inode) → index, 0 for "has none"
    uint32_t num_backings = 1;
    std::map<unsigned, VcqMemory::Impl*> vcqs; ///< by index on the node
    /// By index on the node, kept for the next VCQ there: caches of this process name words in them.
    StagTable* own_tables[vcqs_per_node] = {};
    pthread_t service{};
    SharedWord<uint32_t>* service_started = nullptr; ///< set by the thread when it has adopted the segment
    SharedWord<uint32_t> stop{0};

    [[nodiscard]] ServiceArea& area() const noexcept
    {
        return *reinterpret_cast<ServiceArea*>(segment_service_area(segment));
    }
    [[nodiscard]] bool inherited() const noexcept { return pid != ::getpid(); }

    /// The extents of [first_page, end): false: not all of it is mapped with these rights.
    [[nodiscard]] bool classify(uint64_t first_page, uint64_t end, bool read_only, std::vector<Extent>* extents);
    /// Index of the backing of a shared mapping, entering it when it is new; 0: peers cannot map it.
    [[nodiscard]] uint32_t backing_of(const Vma& vma);
    /// Moves what is movable and needed of [address, address + length), part of [start, end). True if all of
    /// it is in the arena now.
    bool move(uint64_t address, uint64_t length, uint64_t start, uint64_t end);
    /// Every registration that overlaps [start, end) is classified and published anew.
    void republish(uint64_t start, uint64_t end) noexcept;

  private:
    [[nodiscard]] UniqueFd find_file(const Vma& vma) const;
    [[nodiscard]] uint32_t enter_backing(const Vma& vma);
    /// May the pages from `at` on be moved? *stop: until where this answer holds, at most.
    [[nodiscard]] bool is_movable(const Vma& vma, uint64_t at, uint64_t* stop);
    void append(std::vector<Extent>* extents, const Extent& extent, uint64_t start) const;
};

/// The STags of one VCQ. All members are used under the process's lock.
struct VcqMemory::Impl {
    ProcessMemory::Impl& process;
    StagTable& table;     ///< in the segment, for peers, which can write it; written here, never read
    StagTable& own_table; ///< the same in private memory: for this process
    const unsigned vcq;
    const unsigned component;

    /// Ranges registered under one STag: the one it was made for, and ranges inside it.
    struct Piece {
        uint64_t first; ///< offsets from page_base
        uint64_t limit;
        bool operator==(const Piece&) const = default;
    };
    struct Slot {
        uint32_t hw_stag = 0; ///< 0: free
        uint32_t generation = 0;
        uint64_t page_base = 0;
        bool read_only = false;
        bool reserved = false;
        uint32_t extent_first = 0; ///< run of the pool
        uint32_t extent_count = 0;
        uint32_t next_free = 0;      ///< of a free one, but for the last
        std::vector<Piece> pieces;   ///< different ranges
        std::vector<Extent> extents; ///< as published

        [[nodiscard]] Piece bounds() const noexcept; ///< of all pieces, of which there is at least one
    };
    struct Key {
        uint64_t start;
        uint64_t bytes;
        bool read_only;
        auto operator<=>(const Key&) const = default;
    };
    struct Use {
        uint32_t slot;
        uint32_t count;
    };

    std::deque<Slot> slots;    ///< grows as used; [0, reserved_stags) are the reserved ones
    std::map<Key, Use> ranges; ///< not those of reserved STags
    uint32_t first_free = 0;   ///< of free slots, the oldest; freeing needs no memory
    uint32_t last_free = 0;
    uint32_t num_free = 0;
    uint32_t live = 0;                         ///< dynamic ones
    std::map<uint32_t, uint32_t> free_extents; ///< runs of the pool: first → count
    std::vector<Extent> scratch;

    /// This, `add` and what moves throw std::bad_alloc, and have changed nothing then.
    Impl(ProcessMemory::Impl& p, StagTable& t, StagTable& own, unsigned v, unsigned c)
        : process(p), table(t), own_table(own), vcq(v), component(c)
    {
        // Entries of an earlier VCQ at this place are free, but their sequence goes on.
        free_extents.emplace(0, extent_pool_size);
        scratch.reserve(1);
    }

    [[nodiscard]] RegisterStatus add(uint64_t start, uint64_t bytes, bool read_only, uint32_t stag, uint64_t* stadd);
    [[nodiscard]] RegisterStatus remove(uint64_t stadd) noexcept;
    void remove_all() noexcept;

    /// The slot of a valid STADD with `length` bytes behind it, else why not.
    [[nodiscard]] AccessStatus look_up(uint64_t stadd, uint64_t length, bool write, Slot** slot) noexcept;
    void refresh(uint32_t index) noexcept; ///< classify and publish anew

  private:
    [[nodiscard]] bool reuse(const Key& key, uint64_t* stadd);
    [[nodiscard]] bool enter_range(const Key& key, uint32_t index) noexcept; ///< false: no memory
    [[nodiscard]] static Piece published_bounds(const StagEntry& entry) noexcept;
    [[nodiscard]] uint32_t take_slot();
    void give_slot(uint32_t index) noexcept;
    void free_slot(uint32_t index) noexcept;
    [[nodiscard]] bool lock(uint64_t start, uint64_t end) noexcept; ///< false: no memory
    void unlock(const Slot& slot, Piece piece) noexcept;
    void publish(uint32_t index) noexcept;
    static void write_entry(StagTable& to, uint32_t index, const StagEntry& next, const Slot& slot) noexcept;
    [[nodiscard]] bool take_extents(uint32_t count, uint32_t* first) noexcept;
    void give_extents(uint32_t first, uint32_t count) noexcept;
};

/// service.cc: the loop of the service thread, until impl.stop is set and the bell rung.
void run_service(ProcessMemory::Impl& impl) noexcept;

/// fork.cc: whose pages a child of fork must not share.
void set_forkable(ProcessMemory::Impl* impl) noexcept; ///< null: none

} // namespace tofu::sim
