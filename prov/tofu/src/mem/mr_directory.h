// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory of a domain that peers read and write, under the reserved STag `directory_stag` of its target VCQ and its
// overflow VCQs. Namespaces directory and event_pool: its layout and the checks of a reader, for the directory of
// regions, the lock words of wide atomics, the domain's nonce, overflow VCQs, and the pool of event credits. Classes
// of the owner: the directory (OwnDirectory), the endpoints that count accesses (EventCounters), and the domains that
// cache its keys (KeyReaders).
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <utofu.h>

#include "av/address.h"
#include "core/containers.h"
#include "core/system.h"
#include "cq/counter.h"
#include "mem/bounce_pool.h"
#include "utofu/vcq.h"

namespace tofu {

// --- directory: the layout (docs/wire-protocol.md, "Regions"). Only the owner writes entries, while peers may read
// them at any time. By `check` a reader recognises an entry that was half written.

namespace directory {

struct Entry {
    std::uint64_t key;
    std::uint64_t stadd_offset; ///< STADD offset: STADD of the target = offset + remote address
    std::uint64_t begin;        ///< first remote address
    std::uint64_t length;       ///< bytes
    std::uint16_t rights;       ///< right_*
    std::uint16_t vcq_number;   ///< VCQ of the STADD: the target VCQ (0), or the overflow VCQ with this number
    std::uint32_t generation;
    std::uint64_t check; ///< over all other members and the domain's nonce; 0 in an empty entry
};
static_assert(sizeof(Entry) == 48 && std::is_trivially_copyable_v<Entry>);

struct Bucket {
    static constexpr unsigned entries = 5;
    std::uint64_t next_stadd; ///< STADD of the second table, at the target VCQ; 0: none
    std::uint32_t next_log2;  ///< its number of buckets
    std::uint32_t next_check; ///< over both and the nonce
    Entry entry[entries];
};
static_assert(sizeof(Bucket) == 256 && std::is_trivially_copyable_v<Bucket>);

inline constexpr std::uint16_t right_read = 1;
inline constexpr std::uint16_t right_write = 2;
inline constexpr unsigned first_log2 = 6; ///< log2 of the number of buckets of the first table
inline constexpr unsigned max_log2 = 16;  ///< the same of the largest second table

/// A key of the provider's choice with this bit is not an STADD offset. Peers look it up like a key of the user.
inline constexpr std::uint64_t indirect_bit = std::uint64_t{1} << 63;
constexpr bool is_indirect(std::uint64_t key) noexcept
{
    return (key & indirect_bit) != 0;
}

// Behind the first table, under the same STag, lie the following parts, each behind the one before.

/// The lock words of wide atomics (atomic/wide.h).
inline constexpr std::size_t locks_offset = sizeof(Bucket) << first_log2;
inline constexpr std::size_t locks_bytes = 256;
/// The words of the domain as a whole: its nonce, and the pool of event credits (event_pool).
inline constexpr std::size_t domain_header_offset = locks_offset + locks_bytes;
inline constexpr std::size_t contacts_bytes = 256;
struct DomainHeader {
    std::uint64_t nonce; ///< of the domain
    std::uint64_t none;
};
static_assert(sizeof(DomainHeader) == 16 && std::is_trivially_copyable_v<DomainHeader>);

/// The domain's overflow VCQs (mem/mr.h), by number. Number 0 is no overflow VCQ.
inline constexpr unsigned max_overflow_vcqs = 15;
inline constexpr std::size_t overflow_lines_offset = domain_header_offset + contacts_bytes;
struct OverflowEntry {
    utofu_vcq_id_t vcq;
    std::uint64_t check; ///< over the VCQ ID, the number and the nonce; 0: there is no such overflow VCQ
};
static_assert(sizeof(OverflowEntry) == 16 && std::is_trivially_copyable_v<OverflowEntry>);
inline constexpr std::size_t overflow_lines_bytes = sizeof(OverflowEntry) * (max_overflow_vcqs + 1);
constexpr std::size_t overflow_offset(unsigned number) noexcept
{
    return overflow_lines_offset + number * sizeof(OverflowEntry);
}
/// The word to which peers post the events of operations without bytes or region: ARMWs and Gets with remote notice.
inline constexpr std::size_t event_offset = overflow_offset(0);
/// Line 0 also has the word for fences (utofu/vcq.h), which are ARMWs that change nothing.
static_assert(vcq::fence_stag == directory_stag && vcq::fence_offset == overflow_offset(0));
/// The address of the table of collective groups (coll/lanes.h), if there is one.
inline constexpr std::size_t lane_directory_word_offset = overflow_lines_offset + overflow_lines_bytes;
inline constexpr std::size_t lane_directory_word_bytes = 256;
struct LaneDirectoryEntry {
    std::uint64_t nonce; ///< of the domain
    std::uint64_t stadd; ///< of the table, at the target VCQ; 0: none yet
    std::uint64_t check; ///< over both
};
static_assert(sizeof(LaneDirectoryEntry) == 24 && std::is_trivially_copyable_v<LaneDirectoryEntry>);
/// The target VCQ of the domains that cache keys of this one, each in one of `reader_probes` slots; 0 marks an empty
/// slot (KeyReaders). A reader that finds no slot looks each key up in each call.
inline constexpr std::size_t readers_offset = lane_directory_word_offset + lane_directory_word_bytes;
inline constexpr unsigned max_readers = 4096;
inline constexpr unsigned reader_probes = 16;
inline constexpr std::size_t readers_bytes = max_readers * sizeof(utofu_vcq_id_t);
/// The epochs of the keys that this domain caches. A domain that revokes its keys adds 1 at each of its readers.
inline constexpr std::size_t epochs_offset = readers_offset + readers_bytes;
inline constexpr unsigned epochs = 32;
/// The endpoints that are open, by number: the nonce of the address, or 0. An endpoint that is open, whether it is
/// enabled or not, has its nonce there; one that has closed can post nothing any more.
inline constexpr std::size_t endpoints_offset = epochs_offset + epochs * sizeof(std::uint64_t);
inline constexpr std::size_t endpoints_bytes = 2048;
constexpr std::size_t endpoint_offset(unsigned number) noexcept
{
    return endpoints_offset + number * sizeof(std::uint64_t);
}
static_assert(endpoint_offset(max_endpoints) <= endpoints_offset + endpoints_bytes);
/// The size of all parts in bytes.
inline constexpr std::size_t area_bytes = endpoints_offset + endpoints_bytes;
static_assert(area_bytes % 256 == 0);

constexpr std::uint64_t mix(std::uint64_t x) noexcept
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}
/// The slots in which a reader enters its target VCQ.
constexpr std::size_t reader_offset(utofu_vcq_id_t reader, unsigned probe) noexcept
{
    return readers_offset + ((mix(reader) + probe) & (max_readers - 1)) * sizeof(utofu_vcq_id_t);
}
/// The offset, at each reader, of the epoch of the keys of the domain with this target VCQ. Domains with equal hashes
/// share an epoch; a reader then looks up more keys than necessary.
constexpr std::size_t epoch_offset(utofu_vcq_id_t target_vcq) noexcept
{
    return epochs_offset + mix(target_vcq) % epochs * sizeof(std::uint64_t);
}
constexpr std::uint64_t check_of_lane_directory(std::uint64_t stadd, std::uint64_t nonce) noexcept
{
    return mix(mix(stadd) + nonce) | 1;
}
/// Number of buckets in which an entry of the second table may lie. In the first table there is only choice 0.
inline constexpr unsigned choices = 2;
constexpr std::uint64_t bucket_of(std::uint64_t key, unsigned log2, unsigned choice = 0) noexcept
{
    const std::uint64_t hash = mix(key + 0x632be59bd9b4e019u);
    return (choice == 0 ? hash : hash >> 32) & ((std::uint64_t{1} << log2) - 1);
}
/// The check words of an entry, of a bucket's pointer to the second table, and of the line of an overflow VCQ, in the
/// directory of the domain with this nonce. Never 0, which marks an empty entry.
std::uint64_t check_of(const Entry& entry, std::uint64_t nonce) noexcept;
std::uint32_t check_of(std::uint64_t next_stadd, std::uint32_t next_log2, std::uint64_t nonce) noexcept;
std::uint64_t check_of_overflow(utofu_vcq_id_t vcq, unsigned number, std::uint64_t nonce) noexcept;

/// The result of a search in a bucket that was read from a peer.
enum class Found {
    entry,  ///< the entry
    absent, ///< no such entry here; search the second table if the bucket names one
    torn    ///< a half written entry, or no directory: read again, a bounded number of times
};
[[nodiscard]] Found find(const Bucket& bucket, std::uint64_t key, std::uint64_t nonce, Entry& entry) noexcept;

} // namespace directory

