// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Barrier gates of the deterministic network (uTofu guide 2.3, 3.4, 3.8): packets between gates under way, and what a
// gate does with those of another circuit, which the guide leaves open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include <utofu.h>

#include "dice.h"

namespace swarm {

class BarrierGates {
  public:
    /// A group chooses among TNIs by its key, which depends on the job's name: with more than one no run is repeated.
    static constexpr unsigned tnis = 1, words = 6, reals = 3;

    explicit BarrierGates(Dice& dice) noexcept : dice_(dice) {}
    /// Gates of a TNI, a third of them start/end gates; 0: the network has none.
    struct Relaxations {
        bool reuse; ///< gates that were freed are given again, at once
        bool late;  ///< packets may take long
        bool any;   ///< a gate that is set takes packets of any gate, until close_off()
    };
    void equip(unsigned gates_of_tni, const Relaxations& relaxations);
    [[nodiscard]] bool exist() const noexcept { return relays_ != 0; }

    // --- The functions of uTofu. A close makes progress for all processes, so the caller matters in alloc() only.
    [[nodiscard]] int alloc(unsigned process, unsigned node, unsigned tni, std::size_t count, utofu_vbg_id_t* ids);
    [[nodiscard]] int free(const utofu_vbg_id_t* ids, std::size_t count);
    [[nodiscard]] int set(const utofu_vbg_setting* settings, std::size_t count);
    /// `data`: `count` words of 8 bytes, of the kind that the operation has.
    [[nodiscard]] int start(utofu_vbg_id_t id, utofu_reduce_op op, const void* data, std::size_t count);
    /// `op`: one of the kind that is polled.
    [[nodiscard]] int poll(utofu_vbg_id_t id, utofu_reduce_op op, void* data);
    /// False: no such gate.
    [[nodiscard]] static bool place_of(utofu_vbg_id_t id, unsigned& node, unsigned& tni, unsigned& number) noexcept;

    // --- The network.
    [[nodiscard]] std::size_t under_way() const noexcept { return flights_.size(); }
    /// A packet arrives.
    void step();
    /// From here on a gate that is set takes packets of its source only: a process has ended that others may send to.
    void close_off() noexcept { relaxations_.any = false; }
    /// The system frees the gates of a process. Its packets under way arrive, or are lost.
    void kill(unsigned process);

  private:
    /// What a packet or a signal carries.
    struct Load {
        int op = UTOFU_REDUCE_OP_BARRIER;
        bool mismatch = false;
        unsigned count = 0;
        std::uint64_t word[words] = {};
    };
    struct Flight {
        utofu_vbg_id_t from, to;
        Load load;
        unsigned wait; ///< steps that it takes more
    };
    struct Gate {
        bool taken = false, set = false, first = false;
        bool started = false; ///< a round, of which the program has not seen the end
        bool ended = false;   ///< and it has ended
        unsigned process = 0;
        utofu_vbg_setting wires{};
        utofu_reduce_op op = UTOFU_REDUCE_OP_BARRIER;
        unsigned count = 0;
        Load result;
        std::deque<Load> packets, signals; ///< which have arrived
    };

    static void combine(Load& into, const Load& other) noexcept;
    [[nodiscard]] Gate* find(utofu_vbg_id_t id);
    [[nodiscard]] Gate* of(utofu_vbg_id_t id);
    void release(Gate& gate);
    void land(utofu_vbg_id_t gate);
    void clear(Gate& gate);
    void arrive(const Flight& flight);
    void send(const Gate& gate, const Load& load);
    void advance(utofu_vbg_id_t id);

    Dice& dice_;
    unsigned starts_ = 0, relays_ = 0;
    Relaxations relaxations_{};
    std::vector<Gate> gates_;     ///< by node, TNI and number
    std::vector<Flight> flights_; ///< in the order in which they were sent
    unsigned next_ = 0;           ///< where the search for free gates begins, if they are not reused at once
};

} // namespace swarm
