// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages and words between neighbours in a collective group (lanes), the announcement of a member's memory, by
// which its neighbours find it, and the search for their memory. An operation is only a number and a signature here.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

#include <utofu.h>

#include "av/peer_table.h"
#include "coll/plan.h"
#include "coll/slab_store.h"
#include "core/containers.h"
#include "mem/bounce_pool.h"
#include "mem/mr_directory.h"
#include "utofu/barrier_gate.h"
#include "utofu/vcq.h"

namespace tofu {
class DomainBase;
class TxContext;
} // namespace tofu

namespace tofu::coll {

class Group;

/// The members of a group by rank, and the rank of this member.
struct Roster {
    Array<Peer> members;
    unsigned rank = 0;
    [[nodiscard]] unsigned size() const noexcept { return static_cast<unsigned>(members.size()); }
};

// --- LaneDirectory: the table by which the members of a group find each other's memory. It lists the groups that a
// domain's endpoints have joined; peers read it by Get (docs/wire-protocol.md, "Collective groups").

/// An entry: one group of one endpoint. Only the owner writes it. By `check` a reader recognises an incomplete entry.
struct LaneEntry {
    std::uint64_t key;   ///< of the group and of the member (key_of)
    std::uint64_t stadd; ///< of the member's slab, at the target VCQ
    std::uint64_t check; ///< over the others and the domain's nonce; `free`; `hidden`
    std::uint64_t state; ///< `open` or `given_up`
    static constexpr std::uint64_t free = 0;
    static constexpr std::uint64_t hidden = 2; ///< the entry is in use, and readers do not see it
    static constexpr std::uint64_t open = 0;
    static constexpr std::uint64_t given_up = 1; ///< the member has left before the join ended
};
struct LaneRow {
    static constexpr unsigned entries = 8;
    LaneEntry entry[entries];
};
static_assert(sizeof(LaneRow) == 256 && std::is_trivially_copyable_v<LaneRow>);
inline constexpr unsigned directory_rows = 256;
/// Number of rows in which an entry may lie, from the row of its key on.
inline constexpr unsigned directory_probes = 8;
constexpr std::uint64_t lane_row_offset(std::uint64_t key, unsigned choice) noexcept
{
    return (key + choice) % directory_rows * sizeof(LaneRow);
}
constexpr std::uint64_t check_of(const LaneEntry& entry, std::uint64_t nonce) noexcept
{
    return directory::mix(directory::mix(directory::mix(entry.key ^ nonce) + entry.stadd) + entry.state) | 1;
}

/// All calls acquire the target lock.
class LaneDirectory {
  public:
    explicit LaneDirectory(DomainBase& domain) noexcept : domain_(domain), slabs_(domain) {}
    /// Allocates the memory that a member's peers write, and an entry, which is hidden. 0 or -FI_E* (-FI_ENOSPC: too
    /// many groups).
    [[nodiscard]] int open(std::uint64_t key, unsigned cells, Slab& slab) noexcept;
    /// Shows the entry of a member, in this state. Peers that find it write to the member's slab.
    void show(std::uint64_t key, std::uint64_t state) noexcept;
    /// Removes the entry of a member, if there is one.
    void remove(std::uint64_t key) noexcept;
    /// Releases the memory and the gates. `quiet`: no peer writes there any more. Otherwise the memory is not used
    /// again. `keep`: the gates stay until the domain is closed, since a late packet would reach the next group's
    /// gates.
    void release(const Slab& slab, vcq::Gates& gates, bool keep, bool quiet) noexcept;
    /// Deregisters all memory and frees the gates. Called before the target VCQ is closed. The destructor, which runs
    /// after that, frees the memory.
    void close() noexcept;

  private:
    [[nodiscard]] int make() noexcept;
    [[nodiscard]] LaneEntry* find(std::uint64_t key, bool free) noexcept;