// --- event_pool: the word from which peers acquire credits for the events that they cause in a domain's MRQ
// (tx/event_credits.h). A reader checks each value of it (is_valid()).

/// The word of the pool: {nonce of the domain (upper half), bias + credits (lower half)}. ARMW ADDs never carry between
/// the halves, since the bias exceeds every possible number of credits and every possible debt.
namespace event_pool {

inline constexpr std::uint64_t offset =
    directory::domain_header_offset + 64; ///< of the word, under the directory's STag
static_assert(offset + 8 <= directory::domain_header_offset + directory::contacts_bytes);
inline constexpr std::int64_t bias = 1 << 30;
inline constexpr std::int64_t most_entries = 1 << 21; ///< the largest number of entries of an MRQ (guide 4.3.2.3)
/// Initiators that find too few credits make the count negative, each by a batch, until they have returned them.
inline constexpr std::int64_t most_overdrawn = 1 << 29;

constexpr std::uint64_t word(std::uint64_t nonce, std::int64_t credits) noexcept
{
    return nonce << 32 | static_cast<std::uint32_t>(bias + credits);
}
constexpr std::int64_t left(std::uint64_t word) noexcept
{
    return static_cast<std::int64_t>(word & 0xffffffff) - bias;
}
/// True if the word is the pool of the domain with this nonce and has a possible number of credits.
constexpr bool is_valid(std::uint64_t word, std::uint64_t nonce) noexcept
{
    return word >> 32 == (nonce & 0xffffffff) && left(word) <= most_entries && left(word) >= -most_overdrawn;
}
/// The initial credits of a domain: half of the entries of an MRQ (entries_of). The other half is for all other
/// notices: local ones of VCQs on the same CQ, errors, and those of peers that ignore the credits.
[[nodiscard]] std::int64_t capacity() noexcept;
/// The number of entries for a value of UTOFU_NUM_MRQ_ENTRIES (guide 4.3.2.3); 131,072 if it is null or not a number.
[[nodiscard]] std::int64_t entries_of(const char* text) noexcept;

} // namespace event_pool

