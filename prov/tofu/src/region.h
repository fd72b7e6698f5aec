// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The regions of a domain, and the directory in which peers find those that have a key of the user's choice.
// Called by the domain (operations table of fi_mr, home notices) and by region.cc's shims; calls vcq.
//
// The directory lies under the reserved STag `directory_stag` of the home VCQ: 64 buckets of 256 bytes. A key
// belongs to one bucket by its hash; a peer reads that bucket by one Get. Entries that do not fit into the first
// table lie in a second one, which grows; each bucket of the first says where it is. Nothing is ever moved
// within a table, and a table that was replaced stays readable until the domain is closed.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include <rdma/fi_domain.h>

#include "lock.h"
#include "mr.h"
#include "vcq/vcq.h"

namespace tofu {

class Domain;

/// What peers read. Every word is written by the owner alone, with plain ordering: `check` tells an entry read
/// whole from one caught half written (docs/wire-protocol.md, "Regions").
namespace directory {

struct Entry {
    std::uint64_t key;
    std::uint64_t bias;   ///< STADD of the target = bias + remote address
    std::uint64_t begin;  ///< first remote address
    std::uint64_t length; ///< bytes
    std::uint32_t rights; ///< right_*
    std::uint32_t generation;
    std::uint64_t check;  ///< over all the others and the domain's nonce; 0 in an empty entry
};
static_assert(sizeof(Entry) == 48 && std::is_trivially_copyable_v<Entry>);

struct Bucket {
    static constexpr unsigned entries = 5;
    std::uint64_t next_stadd; ///< second table, with the home VCQ; 0: none
    std::uint32_t next_log2;  ///< its number of buckets
    std::uint32_t next_check; ///< over both and the nonce
    Entry entry[entries];
};
static_assert(sizeof(Bucket) == 256 && std::is_trivially_copyable_v<Bucket>);

inline constexpr std::uint32_t right_read = 1;
inline constexpr std::uint32_t right_write = 2;
inline constexpr unsigned first_log2 = 6; ///< buckets of the first table
inline constexpr unsigned max_log2 = 18;
/// Behind the first table, under the same STag: the lock words of wide atomics (atomic_wide.h).
inline constexpr std::size_t locks_offset = sizeof(Bucket) << first_log2;
inline constexpr std::size_t locks_bytes = 256;
/// Behind these, under the same STag, what peers ask of the domain as a whole.
inline constexpr std::size_t contacts_offset = locks_offset + locks_bytes;
inline constexpr std::size_t contacts_bytes = 256;
struct Contacts {
    std::uint64_t nonce;  ///< of the domain
    std::uint64_t claims; ///< claims on rings of peers whose HELLO may not have arrived yet (proto/contact.cc)
};
static_assert(sizeof(Contacts) == 16 && std::is_trivially_copyable_v<Contacts>);

constexpr std::uint64_t mix(std::uint64_t x) noexcept
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}
constexpr std::uint64_t bucket_of(std::uint64_t key, unsigned log2) noexcept
{
    return mix(key + 0x632be59bd9b4e019u) & ((std::uint64_t{1} << log2) - 1);
}
std::uint64_t check_of(const Entry& entry, std::uint64_t nonce) noexcept;
std::uint32_t check_of(std::uint64_t next_stadd, std::uint32_t next_log2,
                       std::uint64_t nonce) noexcept;

/// What a peer makes of a bucket that it has read.
enum class Found {
    entry,  ///< here it is
    absent, ///< not here; look into the second table if the bucket names one
    torn    ///< caught half written, or not a directory: read again, a bounded number of times
};
[[nodiscard]] Found find(const Bucket& bucket, std::uint64_t key, std::uint64_t nonce,
                         Entry& entry) noexcept;

} // namespace directory

/// The regions of one domain. Locks itself by the domain's home lock (slow path all of it).
class RegionTable {
  public:
    explicit RegionTable(Domain& domain) noexcept;
    ~RegionTable();
    /// Puts the directory under its STag; the home VCQ is open. 0 or -FI_E*.
    [[nodiscard]] int open() noexcept;
    /// Before the home VCQ is closed. All regions are closed by then.
    void close() noexcept;

    /// A notice of the home VCQ that is not of a message area: counts the remote events of the region (and
    /// of endpoints) that it hit. Under the home lock.
    void remote_event(const vcq::RemoteNotice& notice) noexcept;

    /// Contacts::claims, counted by the domain's endpoints under their own locks. Valid from open() to close().
    [[nodiscard]] std::atomic_ref<std::uint64_t> claims() const noexcept;

    /// Every LocalMemory of the domain whose registrations end with a region's (fi_close of a region).
    void attach(LocalMemory& memory, Lock& lock);
    void detach(LocalMemory& memory) noexcept;

    [[nodiscard]] std::size_t size() const noexcept { return regions_; }

    static RegionTable& of(const MemoryRegion& region) noexcept;

    // --- calls of the tables of fi_mr (region.cc)
    int reg(const fi_mr_attr& attr, std::uint64_t flags, fid_mr** mr) noexcept;
    int bind(MemoryRegion& region, struct fid* object, std::uint64_t flags) noexcept;
    int close(MemoryRegion& region) noexcept;

  private:
    struct Table {
        directory::Bucket* buckets = nullptr;
        std::size_t bytes = 0;
        unsigned log2 = 0;
        utofu_stadd_t stadd = 0;
    };
    struct User {
        LocalMemory* memory;
        Lock* lock;
    };
    [[nodiscard]] int reach(MemoryRegion& region) noexcept;
    [[nodiscard]] int publish(MemoryRegion& region) noexcept;
    void withdraw(const MemoryRegion& region) noexcept;
    /// A free entry of the key's bucket, or null.
    [[nodiscard]] static directory::Entry* room(const Table& table, std::uint64_t key) noexcept;
    /// The key's entry in its bucket, or null.
    [[nodiscard]] static directory::Entry* seek(const Table& table, std::uint64_t key) noexcept;
    [[nodiscard]] int grow() noexcept;
    [[nodiscard]] bool refill(const Table& from, const Table& to) noexcept;
    void point_to(const Table& second) noexcept;
    [[nodiscard]] directory::Contacts* contacts() const noexcept;
    [[nodiscard]] int make_table(unsigned log2, Table& table) const noexcept;
    static void store(directory::Entry& to, const directory::Entry& value) noexcept;
    [[nodiscard]] std::uint64_t bias_of(const MemoryRegion& region) const noexcept;

    Domain& domain_;
    std::vector<Table> tables_; ///< [0] the first; back() the second; between them those replaced
    std::unordered_map<std::uint64_t, MemoryRegion*> by_key_; ///< keys of the user
    std::multimap<utofu_stadd_t, MemoryRegion*> by_stadd_;    ///< those that peers may reach
    std::vector<User> users_;
    Lock users_lock_;
    std::uint64_t next_serial_ = 1;
    std::uint32_t generation_ = 0;
    std::size_t regions_ = 0;
};

/// The operations tables that the domain hands out for memory regions.
extern fi_ops_mr region_ops;

} // namespace tofu
