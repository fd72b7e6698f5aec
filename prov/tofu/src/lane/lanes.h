// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lanes: messages from neighbour to neighbour through slots of the receiver's memory, and the words that they tell each
// other. Used by group, search; calls vcq, doors. Knows operations by number and signature alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "address/peers.h"
#include "lane/doors.h"
#include "local/pages.h"
#include "plan/operation.h"
#include "plan/plan.h"
#include "vcq/gates.h"
#include "vcq/vcq.h"

namespace tofu {
class TxContext;
} // namespace tofu

namespace tofu::coll {

/// Slow path.
[[nodiscard]] std::uint64_t clock_ms() noexcept;

// --- a member's slab, which its peers write: for each lane a head and slots

inline constexpr unsigned slots = 4;
/// Last in a slot; its last 8 bytes are polled, and written last (guide 6.1.3.1).
struct Tail {
    static constexpr std::size_t inline_size = 16;
    std::byte payload[inline_size]; ///< of a message that fits in
    std::uint32_t signature;        ///< of the operation (signature_of)
    std::uint32_t length;           ///< bytes; more than inline_size: at the slot's start
    std::uint32_t op;               ///< number of the operation in the group
    std::uint32_t number;           ///< of the message in the lane, from 1 on
};
static_assert(sizeof(Tail) == 32 && std::is_trivially_copyable_v<Tail>);
struct Slot {
    std::byte payload[chunk];
    Tail tail;
};
static_assert(sizeof(Slot) == 4096);
/// What a member says of itself. The later word replaces the earlier one.
enum class Word : std::uint8_t {
    none = 0,
    failed = 1, ///< the operation `op` has ended here by the error
    left = 2,   ///< closed: takes part in `op` and what follows no more
    broken = 3  ///< a member is lost, so are `op` and what follows
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
constexpr std::uint32_t op_of(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word >> 32); }
/// Positive, whatever the peer says.
constexpr int error_of(std::uint64_t word) noexcept
{
    return std::max(1, static_cast<int>(word & 0xffff));
}
/// Of Word::left: 2^this members from the peer down have left.
constexpr unsigned heard_of(std::uint64_t word) noexcept { return static_cast<unsigned>(word & 0xff); }
struct LaneArea {
    std::uint64_t taken; ///< messages that the peer has taken of those sent to it
    std::uint64_t word;  ///< the peer's word_of
    std::uint64_t probe; ///< what the peer waits in: number << 32 | signature; and who writes it learns whether we live
    std::byte unused[256 - 24];
    Slot slot[slots];

    // Acquire: what the peer has put before it. Partner: its Lanes::pay() and probe().
    [[nodiscard]] std::uint32_t returned() noexcept { return static_cast<std::uint32_t>(load(taken)); }
    [[nodiscard]] std::uint64_t said() noexcept { return load(word); }
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
static_assert(sizeof(LaneArea) == 256 + slots * 4096);

/// A member's memory for its lanes: what its peers write, and what it posts from. From before the join to behind the close.
class LaneMemory {
  public:
    /// `key`: of the member (key_of).
    LaneMemory(TxContext& tx, std::uint64_t key) noexcept : tx_(tx), key_(key) {}

    // --- without the context's lock (these take the home lock)
    /// 0 or -FI_E*.
    [[nodiscard]] int open(unsigned lanes) noexcept;
    /// What peers write goes. `quiet`: none does any more; else it is behind the end of the VCQ.
    void bury(vcq::Gates& gates, bool quiet) noexcept;
    void shut_door(bool given_up) noexcept;

    // --- under the lock
    [[nodiscard]] int register_local() noexcept;
    void deregister_local() noexcept;
    [[nodiscard]] bool buried() const noexcept { return !slab_; }
    [[nodiscard]] LaneArea& area(unsigned lane) const noexcept { return reinterpret_cast<LaneArea*>(slab_.get())[lane]; }
    /// Our copy of the slot of a message that we send.
    [[nodiscard]] Slot& staged(unsigned lane, std::uint32_t message) const noexcept
    {
        return reinterpret_cast<Slot*>(staging_.get())[lane * slots + message % slots];
    }
    [[nodiscard]] utofu_stadd_t staged_stadd(unsigned lane, std::uint32_t message) const noexcept
    {
        return staging_stadd_ + (lane * slots + message % slots) * sizeof(Slot);
    }

