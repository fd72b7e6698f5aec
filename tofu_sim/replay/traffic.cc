// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: instructions of many nodes on their way, by the figures of the clock. See traffic.h.
// Called by: replay/player. Calls: replay/fluid, clock/figures, topology/.
#include "replay/traffic.h"

#include "job/layout.h"
#include "topology/ids.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tofu::sim::replay {
namespace {

constexpr uint32_t receiver(uint32_t node, unsigned tni) noexcept
{
    return node * resources_per_node + tni;
}
constexpr uint32_t port_of(const Link& link) noexcept
{
    return link.node * resources_per_node + tnis_per_node + static_cast<uint32_t>(link.port);
}

} // namespace

Traffic::Traffic(const Topology& topology, double slower, Fluid& fluid, size_t most)
    : topology_(topology), slower_(slower), fluid_(fluid), most_(most),
      resources_(size_t{topology.num_nodes()} * resources_per_node),
      fed_(size_t{topology.num_nodes()} * ports_per_node), senders_(size_t{topology.num_nodes()} * tnis_per_node)
{
    fluid_.ended = [this](uint32_t id, Picoseconds when) {
        now_ = std::max(now_, when);
        sharing_--;
        end(id);
        wake_up();
    };
    fluid_.rang = [this](Picoseconds when) {
        alarm_ = alarm_ == when ? never : alarm_; // or it was another's for the same events
        for (const auto& [id, work] : std::exchange(to_share_, {})) {
            fluid_.start(id, work);
        }
        while (!events_.empty() && events_.top().time <= when) {
            const Event event = events_.top();
            events_.pop();
            handle(event);
        }
        wake_up();
    };
}

// While SimGrid runs, the next event is an alarm of its.
void Traffic::wake_up()
{
    if (sharing_ != 0 && !events_.empty() && events_.top().time < alarm_) {
        alarm_ = events_.top().time;
        fluid_.set_alarm(alarm_);
    }
}

void Traffic::run()
{
    while (!events_.empty()) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
        if (sharing_ != 0) {
            in_fluid_ = true;
            fluid_.set_alarm(now_); // and what is to be shared starts then
            fluid_.run();
            in_fluid_ = false;
            alarm_ = never;
        }
    }
}

void Traffic::push(Event event)
{
    event.number = numbers_++;
    events_.push(event);
}

void Traffic::signal(Key key, Picoseconds when)
{
    if (key != 0) {
        push({when, 0, Kind::signal, 0, key});
    }
}

bool Traffic::asks(const Message& message) const noexcept
{
    return message.kind == Transit::Kind::get || message.kind == Transit::Kind::armw;
}

Picoseconds Traffic::stream_time(uint32_t length) const noexcept
{
    return static_cast<Picoseconds>(static_cast<double>(figures::stream_time(length, figures::largest_packet)) * slower_);
}

const Carried& Traffic::carried(uint32_t node, Port port) const noexcept
{
    return resources_[port_of({node, port})].carried;
}

void Traffic::carry(const Message& message, Picoseconds start)
{
    messages_++;
    const bool reads = message.kind == Transit::Kind::put;
    make_stream(message, false,
                start + figures::fetch + (reads ? figures::first_packet(message.length, figures::largest_packet) : 0));
}

void Traffic::make_stream(const Message& message, bool answer, Picoseconds ready)
{
    uint32_t id = static_cast<uint32_t>(streams_.size());
    if (spare_.empty()) {
        streams_.emplace_back();
    } else {
        id = spare_.back();
        spare_.pop_back();
    }
    Stream& stream = streams_[id];
    stream.message = message;
    stream.answer = answer;
    stream.next = 0;
    const bool armw = message.kind == Transit::Kind::armw;
    const uint32_t payload = answer ? (armw ? sizeof(uint64_t) : message.length)
                                    : (asks(message) ? figures::request_bytes : message.length);
    stream.work = stream_time(payload);
    stream.packet = payload <= figures::largest_packet;
    stream.resources.clear();
    const uint32_t from = answer ? message.to : message.from;
    const uint32_t to = answer ? message.from : message.to;
    stream.sender = from * tnis_per_node + (answer ? message.to_tni : message.from_tni);
    if (from != to) {
        const Coords there = topology_.coords_of(message.to);
        auto links = route(topology_, topology_.coords_of(message.from), decode_path(message.path), there);
        if (answer) { // over the same cables (guide 2.4)
            std::reverse(links.begin(), links.end());
            std::transform(links.begin(), links.end(), links.begin(),
                           [this](const Link& link) { return opposite(topology_, link); });
        }
        const bool counts = answer || !asks(message);
        for (const Link& link : links) {
            stream.resources.push_back(port_of(link));
            Carried& carried = resources_[port_of(link)].carried;
            carried.busy += stream.work;
            carried.bytes += counts && !armw ? message.length : 0;
        }
    }
    stream.resources.push_back(receiver(to, answer ? message.from_tni : message.to_tni));
    push({ready, 0, Kind::ready, id, 0});
}

void Traffic::handle(const Event& event)
{
    now_ = std::max(now_, event.time);
    switch (event.kind) {
    case Kind::ready: line_up(event.stream); break;
    case Kind::left: leave(event.stream); break;
    case Kind::over:
        if (streams_[event.stream].generation == event.key) {
            end(event.stream);
        }
        break;
    case Kind::signal: happened(event.key, event.time); break;
    }
}

