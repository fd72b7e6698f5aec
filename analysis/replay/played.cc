// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Collectives as scripts. See played.h.
#include "replay/played.h"

#include "job/layout.h"
#include "schedule/field.h"
#include "schedule/schedule.h"

#include <algorithm>
#include <cstdio>
#include <type_traits>

namespace tofu::sim::replay {
namespace {

/// Of a message between two processes. Numbers wrap around: no process is that far ahead of another one.
Key key_between(uint32_t to, uint32_t from, uint64_t number, bool credit) noexcept
{
    return Key{to + 1} << 40 | Key{from} << 16 | (number & 0x7fff) << 1 | Key{credit};
}

/// Of a message of a lane: where it was `index`-th. There are never more than some on their way.
uint64_t lane_number(unsigned lane, uint32_t index) noexcept
{
    return uint64_t{lane} << 9 | (index & 511);
}
static_assert(2 * schedule::max_bits <= 1 << 6);

/// What a process does in a round: first some messages of each send; then a message of each receive, a further one of
/// each send, and so on. So it has taken a message of the other side for each one that it sends beyond its room, and
/// none waits for a credit of a process that waits for its own.
enum class Phase : uint8_t { begin, round, first, receive, send };

/// A process that takes part in one collective after the other. Each begins when all have ended the one before.
template <class Algorithm>
class Played final : public Pattern {
  public:
    /// The provider's transfers go in messages through slots, with credits; those of others as one message each.
    static constexpr bool by_slots = std::is_same_v<Algorithm, schedule::Schedule>;
    using Call = std::conditional_t<by_slots, schedule::Call, schedule::FieldCall>;

    Played(const Placement& placement, const PatternOptions& options, const Call& call, std::string algorithm)
        : Pattern(placement, options), call_(call), algorithm_(std::move(algorithm)), strands_(strands_of(call)),
          actors_(size_t{options.processes} * strands_)
    {
        if constexpr (by_slots) {
            lanes_ = 2 * schedule::bits_of(options.processes);
            sent_.resize(size_t{options.processes} * lanes_);
            taken_.resize(sent_.size());
        }
    }
    [[nodiscard]] uint32_t actors() const override { return static_cast<uint32_t>(actors_.size()); }
    [[nodiscard]] bool next(uint32_t number, Step& step) override;
    [[nodiscard]] uint64_t messages() const override;
    [[nodiscard]] std::string algorithm() const override { return algorithm_; }
    [[nodiscard]] std::string remark(double us) const override
    {
        char text[40];
        std::snprintf(text, sizeof text, "%.4g GB/s", bytes() / us / 1e3);
        return bytes() >= 65536 ? text : std::string();
    }

  private:
    struct Transfer {
        uint32_t peer;
        uint32_t lane; ///< or tag
        uint32_t bytes;
    };
    struct Actor {
        Algorithm algorithm;
        std::vector<Transfer> sends, receives;
        uint32_t round = 0;
        uint32_t message = 0; ///< of a transfer
        uint32_t transfer = 0;
        uint32_t step = 0;  ///< of a message
        uint32_t posts = 0; ///< in total: TNIs are used in turn
        Phase phase = Phase::begin;
    };
    /// The sink of a schedule.
    struct Collector {
        Actor& actor;
        uint32_t rank, members;
        void copy(const schedule::Blocks&, const schedule::Blocks&) const {}
        void send(unsigned lane, const schedule::Blocks& b) const
        {
            actor.sends.push_back({schedule::member_at(lane, rank, members), lane, static_cast<uint32_t>(b.bytes())});
        }
        void receive(unsigned lane, const schedule::Blocks& b, schedule::Take, unsigned) const
        {
            actor.receives.push_back(
                {schedule::member_at(lane, rank, members), lane, static_cast<uint32_t>(b.bytes())});
        }
        void send_to(unsigned peer, const schedule::Blocks& b, uint64_t tag) const
        {
            actor.sends.push_back({peer, static_cast<uint32_t>(tag), static_cast<uint32_t>(b.bytes())});
        }
        void receive_from(unsigned peer, const schedule::Blocks& b, uint64_t tag) const
        {
            actor.receives.push_back({peer, static_cast<uint32_t>(tag), static_cast<uint32_t>(b.bytes())});
        }
    };
    /// A credit for one message more comes with that of the message before or behind it.
    static constexpr uint32_t first_messages = by_slots ? schedule::slots - 1 : 1;