  private:
    TxContext& tx_;
    std::uint64_t key_;
    OwnMemory slab_;    ///< LaneArea by lane, registered with the home VCQ
    OwnMemory staging_; ///< a Slot[slots] by lane, registered with the context's VCQ
    utofu_stadd_t slab_stadd_ = 0;
    utofu_stadd_t staging_stadd_ = 0;
    bool staging_registered_ = false;
    bool door_open_ = false;
};

class Lanes;

struct Lane : vcq::Waiter {
    enum class Step : std::uint8_t {
        unknown, ///< -> known: the peer's slab was found (search.h); -> lost
        known,
        lost ///< nothing can be written there any more
    };
    Lanes* lanes = nullptr;
    Peer peer{};
    Step step = Step::unknown;
    bool half = false;      ///< the payload of message sent + 1 is posted, its tail is not
    bool owes_word = false; ///< to be told `own_word`
    bool owes_taken = false;
    std::uint8_t number = 0;
    utofu_stadd_t remote = 0; ///< our LaneArea there
    std::uint32_t sent = 0;
    std::uint32_t taken = 0;
    std::uint64_t own_word = 0;
};

/// Hears of a neighbour that can't be reached any more.
class Losses {
  public:
    virtual void lost(int err, int prov_errno) noexcept = 0;

  protected:
    ~Losses() = default;
};

/// All calls but open() under the context's lock.
class Lanes {
  public:
    Lanes(TxContext& tx, LaneMemory& memory, Losses& losses) noexcept : tx_(tx), memory_(memory), losses_(losses) {}
    /// False: no memory.
    [[nodiscard]] bool open(const Roster& roster) noexcept;
    [[nodiscard]] std::span<Lane> all() const noexcept { return {lanes_.get(), count_}; }
    /// What the peer writes here.
    [[nodiscard]] LaneArea& area(const Lane& lane) const noexcept { return memory_.area(lane.number); }
    /// A lane has something to be told.
    [[nodiscard]] bool owe() const noexcept { return owes_; }
    [[nodiscard]] bool idle() const noexcept { return in_flight_ == 0; }
    /// Number of the operation under way, 0 the barrier of the join; or of the next one.
    [[nodiscard]] std::uint32_t now() const noexcept { return now_; }
    void to_next() noexcept { now_++; }

    // --- finding the peer
    [[nodiscard]] vcq::Post get(Lane& lane, vcq::Waiter& waiter, utofu_stadd_t from, std::size_t size) noexcept;
    /// That has failed, or has come and lies here.
    [[nodiscard]] const std::byte* got(const Lane& lane) noexcept
    {
        in_flight_--;
        return memory_.staged(lane.number, 0).payload;
    }
    void found(Lane& lane, utofu_stadd_t remote) noexcept;
    void lose(Lane& lane, int err, int prov_errno) noexcept;

    // --- words
    /// To all.
    void tell(std::uint64_t word) noexcept;
    void pay_all() noexcept;
    void probe(std::uint32_t signature) noexcept;
    /// The peer takes part in the operation no more.
    [[nodiscard]] bool passed_by(const Lane& lane) const noexcept;

    // --- messages
    [[nodiscard]] bool has_room(const Lane& lane) const noexcept;
    /// Where there is room, `size` bytes of `view` from `at` on. Not done: to be called again with the same.
    [[nodiscard]] vcq::Post send(Lane& lane, const View& view, std::size_t at, std::size_t size,
                                 std::uint32_t signature) noexcept;
    enum class Head : std::uint8_t {
        none,
        there,
        later ///< so much was dropped that the rest comes in another call; or the peer was lost
    };
    [[nodiscard]] Head head(Lane& lane, Tail& tail) noexcept;
    /// False: the peer was found dead, and losses have heard of it.
    [[nodiscard]] bool take(Lane& lane) noexcept;

  private:
    [[nodiscard]] vcq::Post posted(Lane& lane, vcq::Post post) noexcept;
    [[nodiscard]] vcq::Post put_bytes(Lane& lane, const void* from, std::size_t offset, std::size_t size) noexcept;
    [[nodiscard]] bool pay(Lane& lane) noexcept;
    static void on_put(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    TxContext& tx_;
    LaneMemory& memory_;
    Losses& losses_;
    std::unique_ptr<Lane[]> lanes_;
    unsigned count_ = 0;
    unsigned in_flight_ = 0;
    std::uint32_t now_ = 0;
    bool owes_ = false;
};

} // namespace tofu::coll
