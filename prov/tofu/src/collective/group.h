// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One endpoint's membership in a collective group: how the members find each other, the lanes between them, and the
// operations, one after the other. Made and driven by engine.cc under the context's lock; calls plan, vcq, doors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "address/peers.h"
#include "collective/doors.h"
#include "collective/plan.h"
#include "gates/circuit.h"
#include "gates/native.h"
#include "local/pages.h"
#include "provider/array.h"
#include "transfer/request.h"
#include "vcq/gates.h"
#include "vcq/vcq.h"

namespace tofu {
class EventQueue;
class TxContext;
} // namespace tofu

namespace tofu::coll {

class Collectives;

inline constexpr unsigned polls_per_look = 64; ///< of gates between two looks at everybody's words
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
};
static_assert(sizeof(LaneArea) == 256 + slots * 4096);

/// A collective under way or waiting: by a plan, or over gates.
struct CollectiveOp : Request {
    CollectiveOp* next = nullptr;
    Plan plan;
    Shape shape;
    Native native; ///< no rounds: by the plan
    const void* in = nullptr;
    void* out = nullptr;
    unsigned round = 0; ///< of the gates
    std::uint32_t signature = 0;
};

class Group final : public fid_mc {
  public:
    /// Why there is a group: who, and where the end of the join is told.
    struct Join {
        EventQueue* events;
        std::uint64_t key; ///< of the group; members have keys that follow from it
        unsigned rank;
        void* context;
    };
    Group(Collectives& engine, TxContext& tx, const Join& join) noexcept;
    ~Group();
    static Group& of(fid_mc* mc) noexcept { return *static_cast<Group*>(mc); }

    // --- before and behind its life, without the context's lock (these take the home lock)
    /// `members` by rank. 0 or -FI_E*.
    [[nodiscard]] int open(Array<Peer>&& members) noexcept;
    /// The slab goes. `quiet`: gone(); else it is behind the end of the VCQ.
    void bury(bool quiet) noexcept;
    void shut_door(bool given_up) noexcept;

    // --- under the lock
    [[nodiscard]] int register_local() noexcept;
    void deregister_local() noexcept;
    /// One round of whatever is under way.
    void progress() noexcept;
    /// progress() has something to do.
    [[nodiscard]] bool busy() const noexcept
    {
        return first_ != nullptr || owes_ || unknown_ != 0 || state_ == State::joining || waits_for_leaves();
    }
    /// Takes an operation. 0, or -FI_ENOMEM and it has not.
    [[nodiscard]] int submit(CollectiveOp& op) noexcept;
    /// fi_close: what is under way is cancelled, the others are told.
    void leave() noexcept;
    [[nodiscard]] bool leaving() const noexcept { return state_ == State::left; }
    /// Nothing of ours is under way, and no peer writes here any more.
    [[nodiscard]] bool gone() const noexcept;
    [[nodiscard]] bool idle() const noexcept { return in_flight_ == 0; }
    /// Operations can be called, even if all they do is fail.
    [[nodiscard]] bool joined() const noexcept { return state_ == State::joined || state_ == State::broken; }
    [[nodiscard]] unsigned rank() const noexcept { return join_.rank; }
    [[nodiscard]] unsigned size() const noexcept { return static_cast<unsigned>(members_.size()); }
    [[nodiscard]] const Peer& member(unsigned rank) const noexcept { return members_[rank]; }
    [[nodiscard]] Collectives& engine() noexcept { return engine_; }
    [[nodiscard]] TxContext& tx() noexcept { return tx_; }

    Group* next = nullptr;      ///< in the engine's list of all
    Group* next_busy = nullptr; ///< and of those that are polled
    bool listed_busy = false;

  private:
    enum class State : std::uint8_t {
        joining, ///< -> joined: all have called; -> broken: one is lost or has given up; -> left
        joined,  ///< -> broken; -> left
        broken,  ///< every operation fails; -> left
        left     ///< the end: until gone()
    };
    struct Lane : vcq::Waiter {
        enum class Step : std::uint8_t {
            asking, ///< -> door: the peer's table is known
            door,   ///< reads rows -> known: the peer's slab; pauses between
            known,
            lost    ///< nothing can be written there any more
        };
        Group* group = nullptr;
        Peer peer{};
        Step step = Step::asking;
        bool reading = false;
        bool half = false;          ///< the payload of message sent + 1 is posted, its tail is not
        bool owes_word = false;     ///< to be told `own_word_`
        bool owes_taken = false;
        std::uint8_t number = 0;
        unsigned choice = 0;        ///< row of the peer's table to look at next
        std::uint64_t due = 0;      ///< of the next look (engine's time)
        utofu_stadd_t door = 0;     ///< the peer's table
        utofu_stadd_t remote = 0;   ///< our LaneArea there
        std::uint32_t sent = 0;
        std::uint32_t taken = 0;
        std::uint64_t own_word = 0;
    };
    [[nodiscard]] LaneArea& area(const Lane& lane) const noexcept;
    [[nodiscard]] Slot& staged(const Lane& lane, std::uint32_t number) const noexcept;
    [[nodiscard]] utofu_stadd_t staged_stadd(const Lane& lane, std::uint32_t number) const noexcept;
    [[nodiscard]] std::uint64_t word_from(const Lane& lane) const noexcept;
    [[nodiscard]] std::uint64_t key_of(unsigned member) const noexcept;