    DomainBase& domain_;
    OwnMemory table_;
    utofu_stadd_t stadd_ = 0;
    SlabStore slabs_;
    Array<vcq::Gates> left_; ///< packets may still come to them
};

// --- Lanes: messages between neighbours through slots of the receiver's memory, and the words by which neighbours
// report their state.

/// Slow path.
[[nodiscard]] std::uint64_t clock_ms() noexcept;

// --- The slab of a member, which its peers write: a head and slots for each lane.

/// The end of a slot. Its last 8 bytes are written last (guide 6.1.3.1); the receiver polls them.
struct Tail {
    static constexpr std::size_t inline_size = schedule::payload_in_tail;
    std::byte payload[inline_size]; ///< of a message that fits here
    std::uint32_t signature;        ///< of the operation (signature_of)
    std::uint32_t length;           ///< bytes; if more than inline_size, the payload is at the slot's start
    std::uint32_t op;               ///< number of the operation in the group
    std::uint32_t number;           ///< of the message in the lane, from 1 on
};
static_assert(sizeof(Tail) == schedule::tail_bytes && std::is_trivially_copyable_v<Tail>);
struct Slot {
    std::byte payload[chunk];
    Tail tail;
};
static_assert(sizeof(Slot) == schedule::slot_bytes);
/// The word by which a member reports its state. A later word replaces an earlier one.
enum class Word : std::uint8_t {
    none = 0,
    failed = 1, ///< operation `op` has failed here with the error
    left = 2,   ///< the member has closed the group: it takes no part in `op` and later operations
    broken = 3  ///< a member is lost: `op` and all later operations fail
};
constexpr std::uint64_t word_of(Word word, std::uint32_t op, int err) noexcept
{
    return std::uint64_t{op} << 32 | static_cast<std::uint64_t>(word) << 24 | (static_cast<unsigned>(err) & 0xffffffu);
}
constexpr Word kind_of(std::uint64_t word) noexcept
{
    const auto kind = static_cast<unsigned>(word >> 24 & 0xff);
    return kind > static_cast<unsigned>(Word::broken) ? Word::broken : static_cast<Word>(kind);
}
constexpr std::uint32_t op_of(std::uint64_t word) noexcept
{
    return static_cast<std::uint32_t>(word >> 32);
}
/// The error in a word; always positive, since a peer may write any value.
constexpr int error_of(std::uint64_t word) noexcept
{
    return std::max(1, static_cast<int>(word & 0xffff));
}
/// In a Word::left: 2^this members from the peer down have left; or GateRounds::given_up.
constexpr unsigned left_log2_of(std::uint64_t word) noexcept
{
    return static_cast<unsigned>(word & 0xff);
}
struct LaneArea {
    std::uint64_t taken; ///< number of our messages that the peer has consumed
    std::uint64_t word;  ///< the peer's word_of
    std::uint64_t probe; ///< what the peer waits for: number of the operation << 32 | signature
    std::byte unused[256 - 24];
    Slot slot[slots];

    // Acquire: earlier Puts of the peer are visible. Partner: its Lanes::flush() and probe().
    [[nodiscard]] std::uint32_t returned() noexcept { return static_cast<std::uint32_t>(load(taken)); }
    [[nodiscard]] std::uint64_t state_word() noexcept { return load(word); }
    [[nodiscard]] std::uint64_t awaited() noexcept { return load(probe); }
    [[nodiscard]] const std::byte* payload_of(const Tail& tail) const noexcept
    {
        return tail.length > Tail::inline_size ? slot[tail.number % slots].payload : tail.payload;
    }

  private:
    static std::uint64_t load(std::uint64_t& from) noexcept
    {
        return std::atomic_ref(from).load(std::memory_order_acquire);
    }
};
static_assert(sizeof(LaneArea) == SlabStore::cell_size && sizeof(Slot) * slots + 256 == sizeof(LaneArea));

class Lanes;

struct Lane : vcq::CompletionHandler {
    enum class Step : std::uint8_t {
        unknown, ///< -> known: the peer's slab was found; -> lost
        known,
        lost ///< the peer can be written to no more
    };
    Lanes* lanes = nullptr;
    Peer peer{};
    Step step = Step::unknown;
    bool half = false;      ///< the payload of message `sent + 1` is posted, but not the end of its slot
    bool owes_word = false; ///< `own_word` has to be put to the peer
    bool owes_taken = false;
    bool may_be_written = true; ///< the peer may write to our area, unless it has left
    std::uint8_t number = 0;
    utofu_stadd_t remote = 0; ///< our LaneArea in the peer's slab
    std::uint32_t sent = 0;
    std::uint32_t taken = 0;
    std::uint64_t own_word = 0;
};

/// The lanes of a member, and their memory: the slab, which peers write, and the staging memory, from which the member
/// posts. The memory exists from before the join until after the close.
class Lanes {
  public:
    /// `key`: of the member (key_of). `group`: notified of neighbours that have become unreachable (Group::lost).
    Lanes(TxContext& tx, std::uint64_t key, Group& group) noexcept : tx_(tx), key_(key), group_(group) {}