    /// Threads of a process.
    [[nodiscard]] static uint32_t strands_of(const Call& call) noexcept
    {
        if constexpr (!by_slots)
            return call.algorithm == schedule::FieldAlgorithm::double_tree ? 2 : 1;
        return 1;
    }
    [[nodiscard]] Algorithm algorithm_of(uint32_t process, uint32_t strand) const noexcept
    {
        Call call = call_;
        if constexpr (!by_slots)
            call.strand = strands_ == 1 ? 2 : strand;
        return Algorithm(call, process, size());
    }

    [[nodiscard]] static uint32_t messages_of(const Transfer& t) noexcept
    {
        return by_slots ? std::max<uint32_t>(1, (t.bytes + schedule::chunk - 1) / schedule::chunk) : 1;
    }
    [[nodiscard]] uint64_t number_in_field(const Actor& actor, const Transfer& t) const noexcept
    {
        if constexpr (by_slots)
            return 0;
        else
            return uint64_t{actor.round} * actor.algorithm.tags() + t.lane;
    }
    [[nodiscard]] bool find_round(uint32_t number, Actor& actor) const
    {
        actor.sends.clear();
        actor.receives.clear();
        actor.message = actor.transfer = actor.step = 0;
        Collector collector{actor, number, size()};
        return actor.algorithm.next(collector);
    }
    /// Of the micro-operation that the actor is at: its next step, or false behind the last.
    [[nodiscard]] bool send_step(uint32_t number, Actor& actor, const Transfer& t, uint32_t message, Step& step);
    [[nodiscard]] bool receive_step(uint32_t number, Actor& actor, const Transfer& t, Step& step);
    void post(uint32_t number, const Transfer& t, uint32_t bytes, Key arrived, uint32_t tni, Step& step) const;
    /// To the next transfer, message or phase.
    void move_on(Actor& actor) const noexcept;

