// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When an instruction gets where: what it occupies on its way, and for how long (docs/time-model.md).
#pragma once

#include "clock/calendar.h"
#include "clock/credit.h"
#include "topology/route.h"

#include <cstddef>
#include <vector>

namespace tofu::sim {

/// The calendars of a node.
struct NodeCalendars {
    Calendar out[6]; ///< of a TNI: what it sends
    Calendar in[6];
    Calendar ports[ports_per_node]; ///< what leaves the node there
    Credit credit[ports_per_node][virtual_channels];
};

/// A route, looked up once.
struct Way {
    uint32_t from = 0;
    uint32_t to = 0;
    std::vector<Link> links;
    std::vector<Link> back; ///< answers return over the same cables (guide 2.4)
};

/// What the model needs to know of an instruction.
struct Transit {
    enum class Kind : uint8_t { put, piggyback, get, armw };
    Kind kind = Kind::put;
    uint8_t gap = 0;  ///< in eighths of a packet's time (guide 2.2.9)
    uint16_t mtu = 0; ///< 0: the largest
    uint32_t length = 0;
    uint8_t from_tni = 0;
    uint8_t to_tni = 0;
};

struct Times {
    Picoseconds sent = 0;    ///< TCQ entry
    Picoseconds arrived = 0; ///< put, ARMW: at the target; get: here
    Picoseconds noted = 0;   ///< remote notice
    Picoseconds told = 0;    ///< local notice
    Picoseconds there = 0;   ///< get: what it reads, it reads then
};

class Network {
  public:
    /// `area`: num_nodes of clock_node_bytes each, zeros at first. `back` makes sure that those of a node exist.
    /// `buffer`: bytes of a virtual channel.
    Network(const Topology& topology, std::byte* area, bool (*back)(void* context, uint32_t node) noexcept,
            void* context, uint32_t buffer = figures::channel_buffer) noexcept;

    [[nodiscard]] Way way(uint32_t from, unsigned path_id, uint32_t to) const;

    /// The TNI hears of the instruction at `start`.
    [[nodiscard]] Times carry(const Way& way, const Transit& transit, Picoseconds start) noexcept;

    /// A packet of a gate arrives at the next one. A gate continues when its last input has arrived.
    [[nodiscard]] static constexpr Picoseconds gate_input(Picoseconds sent, size_t hops) noexcept
    {
        return sent + hops * figures::hop;
    }
    [[nodiscard]] static constexpr Picoseconds gate_output(Picoseconds last_input) noexcept
    {
        return last_input + figures::gate;
    }
    /// What a start gate sends first.
    [[nodiscard]] static constexpr Picoseconds gate_start(Picoseconds called, bool reduces) noexcept
    {
        return called + figures::gates_start + (reduces ? figures::gates_sum : 0);
    }
    [[nodiscard]] size_t hops(uint32_t from, unsigned path_id, uint32_t to) const;

    [[nodiscard]] const NodeCalendars* calendars(uint32_t node) noexcept { return node_at(node); }

  private:
    struct Flight {
        Picoseconds sent;
        Picoseconds arrived;
    };
    struct Stream {
        uint32_t from;
        unsigned from_tni;
        uint32_t to;
        unsigned to_tni;
        const std::vector<Link>& links;
        uint32_t length;
        uint32_t mtu;
        unsigned gap;
        bool answer;
    };

    [[nodiscard]] NodeCalendars* node_at(uint32_t node) noexcept;
    void stand_behind(const Stream& stream, size_t link, const Standing& standing, Picoseconds work) noexcept;
    [[nodiscard]] Flight send(const Stream& stream, Picoseconds start) noexcept;

    Topology topology_;
    std::byte* area_;
    bool (*back_)(void* context, uint32_t node) noexcept;
    void* context_;
    Picoseconds room_; ///< of a channel's buffer
};

} // namespace tofu::sim
