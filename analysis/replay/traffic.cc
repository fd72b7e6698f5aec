// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Instructions of many nodes under way, by the figures of the clock. See traffic.h.
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

Traffic::Traffic(const Topology& topology, double slower, Fluid* fluid, size_t most)
    : topology_(topology), slower_(slower), fluid_(fluid), most_(fluid != nullptr ? most : 0),
      resources_(size_t{topology.num_nodes()} * resources_per_node),
      fed_(size_t{topology.num_nodes()} * ports_per_node), senders_(size_t{topology.num_nodes()} * tnis_per_node)
{
    if (fluid == nullptr)
        return;
    fluid->ended = [this](uint32_t id, Picoseconds when) {
        now_ = std::max(now_, when);
        sharing_--;
        end(id, now_);
        wake_up();
    };
    fluid->rang = [this](Picoseconds when) {
        alarm_ = alarm_ == when ? never : alarm_; // or it was another's for the same events
        for (const auto& [id, work] : std::exchange(to_share_, {})) {
            fluid_->start(id, work);
        }
        while (!events_.empty() && events_.top().time <= when) {
            const Event event = events_.top();
            events_.pop();
            handle(event);
        }
        wake_up();
    };
}

/// While SimGrid runs, the next event is an alarm of its.
void Traffic::wake_up()
{
    if (sharing_ != 0 && !events_.empty() && events_.top().time < alarm_) {
        alarm_ = events_.top().time;
        fluid_->set_alarm(alarm_);
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
            fluid_->set_alarm(now_); // and what is to be shared starts then
            fluid_->run();
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
    if (key != 0)
        push({when, 0, Kind::signal, 0, key});
}

bool Traffic::asks(const Message& message) const noexcept
{
    return message.kind == Transit::Kind::get || message.kind == Transit::Kind::armw;
}

Picoseconds Traffic::stream_time(uint32_t length) const noexcept
{
    return static_cast<Picoseconds>(static_cast<double>(figures::stream_time(length, figures::largest_packet)) *
                                    slower_);
}

const Carried& Traffic::carried(uint32_t node, Port port) const noexcept
{
    return resources_[port_of({node, port})].carried;
}

void Traffic::carry(const Message& message, Picoseconds start)
{
    messages_++;
    const bool reads = message.kind == Transit::Kind::put;
    Picoseconds ready =
        start + figures::fetch + (reads ? figures::first_packet(message.length, figures::largest_packet) : 0);
    Sender& sender = senders_[message.from * tnis_per_node + message.from_tni];
    if (message.in_order)
        ready = std::max(ready, sender.last_ready);
    sender.last_ready = std::max(sender.last_ready, ready);
    make_stream(message, false, ready);
}

/// What it occupies: links, and the TNI that gets it.
void Traffic::find_way(Stream& stream)
{
    const Message& message = stream.message;
    const uint32_t to = stream.answer ? message.from : message.to;
    stream.resources.clear();
    if (message.from != message.to) {
        const Coords there = topology_.coords_of(message.to);
        auto links = route(topology_, topology_.coords_of(message.from), decode_path(message.path), there);
        if (stream.answer) { // over the same cables (guide 2.4)
            std::reverse(links.begin(), links.end());
            std::transform(links.begin(), links.end(), links.begin(),
                           [this](const Link& link) { return opposite(topology_, link); });
        }
        const bool counts = stream.answer || !asks(message);
        for (const Link& link : links) {
            stream.resources.push_back(port_of(link));
            Carried& carried = resources_[port_of(link)].carried;
            carried.busy += stream.work;
            carried.bytes += counts && message.kind != Transit::Kind::armw ? message.length : 0;
        }
    }
    stream.resources.push_back(receiver(to, stream.answer ? message.from_tni : message.to_tni));
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
    const uint32_t payload =
        answer ? (armw ? sizeof(uint64_t) : message.length) : (asks(message) ? figures::request_bytes : message.length);
    stream.work = stream_time(payload);
    stream.packet = payload <= figures::largest_packet;
    const uint32_t from = answer ? message.to : message.from;
    stream.sender = from * tnis_per_node + (answer ? message.to_tni : message.from_tni);
    push({ready, 0, Kind::ready, id, 0});
}

void Traffic::count_event()
{
    constexpr uint64_t events_per_look = 1 << 16;
    if (++handled_ % events_per_look == 0 && progressed)
        progressed();
}

void Traffic::handle(const Event& event)
{
    now_ = std::max(now_, event.time);
    count_event();
    switch (event.kind) {
    case Kind::ready: line_up(event.stream); break;
    case Kind::left: leave(event.stream); break;
    case Kind::hop: advance(event.stream, event.time); break;
    case Kind::over:
        if (streams_[event.stream].generation == event.key)
            end(event.stream, now_);
        break;
    case Kind::signal: happened(event.key, event.time); break;
    }
}

void Traffic::line_up(uint32_t id)
{
    const uint32_t number = streams_[id].sender;
    Sender& sender = senders_[number];
    if (sender.first == 0 && sender.free_at <= now_) {
        begin(id);
        return;
    }
    if (sender.first == 0)
        push({sender.free_at, 0, Kind::left, number, 0});
    (sender.first == 0 ? sender.first : streams_[sender.last - 1].next) = id + 1;
    sender.last = id + 1;
}

void Traffic::leave(uint32_t number)
{
    Sender& sender = senders_[number];
    const uint32_t next = sender.first;
    sender.first = streams_[next - 1].next;
    begin(next - 1);
    if (sender.first != 0)
        push({sender.free_at, 0, Kind::left, number, 0});
}

/// The first of a TNI since the port was idle, and as many others as share it without loss are there.
bool Traffic::is_crowded(uint32_t port, uint8_t tni) noexcept
{
    const uint32_t place = port % resources_per_node - tnis_per_node;
    uint8_t& fed = fed_[size_t{port / resources_per_node} * ports_per_node + place];
    if (resources_[port].streams == 0 && resources_[port].free_at <= now_)
        fed = 0;
    const bool is_new = (fed >> tni & 1) == 0;
    const bool crowded = is_new && static_cast<unsigned>(std::popcount(fed)) >= figures::crowd;
    fed = static_cast<uint8_t>(fed | 1u << tni);
    return crowded;
}

void Traffic::begin(uint32_t id)
{
    Stream& stream = streams_[id];
    stream.started = now_;
    stream.at = 0;
    find_way(stream);
    const Picoseconds sent = now_ + stream.work;
    senders_[stream.sender].free_at = sent;
    signal(stream.answer ? stream.message.noted : stream.message.sent, sent + figures::notice);
    if (stream.resources.size() > 1 &&
        is_crowded(stream.resources.front(), static_cast<uint8_t>(stream.sender % tnis_per_node)))
        stream.work += figures::crowd_pause;
    if (most_ == 0)
        advance(id, now_);
    else
        begin_shared(id);
}

/// Its first bits come to the next link or TNI at `head`: they wait until that is free, and go on while the rest
/// follows.
void Traffic::advance(uint32_t id, Picoseconds head)
{
    Stream& stream = streams_[id];
    const size_t last = stream.resources.size() - 1;
    Picoseconds over = 0;
    if (pass_at_once(stream, head)) {
        over = head + (last - stream.at) * figures::hop + stream.work;
    } else {
        Resource& here = resources_[stream.resources[stream.at]];
        const Picoseconds begin = std::max(head, here.free_at);
        if (head > here.free_at) {
            here.gap_from = here.free_at;
            here.gap_to = head;
        }
        here.free_at = begin + stream.work;
        if (stream.at++ < last) {
            push({begin + figures::hop, 0, Kind::hop, id, 0});
            return;
        }
        over = here.free_at;
    }
    over -= last * figures::hop; // which end() counts
    if (most_ == 0)
        end(id, over);
    else
        push({std::max(over, now_), 0, Kind::over, id, stream.generation});
}

/// All of the rest of its way is free when it comes there. Others that come there earlier find the gap that it leaves.
bool Traffic::pass_at_once(const Stream& stream, Picoseconds head) noexcept
{
    const auto place = [&](size_t at) -> Resource& { return resources_[stream.resources[at]]; };
    Picoseconds then = head;
    for (size_t at = stream.at; at < stream.resources.size(); at++, then += figures::hop) {
        const Resource& r = place(at);
        if (then < r.free_at && (then < r.gap_from || then + stream.work > r.gap_to))
            return false;
    }
    then = head;
    for (size_t at = stream.at; at < stream.resources.size(); at++, then += figures::hop) {
        Resource& r = place(at);
        if (then >= r.free_at) {
            r.gap_from = r.free_at;
            r.gap_to = then;
            r.free_at = then + stream.work;
        } else {
            r.gap_from = then + stream.work;
        }
    }
    return true;
}

void Traffic::begin_shared(uint32_t id)
{
    Stream& stream = streams_[id];
    uint32_t others = 0; // where there are most
    for (const uint32_t place : stream.resources)
        others = std::max(others, resources_[place].streams++);
    if (stream.packet) {
        push({now_ + stream.work * (1 + others), 0, Kind::over, id, stream.generation});
        return;
    }
    if (others != 0) {
        for (const uint32_t place : stream.resources)
            if (const uint32_t other = resources_[place].alone; other != 0)
                hand_over(other - 1);
        if (!share(id, stream.work)) {
            took_turns_++;
            advance(id, now_);
        }
        return;
    }
    for (const uint32_t place : stream.resources) {
        resources_[place].alone = id + 1;
        resources_[place].free_at = now_ + stream.work;
    }
    push({now_ + stream.work, 0, Kind::over, id, stream.generation});
}

/// It is no longer alone.
void Traffic::hand_over(uint32_t id)
{
    Stream& stream = streams_[id];
    for (const uint32_t place : stream.resources)
        resources_[place].alone = 0;
    const Picoseconds passed = now_ - stream.started;
    if (passed < stream.work && share(id, stream.work - passed))
        stream.generation++;
}

/// False: SimGrid has as many as it is to get.
bool Traffic::share(uint32_t id, Picoseconds work)
{
    const Stream& stream = streams_[id];
    if (sharing_ >= most_ || !fluid_->claim(id, stream.resources))
        return false;
    for (const uint32_t place : stream.resources) {
        Picoseconds& free_at = resources_[place].free_at;
        free_at = std::max(free_at, now_) + work;
    }
    sharing_++;
    shared_++;
    if (in_fluid_)
        fluid_->start(id, work);
    else
        to_share_.push_back({id, work});
    return true;
}

/// Its last bit is through, at `when`, but for the hops.
void Traffic::end(uint32_t id, Picoseconds when)
{
    Stream& stream = streams_[id];
    stream.generation++;
    if (most_ != 0) {
        for (const uint32_t place : stream.resources) {
            resources_[place].streams--;
            resources_[place].alone = resources_[place].alone == id + 1 ? 0 : resources_[place].alone;
        }
    }
    const Message message = stream.message;
    const bool answer = stream.answer;
    const size_t hops = stream.resources.size() - 1;
    spare_.push_back(id);
    // As in Network::carry.
    const Picoseconds way = figures::wire + hops * figures::hop;
    const Picoseconds there = when + way;
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
