// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rings of one endpoint: ordered packets from live peers, and room to send to them. Knows nothing of tags, sends
// and receives: the protocol above (Protocol, Inbound::poll) gives packets their meaning. Under the endpoint's lock,
// but for open() and close_area(); calls vcq.
#pragma once

#include <cstdint>

#include "msg/port.h"
#include "msg/rx_ring.h"
#include "msg/tx_ring.h"

namespace tofu::proto {

class Rings {
  public:
    /// `in` is made later, over `port`.
    Rings(const Local& self, Protocol& protocol, int context_bits, Inbound& in) noexcept
        : port(self, protocol), out(port, context_bits), in(in)
    {
    }
    Rings(const Rings&) = delete;
    Rings& operator=(const Rings&) = delete;
    ~Rings();

    /// Opens the area, with so many rings for peers and slots for anonymous packets. 0 or -FI_E*. Takes the home lock.
    [[nodiscard]] int open(std::size_t ring_count, std::size_t ring_slots, std::size_t anon_slot_count) noexcept;
    /// Gives back the rings at peers, asks back those of peers and grants none any more. The caller makes progress and
    /// calls again. True if settled: no peer can write to the area any more.
    [[nodiscard]] bool settle() noexcept;
    /// Says BYE to all peers; nothing is posted afterwards.
    void leave() noexcept;
    /// Closes the area, which peers then can't reach any more. Called after leave() and the last notice. Takes the home
    /// lock. False: a peer that is stopped may write to the area's STADDs later, so its number is not settled.
    [[nodiscard]] bool close_area() noexcept;

    /// Does something wait for catch_up()? Asked in every round of progress, together with Inbound::behind().
    [[nodiscard, gnu::always_inline]] bool behind() const noexcept
    {
        return out.deferred() || doorbell_rang();
    }
    /// Has a peer rung a doorbell?
    [[nodiscard, gnu::always_inline]] bool doorbell_rang() const noexcept
    {
        // relaxed: catch_up() reads it again
        return port.area.doorbells().load(std::memory_order_relaxed) != 0;
    }
    /// Answers doorbells, and repeats packets and reports that found no room in the queue of the TNI.
    void catch_up() noexcept;
    /// Does what is due every few milliseconds. Called in every 64th round or so.
    void slow_round() noexcept;
    /// An unsignaled communication to this home VCQ has failed: finds out whether the peer is gone.
    void peer_failed(utofu_vcq_id_t home) noexcept;

    Port port;
    Outbound out;
    Inbound& in;

  private:
    std::uint64_t last_tick_ = 0;
    std::uint64_t last_watch_ = 0;
    std::uint64_t last_settle_ = 0; ///< milliseconds: when settle() last asked peers
    bool settled_ = false; ///< as settle() has found
};

} // namespace tofu::proto