// --- OwnDirectory: the owner's side. It inserts and removes entries, and refills the pool of event credits. The first
// table has 64 buckets of 256 bytes. The hash of a key selects one bucket, which a peer reads by one Get. Entries that
// do not fit there lie in a second table, each in one of two buckets. Each bucket of the first table has the address of
// the second one, which is replaced by a larger one when it is full. An entry never moves within a table, and a table
// that was replaced stays readable until the domain is closed.

class DomainBase;

/// Called under the domain's target lock, or while the domain is opened or closed.
class OwnDirectory {
  public:
    explicit OwnDirectory(DomainBase& domain) noexcept : domain_(domain) {}
    /// Registers the directory under its STag. The target VCQ is open. 0 or -FI_E*.
    [[nodiscard]] int open() noexcept;
    /// Deregisters and frees the memory. Later accesses of peers fail.
    void close() noexcept;

    /// The memory under the STag, from open() to close().
    [[nodiscard]] std::byte* area() const noexcept { return tables_[0].memory.get(); }
    template <class T>
    [[nodiscard]] T& at(std::size_t offset) const noexcept
    {
        return *reinterpret_cast<T*>(area() + offset);
    }
    /// Publishes the address of the domain's table of collective groups.
    void point_to_lane_directory(utofu_stadd_t stadd) noexcept;
    /// Shows peers that `count` numbers from `first` on belong to the endpoint with this nonce.
    void show_endpoint(unsigned first, unsigned count, std::uint64_t nonce) noexcept;
    /// Shows peers that this endpoint has closed.
    void hide_endpoint(unsigned first, unsigned count, std::uint64_t nonce) noexcept;
    /// Counts an event that was removed from the MRQ, of any region.
    void count_event() noexcept { counted_events_++; }
    /// True if the STADD lies in the word for events of operations without a region.
    [[nodiscard]] bool is_event_word(utofu_stadd_t stadd) const noexcept
    {
        return stadd - (tables_[0].stadd + directory::event_offset) < sizeof(std::uint64_t);
    }
    /// Adds to the pool one credit for each event counted since the last call (tx/event_credits.h).
    void return_credits() noexcept
    {
        if (counted_events_ != 0) [[unlikely]]
            refill_pool();
    }

    /// Inserts the entry of a region, with its generation and check. 0 or -FI_E*.
    [[nodiscard]] int publish(directory::Entry entry) noexcept;
    /// Removes the entry of this key, if there is one. Peers keep cached copies until KeyReaders::revoke().
    void withdraw(std::uint64_t key) noexcept;

  private:
    struct Table {
        OwnMemory memory;
        directory::Bucket* buckets = nullptr; ///< points into `memory`
        unsigned log2 = 0;
        utofu_stadd_t stadd = 0;
    };
    /// A free entry in the key's bucket, or in the emptier of its two buckets. Null: both are full.
    [[nodiscard]] static directory::Entry* room(const Table& table, std::uint64_t key) noexcept;
    /// The key's entry, or null.
    [[nodiscard]] static directory::Entry* find(const Table& table, std::uint64_t key) noexcept;
    static void store(directory::Entry& to, const directory::Entry& value) noexcept;
    [[nodiscard]] int grow() noexcept;
    [[nodiscard]] bool refill(const Table& from, const Table& to) noexcept;
    void point_to(const Table& second) noexcept;
    void refill_pool() noexcept;
    [[nodiscard]] int make_table(unsigned log2, Table& table) const noexcept;

