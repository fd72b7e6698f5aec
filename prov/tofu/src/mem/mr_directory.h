// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory of a domain that peers read and write, under the reserved STag `directory_stag` of each of its homes: the
// directory of regions, the lock words of wide atomics, contacts, annexes. Its layout, and how a reader checks it. Used
// by the owner (own_directory, annexes) and by peers (tx/keys.cc, tx/order.cc, atomic/wide.cc, message,
// ring); calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <utofu.h>

#include "av/address.h"
#include "utofu/vcq.h"

namespace tofu {

/// An entry of the directory. Only the owner writes it, with plain ordering: `check` tells whether a reader has got a
/// whole entry or a half written one (docs/wire-protocol.md, "Regions").
namespace directory {

struct Entry {
    std::uint64_t key;
    std::uint64_t bias;   ///< STADD of the target = bias + remote address
    std::uint64_t begin;  ///< first remote address
    std::uint64_t length; ///< bytes
    std::uint16_t rights; ///< right_*
    std::uint16_t home;   ///< the STADD belongs to the home VCQ (0) or to the annex of this number
    std::uint32_t generation;
    std::uint64_t check;  ///< over all other members and the domain's nonce; 0 in an empty entry
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

inline constexpr std::uint16_t right_read = 1;
inline constexpr std::uint16_t right_write = 2;
inline constexpr unsigned first_log2 = 6; ///< buckets of the first table
inline constexpr unsigned max_log2 = 16;  ///< of the second

/// A key of the provider's choice with this bit is no bias; it is looked up like a key of the user.
inline constexpr std::uint64_t listed_bit = std::uint64_t{1} << 63;
constexpr bool is_listed(std::uint64_t key) noexcept { return (key & listed_bit) != 0; }

/// After the first table, under the same STag: the lock words of wide atomics (atomic/wide.h).
inline constexpr std::size_t locks_offset = sizeof(Bucket) << first_log2;
inline constexpr std::size_t locks_bytes = 256;
/// After these, under the same STag: the words of the domain as a whole.
inline constexpr std::size_t contacts_offset = locks_offset + locks_bytes;
inline constexpr std::size_t contacts_bytes = 256;
struct Contacts {
    std::uint64_t nonce; ///< of the domain
    std::uint64_t none;
};
static_assert(sizeof(Contacts) == 16 && std::is_trivially_copyable_v<Contacts>);

/// After these, under the same STag: the domain's further VCQs (overflow_vcq.h), by number. Number 0 names no annex.
inline constexpr unsigned max_annexes = 15;
inline constexpr std::size_t annexes_offset = contacts_offset + contacts_bytes;
struct AnnexLine {
    utofu_vcq_id_t vcq;
    std::uint64_t check; ///< over the VCQ ID, the number and the nonce; 0: there is no such annex
};
static_assert(sizeof(AnnexLine) == 16 && std::is_trivially_copyable_v<AnnexLine>);
inline constexpr std::size_t annexes_bytes = sizeof(AnnexLine) * (max_annexes + 1);
constexpr std::size_t annex_offset(unsigned number) noexcept
{
    return annexes_offset + number * sizeof(AnnexLine);
}
/// There peers leave the events of operations without bytes that name no region, as ARMWs and Gets with remote notice.
inline constexpr std::size_t event_offset = annex_offset(0);
/// The place of number 0 holds the word for fences (utofu/vcq.h), which are ARMWs that change nothing.
static_assert(vcq::fence_stag == directory_stag && vcq::fence_offset == annex_offset(0));
/// After these, under the same STag: the place of the table of collective groups (coll/lanes.h), once there is one.
inline constexpr std::size_t doors_offset = annexes_offset + annexes_bytes;
inline constexpr std::size_t doors_bytes = 256;
struct DoorsLine {
    std::uint64_t nonce; ///< of the domain
    std::uint64_t stadd; ///< of the table, with the home VCQ; 0: none yet
    std::uint64_t check; ///< over both
};
static_assert(sizeof(DoorsLine) == 24 && std::is_trivially_copyable_v<DoorsLine>);
/// After these, under the same STag: the home VCQs of the domains that cache keys of this one, each in one of
/// `reader_probes` slots, 0 in an empty slot (key_readers.h). A reader that finds no slot looks each key up in each call.
inline constexpr std::size_t readers_offset = doors_offset + doors_bytes;
inline constexpr unsigned max_readers = 4096;
inline constexpr unsigned reader_probes = 16;
inline constexpr std::size_t readers_bytes = max_readers * sizeof(utofu_vcq_id_t);
/// After these, under the same STag: the epochs of the keys that this domain caches. A domain that revokes its keys adds
/// 1 at each of its readers.
inline constexpr std::size_t epochs_offset = readers_offset + readers_bytes;
inline constexpr unsigned epochs = 32;
/// The bytes of all of it.
inline constexpr std::size_t area_bytes = epochs_offset + epochs * sizeof(std::uint64_t);
static_assert(area_bytes % 256 == 0);

constexpr std::uint64_t mix(std::uint64_t x) noexcept
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}
/// The slots in which a reader enters its home VCQ.
constexpr std::size_t reader_offset(utofu_vcq_id_t reader, unsigned probe) noexcept
{
    return readers_offset + ((mix(reader) + probe) & (max_readers - 1)) * sizeof(utofu_vcq_id_t);
}
/// The epoch, at each reader, of the keys of the domain with this home VCQ. Domains with one hash share an epoch: a
/// reader then looks up more keys than it must.
constexpr std::size_t epoch_offset(utofu_vcq_id_t home) noexcept
{
    return epochs_offset + mix(home) % epochs * sizeof(std::uint64_t);
}
constexpr std::uint64_t check_of_doors(std::uint64_t stadd, std::uint64_t nonce) noexcept
{
    return mix(mix(stadd) + nonce) | 1;
}
/// The two buckets in which an entry of the second table may lie; in the first table only the first choice.
inline constexpr unsigned choices = 2;
constexpr std::uint64_t bucket_of(std::uint64_t key, unsigned log2, unsigned choice = 0) noexcept
{
    const std::uint64_t hash = mix(key + 0x632be59bd9b4e019u);
    return (choice == 0 ? hash : hash >> 32) & ((std::uint64_t{1} << log2) - 1);
}
std::uint64_t check_of(const Entry& entry, std::uint64_t nonce) noexcept;
std::uint32_t check_of(std::uint64_t next_stadd, std::uint32_t next_log2,
                       std::uint64_t nonce) noexcept;
std::uint64_t check_of_annex(utofu_vcq_id_t vcq, unsigned number, std::uint64_t nonce) noexcept;

/// What a peer finds in a bucket that it has read.
enum class Found {
    entry,  ///< the entry
    absent, ///< no such entry; look into the second table if the bucket names one
    torn    ///< a half written entry, or no directory: read again, a bounded number of times
};
[[nodiscard]] Found find(const Bucket& bucket, std::uint64_t key, std::uint64_t nonce,
                         Entry& entry) noexcept;

} // namespace directory

} // namespace tofu