    // joining
    void find_members() noexcept;
    void begin_opening() noexcept;
    void lose(Lane& lane, int err, int prov_errno) noexcept;
    void look(Lane& lane) noexcept;
    void looked(Lane& lane, int code) noexcept;
    void end_opening(int err, int prov_errno) noexcept;
    void end_join(int err, int prov_errno) noexcept;
    static void on_read(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    static void on_put(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    // lanes
    [[nodiscard]] vcq::Post put_bytes(Lane& lane, const void* from, std::size_t offset, std::size_t size) noexcept;
    [[nodiscard]] bool pay(Lane& lane) noexcept;
    void pay_all() noexcept;
    void probe() noexcept;
    [[nodiscard]] bool contradicts(Lane& lane) noexcept;
    [[nodiscard]] bool passed_by(const Lane& lane) const noexcept;
    [[nodiscard]] bool send_some(Transfer& t, bool& moved) noexcept;
    [[nodiscard]] bool receive_some(Transfer& t, bool& moved) noexcept;
    enum class Head : std::uint8_t {
        none,
        there,
        later ///< so much was dropped that the rest comes in another call
    };
    [[nodiscard]] Head head(Lane& lane, Tail& tail) noexcept;
    void take(Lane& lane) noexcept;

    // gates
    [[nodiscard]] int take_gates() noexcept;
    [[nodiscard]] bool wire() noexcept;
    [[nodiscard]] bool step_over_gates() noexcept;
    void retire_gates() noexcept;
    [[nodiscard]] bool overtaken() const noexcept;
    [[nodiscard]] bool waits_for_leaves() const noexcept
    {
        return state_ == State::left && gates_.count() != 0 && (broken_err_ == 0 || broken_err_ == FI_ESHUTDOWN);
    }
    void hear_leaves() noexcept;

    // operations
    void append(CollectiveOp& op) noexcept;
    CollectiveOp& pop() noexcept;
    void end_first(int err, int prov_errno) noexcept;
    void run() noexcept;
    void wait(unsigned per_look) noexcept;
    [[nodiscard]] bool all_agree() noexcept;
    void fail(int err, int prov_errno) noexcept;
    void break_up(int err, int prov_errno) noexcept;
    void tell(Word word, std::uint32_t op, int err) noexcept;

    Collectives& engine_;
    TxContext& tx_;
    Join join_;
    State state_ = State::joining;
    bool owes_ = false; ///< a lane has something to be told
    bool begun_ = false; ///< round_ belongs to first_
    bool door_open_ = false;
    unsigned lane_count_ = 0;
    unsigned unknown_ = 0; ///< lanes whose peer is still looked for: even by who has left, for it has to be told
    unsigned in_flight_ = 0;
    unsigned in_vain_ = 0;    ///< rounds since something moved
    std::uint64_t probed_ = 0; ///< when
    int broken_err_ = 0;
    int broken_code_ = 0;
    std::uint32_t now_ = 0; ///< number of first_, 0 the barrier of the join; or of the next operation
    CollectiveOp* first_ = nullptr;
    CollectiveOp** end_ = &first_;
    CollectiveOp opening_; ///< what ends the join
    /// What is agreed on by the operations that end it.
    enum class Opening : std::uint8_t {
        asks,     ///< -> tells: all have gates; -> over: somebody has none
        tells,    ///< everybody's gates -> confirms
        confirms, ///< -> over: the circuit is there, or somebody's could not be wired
        over
    };
    Opening stage_ = Opening::asks;
    bool over_gates_ = false;   ///< operations that gates can do go over them
    unsigned overtaken_ = 0;    ///< probes since a neighbour was first seen behind the operation
    unsigned heard_ = 0;        ///< of 2^heard_ members from this one down that all have left
    std::uint64_t agreed_ = 0;  ///< by all, in the stages that ask
    unsigned width_ = 0;        ///< gates of the member that has most
    vcq::Gates gates_;
    std::unique_ptr<Circuit> circuit_;       ///< until the join ends
    std::unique_ptr<utofu_vbg_id_t[]> row_;  ///< our gates, `width_`; until then, likewise
    std::unique_ptr<utofu_vbg_id_t[]> rows_; ///< everybody's
    Array<Peer> members_;
    std::unique_ptr<Lane[]> lanes_;
    OwnMemory slab_;      ///< LaneArea by lane, registered with the home VCQ
    OwnMemory staging_;   ///< a Slot[slots] by lane, registered with the context's VCQ
    utofu_stadd_t slab_stadd_ = 0;
    utofu_stadd_t staging_stadd_ = 0;
    bool staging_registered_ = false;
    Round round_;
};

} // namespace tofu::coll