    // --- Called without the context's lock, since they acquire the target lock.
    /// 0 or -FI_E*.
    [[nodiscard]] int open(const Roster& roster) noexcept;
    /// Lets the neighbours find the memory that they write.
    void show(std::uint64_t state) noexcept;
    /// All neighbours have found it.
    void hide() noexcept;
    /// Releases the memory that peers write. `quiet`: no peer writes any more; otherwise the VCQ has been freed.
    void destroy(vcq::Gates& gates, bool keep, bool quiet) noexcept;

    // --- Called under the context's lock, as all that follow.
    [[nodiscard]] int register_local() noexcept;
    void deregister_local() noexcept;
    [[nodiscard]] std::span<Lane> all() const noexcept { return {lanes_.get(), count_}; }
    /// The memory of the lane that the peer writes.
    [[nodiscard]] LaneArea& area(const Lane& lane) const noexcept
    {
        return reinterpret_cast<LaneArea*>(slab_.base)[lane.number];
    }
    /// True if words or counts wait to be put to peers.
    [[nodiscard]] bool owe() const noexcept { return owes_; }
    [[nodiscard]] bool idle() const noexcept { return in_flight_ == 0; }
    /// The number of the operation under way, or of the next one. Number 0 is the first vote of the join.
    [[nodiscard]] std::uint32_t current_op() const noexcept { return op_; }
    void to_next() noexcept { op_++; }

    // --- For the search of the peer.
    [[nodiscard]] vcq::Post get(Lane& lane, vcq::CompletionHandler& handler, utofu_stadd_t from,
                                std::size_t size) noexcept;
    /// Called when a get() has ended. Returns the address of its bytes, which are valid unless it has failed.
    [[nodiscard]] const std::byte* got(const Lane& lane) noexcept
    {
        in_flight_--;
        return staged(lane.number, 0).payload;
    }
    /// Reads the nonce of the endpoint that has the member's number now. One at a time.
    [[nodiscard]] vcq::Post probe(const Peer& member, vcq::CompletionHandler& handler) noexcept;
    /// Reads bytes of a member, at most a LaneRow. One at a time, probe() included.
    [[nodiscard]] vcq::Post read(const Peer& member, vcq::CompletionHandler& handler, utofu_stadd_t from,
                                 std::size_t size) noexcept;
    /// A probe() has ended. FI_E*: the member is gone, with its process or without it. 0: its endpoint is open.
    [[nodiscard]] int answer_of(const Peer& member, vcq::Notice notice) noexcept;
    /// A probe() or a read() has ended: what it has read, unless it has failed.
    template <class Line>
    [[nodiscard]] Line answer() noexcept
    {
        static_assert(sizeof(Line) <= sizeof(LaneRow));
        in_flight_--;
        Line entry;
        std::memcpy(&entry, staged(count_, 0).payload, sizeof(entry));
        return entry;
    }
    void found(Lane& lane, utofu_stadd_t remote) noexcept;
    /// A neighbour has left before the join ended. It lives, and has to hear that this member has left, too.
    void given_up() noexcept;
    /// The neighbour is dead.
    void fail(Lane& lane, int err, int prov_errno) noexcept;
    /// True if the peer does not write to our area any more: it is dead, or its word says that it has left. It repeats
    /// that word while it hears of others; the last one has `all` (left_log2_of) or more.
    [[nodiscard]] bool is_quiet(const Lane& lane, unsigned all) const noexcept
    {
        const std::uint64_t word = area(lane).state_word();
        return !lane.may_be_written || (kind_of(word) == Word::left && left_log2_of(word) >= all);
    }

    // --- Words.
    /// Puts a word to all neighbours.
    void write_word(std::uint64_t word) noexcept;
    void flush_all() noexcept;
    void probe(std::uint32_t signature) noexcept;
    /// True if the peer does not take part in the operation any more.
    [[nodiscard]] bool passed_by(const Lane& lane) const noexcept;

    // --- Messages.
    [[nodiscard]] bool has_room(const Lane& lane) const noexcept;
    /// Sends `size` bytes of `view` from `at` on; requires has_room(). Busy: call again with the same arguments.
    [[nodiscard]] vcq::Post send(Lane& lane, const View& view, std::size_t at, std::size_t size,
                                 std::uint32_t signature) noexcept;
    enum class Head : std::uint8_t {
        none,
        there,
        later ///< many messages were dropped, and another call continues; or the peer was lost
    };
    [[nodiscard]] Head head(Lane& lane, Tail& tail) noexcept;
    /// Consumes the message at the head. False: the peer was found dead, and the group has been notified.
    [[nodiscard]] bool accept(Lane& lane) noexcept;

