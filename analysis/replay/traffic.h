// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Instructions of many nodes under way, by the figures of the clock (docs/time-model.md): one event after the other, in
// the order of virtual time. A message alone takes what the figures say. Messages that meet at a link or a TNI take
// turns there, in the order in which they come; or SimGrid shares the links out between them.
#pragma once

#include "clock/network.h"
#include "replay/fluid.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace tofu::sim::replay {

/// A waiter for an instruction identifies it by a key; 0: there is no waiter.
using Key = uint64_t;

struct Message {
    uint32_t from = 0; ///< nodes
    uint32_t to = 0;
    uint32_t length = 0;
    Transit::Kind kind = Transit::Kind::put;
    uint8_t from_tni = 0;
    uint8_t to_tni = 0;
    uint8_t path = 0;      ///< its ID
    bool in_order = false; ///< behind what its TNI was given before (strong order)
    /// As in clock/network's Times.
    Key sent = 0;
    Key arrived = 0;
    Key noted = 0;
    Key told = 0;
};

/// Of a node: what its TNIs get, and what leaves it.
inline constexpr uint32_t resources_per_node = Calendar::feeders + ports_per_node;

/// What a cable has carried in one direction.
struct Carried {
    uint64_t bytes = 0; ///< payload
    Picoseconds busy = 0;
};

class Traffic {
  public:
    /// `slower`: how many times longer than on Tofu-D a link takes for a byte. `fluid` shares out up to `most` streams
    /// at a time; further ones that meet others take turns. nullptr: all do.
    Traffic(const Topology& topology, double slower, Fluid* fluid, size_t most);

    std::function<void(Key, Picoseconds)> happened;
    std::function<void()> progressed; ///< now and then; may be empty

    /// The TNI hears of it at `start`, which may be later than the last event.
    void carry(const Message& message, Picoseconds start);
    /// `happened` will be called.
    void remind(Key key, Picoseconds when) { push({when, 0, Kind::signal, 0, key}); }
    /// Until nothing is on its way.
    void run();

    /// The time of the last event.
    [[nodiscard]] Picoseconds now() const noexcept { return now_; }
    [[nodiscard]] const Carried& carried(uint32_t node, Port port) const noexcept;
    [[nodiscard]] uint64_t messages() const noexcept { return messages_; }
    [[nodiscard]] uint64_t shared() const noexcept { return shared_; }
    [[nodiscard]] uint64_t took_turns() const noexcept { return took_turns_; }

  private:
    enum class Kind : uint8_t { ready, left, hop, over, signal };
    struct Event {
        Picoseconds time;
        uint64_t number; ///< those of one time in the order in which they were made
        Kind kind;
        uint32_t stream; ///< of `left`: the sender
        Key key;         ///< of `over`: the stream's generation
        friend bool operator>(const Event& a, const Event& b) noexcept
        {
            return a.time != b.time ? a.time > b.time : a.number > b.number;
        }
    };
    struct Stream {
        Message message;
        uint32_t sender = 0;
        std::vector<uint32_t> resources; ///< links, and the TNI that gets it
        uint32_t at = 0;                 ///< of them: where it comes next, if it takes turns
        Picoseconds work = 0;
        Picoseconds started = 0;
        uint32_t next = 0;       ///< behind it, + 1, at the same TNI
        uint32_t generation = 0; ///< its end is another one's since then
        bool answer = false;
        /// One packet, which is too short to be shared out: beside SimGrid's streams it takes as many times longer as
        /// there are streams.
        bool packet = false;
    };
    struct Resource {
        uint32_t streams = 0;
        uint32_t alone = 0; ///< the only one, + 1, while no other is known
        /// Where streams take turns: busy until `free_at`, but for a gap.
        Picoseconds free_at = 0;
        Picoseconds gap_from = 0;
        Picoseconds gap_to = 0;
        Carried carried; ///< of a port
    };
    struct Sender {         // a TNI: one message leaves it behind the other, also where it has to wait farther on
        uint32_t first = 0; ///< + 1; of those that wait
        uint32_t last = 0;
        Picoseconds free_at = 0;
        Picoseconds last_ready = 0; ///< of the instructions that it was given
    };

    void push(Event event);
    void handle(const Event& event);
    void wake_up();
    void count_event();
    [[nodiscard]] bool asks(const Message& message) const noexcept;
    void make_stream(const Message& message, bool answer, Picoseconds ready);
    void find_way(Stream& stream);
    void line_up(uint32_t id);
    void begin(uint32_t id);
    void begin_shared(uint32_t id);
    void advance(uint32_t id, Picoseconds head);
    [[nodiscard]] bool pass_at_once(const Stream& stream, Picoseconds head) noexcept;
    void hand_over(uint32_t id);
    [[nodiscard]] bool share(uint32_t id, Picoseconds work);
    void leave(uint32_t sender);
    void end(uint32_t id, Picoseconds when);
    void signal(Key key, Picoseconds when);
    [[nodiscard]] Picoseconds stream_time(uint32_t length) const noexcept;
    [[nodiscard]] bool is_crowded(uint32_t port, uint8_t tni) noexcept;

    Topology topology_;
    double slower_;
    Fluid* fluid_;
    size_t most_; ///< 0: no fluid
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    uint64_t numbers_ = 0;
    uint64_t handled_ = 0;
    Picoseconds now_ = 0;
    static constexpr Picoseconds never = std::numeric_limits<Picoseconds>::max();
    Picoseconds alarm_ = never;
    bool in_fluid_ = false;
    size_t sharing_ = 0;                                     ///< streams that `fluid` has
    std::vector<std::pair<uint32_t, Picoseconds>> to_share_; ///< at `now_`
    std::vector<Stream> streams_;
    std::vector<uint32_t> spare_;
    std::vector<Resource> resources_;
    std::vector<uint8_t> fed_; ///< of a port: which TNIs of its node have used it since it was idle
    std::vector<Sender> senders_;
    uint64_t messages_ = 0;
    uint64_t shared_ = 0;
    uint64_t took_turns_ = 0;
};

} // namespace tofu::sim::replay