    const Call call_;
    const std::string algorithm_;
    const uint32_t strands_;
    std::vector<Actor> actors_; ///< first threads of all processes, then the second ones
    uint32_t lanes_ = 0;
    std::vector<uint32_t> sent_; ///< messages, by process and lane
    std::vector<uint32_t> taken_;
};

template <class Algorithm>
void Played<Algorithm>::post(uint32_t number, const Transfer& t, uint32_t bytes, Key arrived, uint32_t tni,
                             Step& step) const
{
    step.kind = Step::Kind::post;
    Message& m = step.message;
    m.from = placement_.node_of(number);
    m.to = placement_.node_of(t.peer);
    m.length = bytes;
    m.kind = bytes <= schedule::tail_bytes ? Transit::Kind::piggyback : Transit::Kind::put;
    m.from_tni = static_cast<uint8_t>((number % placement_.ppn() + tni) % tnis_per_node);
    m.to_tni = static_cast<uint8_t>((t.peer % placement_.ppn() + tni) % tnis_per_node);
    m.path = placement_.path(m.from, m.to);
    m.arrived = arrived;
    m.in_order = by_slots;
}

template <class Algorithm>
bool Played<Algorithm>::send_step(uint32_t number, Actor& actor, const Transfer& t, uint32_t message, Step& step)
{
    if constexpr (!by_slots) {
        if (actor.step++ != 0)
            return false;
        post(number, t, t.bytes, key_between(t.peer, number, number_in_field(actor, t), false), actor.posts++, step);
        return true;
    } else {
        uint32_t& sent = sent_[size_t{number} * lanes_ + t.lane];
        const uint32_t bytes = std::min<uint32_t>(t.bytes - message * schedule::chunk, schedule::chunk);
        while (true) {
            switch (actor.step++) {
            case 0: // room: the receiver has taken all but as many as there are slots
                if (sent >= schedule::slots && sent % schedule::messages_per_credit == 0) {
                    step.kind = Step::Kind::wait;
                    step.key = key_between(number, t.peer, lane_number(t.lane, sent - schedule::slots), true);
                    return true;
                }
                break;
            case 1:
                if (bytes > schedule::payload_in_tail) {
                    post(number, t, bytes, 0, 0, step);
                    return true;
                }
                break;
            case 2:
                post(number, t, schedule::tail_bytes,
                     key_between(t.peer, number, lane_number(schedule::mirror(t.lane), sent), false), 0, step);
                sent++;
                return true;
            default: return false;
            }
        }
    }
}

template <class Algorithm>
bool Played<Algorithm>::receive_step(uint32_t number, Actor& actor, const Transfer& t, Step& step)
{
    if constexpr (by_slots) {
        uint32_t& taken = taken_[size_t{number} * lanes_ + t.lane];
        if (actor.step == 1 && ++taken % schedule::messages_per_credit == 0) {
            actor.step++;
            const uint32_t first = taken - schedule::messages_per_credit;
            post(number, t, sizeof(uint64_t),
                 key_between(t.peer, number, lane_number(schedule::mirror(t.lane), first), true), 0, step);
            return true;
        }
        if (actor.step != 0)
            return false;
        step.key = key_between(number, t.peer, lane_number(t.lane, taken), false);
    } else {
        if (actor.step != 0)
            return false;
        step.key = key_between(number, t.peer, number_in_field(actor, t), false);
    }
    actor.step++;
    step.kind = Step::Kind::wait;
    step.time = figures::found;
    return true;
}

template <class Algorithm>
void Played<Algorithm>::move_on(Actor& actor) const noexcept
{
    using enum Phase;
    actor.step = 0;
    const bool sends = actor.phase != receive;
    const std::vector<Transfer>& list = sends ? actor.sends : actor.receives;
    if (actor.phase == first) {
        // All messages that have room, of one transfer after the other.
        if (actor.transfer < list.size() &&
            ++actor.message < std::min(first_messages, messages_of(list[actor.transfer])))
            return;
        actor.message = 0;
        if (++actor.transfer < list.size())
            return;
        actor.phase = receive;
        actor.transfer = 0;
        return;
    }
    if (++actor.transfer < list.size())
        return;
    actor.transfer = 0;
    if (actor.phase == receive) {
        actor.phase = send;
        return;
    }
    actor.message++;
    const auto goes_on = [&](const Transfer& t) { return actor.message < messages_of(t); };
    const bool more = std::any_of(actor.sends.begin(), actor.sends.end(), goes_on) ||
                      std::any_of(actor.receives.begin(), actor.receives.end(), goes_on);
    actor.phase = more ? receive : round;
}

template <class Algorithm>
bool Played<Algorithm>::next(uint32_t index, Step& step)
{
    using enum Phase;
    Actor& actor = actors_[index];
    const uint32_t number = index % size();
    for (;;) {
        switch (actor.phase) {
        case begin:
            if (actor.round == rounds())
                return false;
            actor.algorithm = algorithm_of(number, index / size());
            actor.posts = index / size() * (tnis_per_node / 2);
            actor.phase = round;
            break;
        case round:
            if (find_round(number, actor)) {
                actor.phase = first;
                break;
            }
            actor.phase = begin;
            if (++actor.round < rounds()) {
                step.kind = Step::Kind::meet;
                step.key = key_between(0xffffff - 1, 0, actor.round, false);
                step.count = actors();
                return true;
            }
            break;
        case first:
            if (actor.transfer < actor.sends.size() &&
                send_step(number, actor, actor.sends[actor.transfer], actor.message, step))
                return true;
            move_on(actor);
            break;
        case receive:
            if (actor.transfer < actor.receives.size() && actor.message < messages_of(actor.receives[actor.transfer]) &&
                receive_step(number, actor, actor.receives[actor.transfer], step))
                return true;
            move_on(actor);
            break;
        case send:
            if (actor.transfer < actor.sends.size() &&
                actor.message + first_messages < messages_of(actor.sends[actor.transfer]) &&
                send_step(number, actor, actor.sends[actor.transfer], actor.message + first_messages, step))
                return true;
            move_on(actor);
            break;
        }
    }
}

/// Those of some processes, for all.
template <class Algorithm>
uint64_t Played<Algorithm>::messages() const
{
    constexpr uint32_t most = 64;
    const uint32_t sample = std::min(size(), most);
    uint64_t count = 0;
    for (uint32_t i = 0; i < sample; i++) {
        const auto number = static_cast<uint32_t>(uint64_t{i} * size() / sample);
        Actor actor;
        actor.algorithm = Algorithm(call_, number, size()); // of all strands
        while (find_round(number, actor)) {
            for (const Transfer& t : actor.sends) {
                // Payload and end of a slot, and every second time a credit; counted in halves.
                const uint64_t puts = by_slots && t.bytes > schedule::payload_in_tail ? 2 : 1;
                static_assert(schedule::messages_per_credit == 2);
                count += messages_of(t) * (2 * puts + (by_slots ? 1 : 0));
            }
        }
    }
    return count * size() / sample * rounds() / 2;
}

schedule::Call provider_call(std::string_view name, std::string_view algorithm, uint32_t bytes)
{
    using enum schedule::Kind;
    constexpr std::pair<std::string_view, schedule::Kind> kinds[] = {{"barrier", barrier},     {"broadcast", broadcast},
                                                                     {"reduce", reduce},       {"allreduce", allreduce},
                                                                     {"allgather", allgather}, {"alltoall", alltoall}};
    schedule::Call call{.count = bytes};
    for (const auto& [word, kind] : kinds)
        call.kind = name == word ? kind : call.kind;
    if (call.kind == allreduce) {
        // Elements of 8 bytes where that is possible: slices are of whole ones.
        call.element = bytes % 8 == 0 ? 8 : 1;
        call.count = bytes / call.element;
        call.choice = algorithm == "doubling" ? schedule::Choice::doubling
                      : algorithm == "ring"   ? schedule::Choice::ring
                                              : schedule::Choice::by_size;
    }
    return call;
}

} // namespace

std::unique_ptr<Pattern> make_collective(std::string_view name, const Placement& placement,
                                         const PatternOptions& options)
{
    constexpr std::string_view collectives[] = {"barrier", "broadcast", "reduce", "allreduce", "allgather", "alltoall"};
    if (std::find(std::begin(collectives), std::end(collectives), name) == std::end(collectives))
        return nullptr;
    using enum schedule::FieldAlgorithm;
    constexpr std::pair<std::string_view, std::pair<std::string_view, schedule::FieldAlgorithm>> fields[] = {
        {"broadcast", {"chain", chain}},
        {"broadcast", {"double-tree", double_tree}},
        {"broadcast", {"scatter-allgather", scatter_allgather}},
        {"allgather", {"ring", ring}},
        {"alltoall", {"pairwise", pairwise}},
        {"alltoall", {"linear", linear}}};
    for (const auto& [pattern, field] : fields) {
        if (name == pattern && options.algorithm == field.first) {
            return std::make_unique<Played<schedule::FieldSchedule>>(
                placement, options, schedule::FieldCall{field.second, options.bytes, options.segment, 0},
                options.algorithm);
        }
    }
    const schedule::Call call = provider_call(name, options.algorithm, options.bytes);
    std::string algorithm = options.algorithm;
    for (const AlgorithmName& one : algorithm_names)
        algorithm = algorithm.empty() && name == one.pattern ? one.name : algorithm;
    if (algorithm == "provider")
        algorithm = schedule::Schedule(call, 0, options.processes).goes_round_a_ring() ? "ring" : "doubling";
    return std::make_unique<Played<schedule::Schedule>>(placement, options, call, algorithm);
}

} // namespace tofu::sim::replay