  private:
    [[nodiscard]] vcq::Post posted(Lane& lane, vcq::Post post) noexcept;
    [[nodiscard]] vcq::Post put_bytes(Lane& lane, const void* from, std::size_t offset, std::size_t size) noexcept;
    [[nodiscard]] bool flush(Lane& lane) noexcept;
    static void on_put(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    /// Our copy of the slot of a message that we send. The TNI reads it. Behind the copies of all lanes an answer
    /// lands.
    [[nodiscard]] Slot& staged(unsigned lane, std::uint32_t message) const noexcept
    {
        return reinterpret_cast<Slot*>(staging_.get())[lane * slots + message % slots];
    }
    [[nodiscard]] utofu_stadd_t staged_stadd(unsigned lane, std::uint32_t message) const noexcept
    {
        return staging_stadd_ + (lane * slots + message % slots) * sizeof(Slot);
    }

    TxContext& tx_;
    std::uint64_t key_;
    Group& group_;
    Slab slab_;         ///< LaneArea by lane
    OwnMemory staging_; ///< a Slot[slots] by lane, and an answer; registered with the context's VCQ
    utofu_stadd_t staging_stadd_ = 0;
    bool staging_registered_ = false;
    std::unique_ptr<Lane[]> lanes_;
    unsigned count_ = 0;
    unsigned in_flight_ = 0;
    std::uint32_t op_ = 0;
    bool owes_ = false;
};

// --- Search: finds the memory of the members that this one has lanes to (docs/wire-protocol.md, "Collective groups").

/// The key of a member of the group with this key.
inline std::uint64_t key_of(std::uint64_t group, unsigned member) noexcept
{
    return directory::mix(group + member);
}

/// All functions but open() are called under the context's lock.
class Search {
  public:
    /// `group`: its key.
    Search(TxContext& tx, Lanes& lanes, std::uint64_t group) noexcept : tx_(tx), lanes_(lanes), group_(group) {}
    /// False: no memory.
    [[nodiscard]] bool open(const Roster& roster) noexcept;
    /// True if the search for all peers has ended. A member that has left continues to search, since it has to notify
    /// them.
    [[nodiscard]] bool over() const noexcept { return unknown_ == 0; }
    /// Polls once for each peer that is still unknown.
    void progress() noexcept;
    /// Called until all have called. A peer that gives up its join says so to those that it has found, and marks its
    /// entry for others. It may do both after this member has read the entry, and close its endpoint before it finds
    /// this member, or die. So the entries of peers that were found are read again, one at a time.
    void read_again() noexcept;

  private:
    struct Query;
    static constexpr std::uint64_t again_after_ms = 20;
    struct Again : vcq::CompletionHandler {
        Search* search = nullptr;
        bool reading = false;
        bool asks = false;     ///< the next read, or the one under way, asks whether the peer's endpoint is open
        unsigned lane = 0;     ///< whose entry was read last
        std::uint64_t due = 0; ///< time of the next read; 0: none has been planned yet
    };
    static void on_read_again(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    [[nodiscard]] const LaneEntry* entry_of(const Query& query, const LaneRow& row) const noexcept;
    /// The search for one peer: reads the entry of its domain's directory, then rows of the table that the entry names.
    /// While there is no entry, asks from time to time whether the peer's endpoint is open.
    struct Query : vcq::CompletionHandler {
        Search* search = nullptr;
        Lane* lane = nullptr;
        bool reading = false;
        bool asks = false;       ///< the next read, or the one under way, asks whether the peer's endpoint is open
        std::uint64_t asked = 0; ///< when that was asked last
        unsigned choice = 0;     ///< row of the peer's table to read next
        std::uint64_t key = 0;   ///< of the peer's entry there
        std::uint64_t due = 0;   ///< time of the next read (clock_ms)
        utofu_stadd_t table = 0; ///< the peer's table; 0: not known yet
    };
    void query(Query& query) noexcept;
    void on_row(Query& query, const std::byte* at) noexcept;
    void on_missing(Query& query) noexcept;
    void fail(Query& query, int err, int prov_errno) noexcept;
    static void on_read(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;

    TxContext& tx_;
    Lanes& lanes_;
    std::uint64_t group_;
    std::unique_ptr<Query[]> queries_;
    unsigned unknown_ = 0; ///< lanes whose peer has not been found yet
    Again again_;
};

} // namespace tofu::coll
