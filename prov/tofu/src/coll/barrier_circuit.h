// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Barrier circuits of a group: how members are wired (Circuit), and the operations that gates carry out, with their
// words (Native). Pure: nothing here posts, waits or locks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coll/plan.h"
#include "core/containers.h"
#include "utofu/barrier_gate.h"

namespace tofu::coll {

// How the gates of a group are wired to a barrier circuit (uTofu guide 2.3.2): a tree within each node, and a
// butterfly along each axis between the first members of all nodes. Each member computes the same circuit from the
// coordinates of all members.

/// One end of a connection. `gate` is an index among the gates of the member; the start/end gate is 0.
struct GateAt {
    static constexpr unsigned none = ~0u;
    unsigned member = none;
    unsigned gate = 0;
};
/// The four ends of a gate. Signals connect gates of one member, packets those of two.
struct GatePlan {
    unsigned signal_from = GateAt::none;
    unsigned signal_to = GateAt::none;
    GateAt packet_from;
    GateAt packet_to;
};

class Circuit {
  public:
    /// The wires of one member.
    struct Wires {
        unsigned count = 0;
        GatePlan gate[64];
    };
    /// Reserves memory for `members` members. False: no memory.
    [[nodiscard]] bool reserve(std::size_t members) noexcept
    {
        return seats_.reserve(members) && place_.reserve(members);
    }
    /// Adds the next member. Members are added in the order of their ranks.
    void add(const vcq::Coords& coords) noexcept;
    /// Sorts the members after the last add(). False: no memory.
    [[nodiscard]] bool lay_out() noexcept;

    /// Computes the gates of a member. Their number may exceed Gates::most; allocating them then fails.
    void wires_of(unsigned rank, Wires& wires) const noexcept;
    /// The largest number of gates of any member.
    [[nodiscard]] unsigned most_gates() const noexcept;
    /// The index of the member among the members of its node.
    [[nodiscard]] unsigned index_in_node(unsigned rank) const noexcept { return seats_[place_[rank]].index; }
    [[nodiscard]] unsigned nodes() const noexcept { return static_cast<unsigned>(first_.size()) - 1; }

  private:
    struct MemberSlot {
        std::uint64_t key; ///< of the node; nodes are sorted by it
        std::uint32_t rank;
        std::uint32_t node;  ///< index of the node in that order
        std::uint32_t index; ///< of the member in the node, by rank
    };
    enum class ActionKind : std::uint8_t { send, join, replace };
    /// The steps of a member in a round: it sends its value, combines it with an arriving value, or replaces it by an
    /// arriving value.
    struct Action {
        ActionKind does;
        std::uint32_t peer;
    };
    struct Program {
        unsigned count = 0;
        Action action[128];
        void add(ActionKind does, std::uint32_t peer) noexcept { action[count++] = {does, peer}; }
    };
    void measure_box() noexcept;
    void between_nodes(std::uint32_t node, Program& program) const noexcept;
    void program_of(unsigned rank, Program& program) const noexcept;
    [[nodiscard]] std::uint32_t leader(std::uint32_t node) const noexcept { return seats_[first_[node]].rank; }
    static unsigned gate_of(const Program& program, unsigned peer, bool sends) noexcept;
    template <class Visit>
    static unsigned walk(const Program& program, Visit&& visit) noexcept;

    Array<MemberSlot> seats_;    ///< sorted
    Array<std::uint32_t> place_; ///< index in seats_, by rank
    Array<std::uint32_t> first_; ///< index of the first seat of each node; then the number of seats
    /// The mixed radix in which nodes are numbered, lowest digit first: six digits for a box, otherwise one.
    static constexpr unsigned axes = 6;
    std::uint32_t digits_[axes] = {1, 1, 1, 1, 1, 1};
};

// Which collectives barrier gates execute, in how many rounds, and the conversion between elements and the words of a
// round. Pure.

/// How barrier gates execute a collective.
struct GateMapping {
    enum class Form : std::uint8_t {
        none,    ///< gates do not execute it
        barrier, ///< no data
        bytes,   ///< the sum of one member's bytes and zeros of the other members
        bits,    ///< bits of integers
        truth,   ///< logical values, one bit each
        whole,   ///< integers, one word each
        order,   ///< numbers, as words that have the same order
        real     ///< doubles; two for a complex number
    };
    Form form = Form::none;
    utofu_reduce_op op = UTOFU_REDUCE_OP_BARRIER;
    std::uint16_t each = 0;   ///< bytes, elements or parts of complex elements in a round
    std::uint16_t rounds = 0; ///< 0: gates do not execute it
    std::size_t total = 0;    ///< of all rounds, in the unit of `each`

    [[nodiscard]] std::size_t at(unsigned round) const noexcept { return std::size_t{round} * each; }
    [[nodiscard]] std::size_t size(unsigned round) const noexcept
    {
        return total - at(round) < each ? total - at(round) : each;
    }
};

/// The form of a collective. Form::none: gates cannot execute it, or software is faster for this number of members.
[[nodiscard]] GateMapping gate_mapping_of(const Shape& shape, unsigned members) noexcept;

/// What a member adds to the data of a round, and finds in the result if all members have added the same. It is a hash
/// of the group, the number of the operation, the round and the call, since a packet on gates names none of these.
[[nodiscard]] std::uint32_t seal_of(std::uint64_t group, std::uint32_t operation, unsigned round,
                                    std::uint32_t signature) noexcept;
/// Fills in the operand of a round from `in` (null: this member contributes nothing). Returns the number of words or
/// doubles. Includes the seal if the operation can compare it and the data leave room.
[[nodiscard]] unsigned pack(const GateMapping& native, const Shape& shape, unsigned round, const std::byte* in,
                            std::uint32_t seal, vcq::GateData& data) noexcept;
/// Writes the result of a round to `out`, unless that is null. False: the seals of members differ. If each packet is of
/// a member, all members get the same answer.
[[nodiscard]] bool unpack(const GateMapping& native, const Shape& shape, unsigned round, std::byte* out,
                          std::uint32_t seal, unsigned members, const vcq::GateData& data) noexcept;

} // namespace tofu::coll