void Traffic::line_up(uint32_t id)
{
    Sender& sender = senders_[streams_[id].sender];
    if (!sender.busy) {
        begin(id);
        return;
    }
    (sender.first == 0 ? sender.first : streams_[sender.last - 1].next) = id + 1;
    sender.last = id + 1;
}

void Traffic::leave(uint32_t number)
{
    Sender& sender = senders_[number];
    sender.busy = false;
    if (const uint32_t next = sender.first; next != 0) {
        sender.first = streams_[next - 1].next;
        begin(next - 1);
    }
}

// The first of a TNI since the port was idle, and as many others as share it without loss are there.
bool Traffic::is_crowded(uint32_t port, uint8_t tni) noexcept
{
    const uint32_t place = port % resources_per_node - tnis_per_node;
    uint8_t& fed = fed_[size_t{port / resources_per_node} * ports_per_node + place];
    if (resources_[port].streams == 0) {
        fed = 0;
    }
    const bool is_new = (fed >> tni & 1) == 0;
    const bool crowded = is_new && static_cast<unsigned>(std::popcount(fed)) >= figures::crowd;
    fed = static_cast<uint8_t>(fed | 1u << tni);
    return crowded;
}

void Traffic::begin(uint32_t id)
{
    Stream& stream = streams_[id];
    stream.started = now_;
    senders_[stream.sender].busy = true;
    const Picoseconds sent = now_ + stream.work;
    signal(stream.answer ? stream.message.noted : stream.message.sent, sent + figures::notice);
    push({sent, 0, Kind::left, stream.sender, 0});
    if (stream.resources.size() > 1 &&
        is_crowded(stream.resources.front(), static_cast<uint8_t>(stream.sender % tnis_per_node))) {
        stream.work += figures::crowd_pause;
    }
    uint32_t others = 0; // where there are most
    for (const uint32_t place : stream.resources) {
        others = std::max(others, resources_[place].streams++);
    }
    if (stream.packet) {
        push({now_ + stream.work * (1 + others), 0, Kind::over, id, stream.generation});
        return;
    }
    if (others != 0) {
        for (const uint32_t place : stream.resources) {
            if (const uint32_t other = resources_[place].alone; other != 0) {
                hand_over(other - 1);
            }
        }
        share(id, stream.work);
        return;
    }
    for (const uint32_t place : stream.resources) {
        resources_[place].alone = id + 1;
        resources_[place].free_at = now_ + stream.work;
    }
    push({now_ + stream.work, 0, Kind::over, id, stream.generation});
}

// It is no longer alone.
void Traffic::hand_over(uint32_t id)
{
    Stream& stream = streams_[id];
    for (const uint32_t place : stream.resources) {
        resources_[place].alone = 0;
    }
    const Picoseconds passed = now_ - stream.started;
    if (passed < stream.work && sharing_ < most_) {
        stream.generation++;
        share(id, stream.work - passed);
    }
}

void Traffic::share(uint32_t id, Picoseconds work)
{
    Stream& stream = streams_[id];
    Picoseconds last = now_;
    for (const uint32_t place : stream.resources) {
        Picoseconds& free_at = resources_[place].free_at;
        free_at = std::max(free_at, now_) + work;
        last = std::max(last, free_at);
    }
    if (sharing_ >= most_ || !fluid_.claim(id, stream.resources)) {
        took_turns_++;
        push({last, 0, Kind::over, id, stream.generation});
        return;
    }
    sharing_++;
    shared_++;
    if (in_fluid_) {
        fluid_.start(id, work);
    } else {
        to_share_.push_back({id, work});
    }
}

void Traffic::end(uint32_t id)
{
    Stream& stream = streams_[id];
    stream.generation++;
    for (const uint32_t place : stream.resources) {
        resources_[place].streams--;
        resources_[place].alone = resources_[place].alone == id + 1 ? 0 : resources_[place].alone;
    }
    const Message message = stream.message;
    const bool answer = stream.answer;
    const size_t hops = stream.resources.size() - 1;
    spare_.push_back(id);
    // As in Network::carry.
    const Picoseconds way = figures::wire + hops * figures::hop;
    const Picoseconds there = now_ + way;
    if (!asks(message)) {
        const Picoseconds arrived = there + figures::write;
        signal(message.arrived, arrived);
        signal(message.noted, arrived + figures::notice);
        signal(message.told, arrived + way + stream_time(0) + figures::notice);
    } else if (!answer) {
        const bool armw = message.kind == Transit::Kind::armw;
        const Picoseconds ready =
            there + (armw ? figures::armw
                          : figures::first_packet(std::max<uint32_t>(message.length, 1), figures::largest_packet));
        signal(armw ? message.arrived : 0, ready);
        make_stream(message, true, ready);
    } else {
        const bool armw = message.kind == Transit::Kind::armw;
        const Picoseconds here = there + (armw ? 0 : figures::write);
        signal(armw ? 0 : message.arrived, here);
        signal(message.told, here + figures::notice);
    }
}

} // namespace tofu::sim::replay