    DomainBase& domain_;
    Array<Table> tables_; ///< [0] the first table; back() the second; between them tables that were replaced
    std::uint32_t generation_ = 0;
    std::uint64_t counted_events_ = 0; ///< events whose credits have not been returned to the pool yet
};

// --- EventCounters: the endpoints of a domain that count peers' accesses to its regions (FI_RMA_EVENT).

/// Counters by endpoint number. The counters of an endpoint are valid until remove().
class EventCounters {
  public:
    void add(unsigned number, const RxCounters& counters) noexcept { of_[number] = {&counters, ++last_serial_}; }
    void remove(unsigned number) noexcept
    {
        of_[number] = {};
        everything_.reset(number);
        choose();
    }
    /// The endpoint begins to count the events of regions that are bound to no endpoint.
    void count_everything(unsigned number) noexcept
    {
        everything_.set(number);
        choose();
    }
    /// A number that no other endpoint of the domain has or had. Numbers and memory of closed endpoints are reused, so
    /// they do not identify an endpoint. 0: there is no such endpoint.
    [[nodiscard]] std::uint64_t serial(unsigned number) const noexcept { return of_[number].serial; }

    /// True if an endpoint counts the events of regions that are bound to no endpoint.
    [[nodiscard]] bool any() const noexcept { return everything_.any(); }

    /// Counts an event of a region that is bound to no endpoint: once at each counter, even if several endpoints share
    /// it.
    void count(bool read) const noexcept
    {
        for (unsigned i = 0; i < chosen_[read]; i++)
            counting_[read][i]->count();
    }
    /// Counts an event of a region that is bound to one endpoint, unless that has been closed.
    void count_for(unsigned number, std::uint64_t serial, bool read) const noexcept
    {
        if (of_[number].serial == serial)
            of_[number].counters->count_remote(read);
    }

  private:
    /// Lists each counter of the endpoints in everything_ once.
    void choose() noexcept
    {
        for (const bool read : {false, true}) {
            Counter** const list = counting_[read];
            unsigned& count = chosen_[read] = 0;
            for (unsigned number = 0; number < max_endpoints; number++) {
                Counter* const counter = everything_[number] ? of_[number].counters->remote(read) : nullptr;
                if (counter != nullptr && std::find(list, list + count, counter) == list + count)
                    list[count++] = counter;
            }
        }
    }

    struct Of {
        const RxCounters* counters = nullptr;
        std::uint64_t serial = 0;
    };
    std::uint64_t last_serial_ = 0;
    Of of_[max_endpoints] = {};
    std::bitset<max_endpoints> everything_;    ///< endpoints of count_everything()
    Counter* counting_[2][max_endpoints] = {}; ///< theirs for writes, and for reads
    unsigned chosen_[2] = {};                  ///< the number of these
};

// --- KeyReaders: the domains that cache keys of this domain, and the revocation of those keys (docs/wire-protocol.md,
// "Revocation of keys"). The library may give the STADD of a closed region to a new one at once (guide 3.6 promises
// nothing else). An initiator with a cached entry of the closed region would then reach wrong bytes of the new one, and
// no TNI would refuse the access. So an initiator enters its domain into the table of readers before it caches the
// first key of a domain. The owner revokes all cached keys before it publishes a region that may have the STADD of a
// closed one.

class KeyReaders {
  public:
    explicit KeyReaders(DomainBase& domain) noexcept : domain_(domain) {}
    /// Revokes the cached keys of this domain at all readers. Returns when the TNIs of all readers have confirmed it. A
    /// reader that cannot be reached is removed. Called under the target lock, one call at a time. While it waits for
    /// longer than a round trip, other threads can take the lock.
    void revoke() noexcept;

  private:
    /// The ARMW at one reader.
    struct Revocation : vcq::CompletionHandler {
        enum class State : std::uint8_t { unused, to_post, under_way, ended };
        State state = State::unused;
        bool again = false; ///< the second post, after its slot was cleared
        int code = 0;       ///< in state ended: the uTofu code
        unsigned slot = 0;
        utofu_vcq_id_t reader = 0;
        Clock::time_point begun{}; ///< when it should be posted
    };
    static constexpr unsigned most_at_once = 64;

    [[nodiscard]] std::uint64_t& word(std::size_t offset) const noexcept;
    [[nodiscard]] Revocation& unused() noexcept;
    bool advance() noexcept;
    void wait() noexcept;
    void begin(Revocation& revocation) noexcept;
    void post(Revocation& revocation) noexcept;
    void end(Revocation& revocation) noexcept;
    void enter(utofu_vcq_id_t reader) noexcept;
    static void on_notice(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;

    DomainBase& domain_;
    Revocation revocations_[most_at_once];
    unsigned polls_ = 0; ///< of this revoke()
};

} // namespace tofu
