// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Barrier circuits of a group: how members are wired, and the operations that gates carry out, with their words.
// Pure. Used by groups as they join and by their operations; calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coll/plan.h"
#include "core/containers.h"
#include "utofu/barrier_gate.h"

namespace tofu::coll {

// How the gates of a group are wired to a barrier circuit (uTofu guide 2.3.2): a tree within each node, and a
// butterfly along each axis between the first members of all nodes. Pure: each member computes the same circuit from
// the members' places.

/// One end of a connection. `gate` of a member counts its own, the start/end gate is 0.
struct GateAt {
    static constexpr unsigned none = ~0u;
    unsigned member = none;
    unsigned gate = 0;
};
/// The four ends of a gate; signals stay with the member.
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
    /// Makes room for so many members. False: no memory.
    [[nodiscard]] bool reserve(std::size_t members) noexcept;
    /// Adds the next member, by rank.
    void add(const vcq::Coords& coords) noexcept;
    /// Sorts the members, when all have been added. False: no memory.
    [[nodiscard]] bool lay() noexcept;

    /// The number of gates of a member. More than Gates::most are not to be had.
    void wires_of(unsigned rank, Wires& wires) const noexcept;
    /// The gates of the member that has most.
    [[nodiscard]] unsigned most_gates() const noexcept;
    /// The number of the member among the members of its node.
    [[nodiscard]] unsigned index_in_node(unsigned rank) const noexcept { return seats_[place_[rank]].index; }
    [[nodiscard]] unsigned nodes() const noexcept { return static_cast<unsigned>(first_.size()) - 1; }

  private:
    struct Seat {
        std::uint64_t key; ///< of the node: the order of nodes
        std::uint32_t rank;
        std::uint32_t node;  ///< by that order
        std::uint32_t index; ///< in the node, by rank
    };
    enum class Does : std::uint8_t { send, join, replace };
    /// What a member does in a round, step by step: sends its value, combines it with one that arrives, or replaces it
    /// by one that arrives.
    struct Action {
        Does does;
        std::uint32_t peer;
    };
    struct Program {
        unsigned count = 0;
        Action action[128];
        void add(Does does, std::uint32_t peer) noexcept { action[count++] = {does, peer}; }
    };
    void measure_box() noexcept;
    void between_nodes(std::uint32_t node, Program& program) const noexcept;
    void program_of(unsigned rank, Program& program) const noexcept;
    [[nodiscard]] std::uint32_t leader(std::uint32_t node) const noexcept { return seats_[first_[node]].rank; }
    static unsigned gate_of(const Program& program, unsigned peer, bool sends) noexcept;
    template <class Visit>
    static unsigned walk(const Program& program, Visit&& visit) noexcept;

    Array<Seat> seats_;          ///< sorted
    Array<std::uint32_t> place_; ///< in seats_, by rank
    Array<std::uint32_t> first_; ///< first seat of each node, and the number of seats
    /// Nodes are numbered by these digits, the lowest first: one for each axis of a box, or one for all.
    static constexpr unsigned axes = 6;
    std::uint32_t digits_[axes] = {1, 1, 1, 1, 1, 1};
};

// Which collectives barrier gates carry out, in how many rounds, and how elements become the words of a round and
// come back. Pure.

/// How a collective goes over gates.
struct Native {
    enum class Form : std::uint8_t {
        none,    ///< not over gates
        barrier, ///< no data
        bytes,   ///< the sum of one member's bytes and the others' zeros
        bits,    ///< integers, by their bits
        truth,   ///< logical values, a bit each
        whole,   ///< integers, a word each
        order,   ///< numbers as words of the same order
        real     ///< as doubles; complex ones as two
    };
    Form form = Form::none;
    utofu_reduce_op op = UTOFU_REDUCE_OP_BARRIER;
    std::uint16_t each = 0;   ///< bytes or elements of a round; parts of complex elements
    std::uint16_t rounds = 0; ///< 0: not over gates
    std::size_t total = 0;    ///< in the same unit

    [[nodiscard]] std::size_t at(unsigned round) const noexcept { return std::size_t{round} * each; }
    [[nodiscard]] std::size_t size(unsigned round) const noexcept
    {
        return total - at(round) < each ? total - at(round) : each;
    }
};

/// The form of a collective; Form::none where gates can't do it, or software is faster among so many members.
[[nodiscard]] Native native_of(const Shape& shape, unsigned members) noexcept;

/// Fills in the operand of a round from `in` (null: this member contributes nothing), and returns the number of words
/// or doubles. Where the operation can compare it, and leaves room, the signature goes along.
[[nodiscard]] unsigned pack(const Native& native, const Shape& shape, unsigned round, const std::byte* in,
                            std::uint32_t signature, vcq::GateData& data) noexcept;
/// Writes the result of a round to `out`, unless that is null. False, at all members: their signatures differ.
[[nodiscard]] bool unpack(const Native& native, const Shape& shape, unsigned round, std::byte* out,
                          std::uint32_t signature, unsigned members, const vcq::GateData& data) noexcept;

} // namespace tofu::coll
