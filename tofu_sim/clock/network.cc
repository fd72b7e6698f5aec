// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When an instruction gets where: what it occupies on its way, and for how long (docs/time-model.md).
#include "clock/network.h"

#include "job/layout.h"
#include "topology/ids.h"

namespace tofu::sim {

static_assert(sizeof(NodeCalendars) <= clock_node_bytes && Calendar::feeders == tnis_per_node);

Network::Network(const Topology& topology, std::byte* area, bool (*back)(void* context, uint32_t node) noexcept,
                 void* context, uint32_t buffer) noexcept
    : topology_(topology), area_(area), back_(back), context_(context), room_(figures::link_time(buffer))
{
}

Way Network::way(uint32_t from, unsigned path_id, uint32_t to) const
{
    Way way{from, to, {}, {}};
    if (from == to)
        return way;
    const Coords here = topology_.coords_of(from);
    const Coords there = topology_.coords_of(to);
    PathCoords path = decode_path(path_id);
    if (!Topology::contains_path(path))
        path = {there[3], there[4], there[5]};
    way.links = route(topology_, here, path, there);
    way.back.reserve(way.links.size());
    for (auto link = way.links.rbegin(); link != way.links.rend(); ++link)
        way.back.push_back(opposite(topology_, *link));
    return way;
}

size_t Network::hops(uint32_t from, unsigned path_id, uint32_t to) const
{
    return way(from, path_id, to).links.size();
}

NodeCalendars* Network::node_at(uint32_t node) noexcept
{
    if (node >= topology_.num_nodes() || !back_(context_, node))
        return nullptr;
    return reinterpret_cast<NodeCalendars*>(area_ + size_t{node} * clock_node_bytes);
}

/// What stays behind links[number - 1] for longer than it takes to come.
void Network::stand_behind(const Stream& s, size_t number, const Standing& standing, Picoseconds work) noexcept
{
    if (number == 0 || standing.left.end <= standing.came.end)
        return;
    const Link& link = s.links[number - 1];
    if (NodeCalendars* const node = node_at(link.node)) {
        const unsigned channel = channel_of(topology_, s.links, number - 1, s.answer);
        account(node->credit[static_cast<unsigned>(link.port)][channel], standing, work, room_);
    }
}

/// Head and tail of the stream, one calendar after the other. A link passes on what it gets at once: the tail comes
/// after the head by the time that the slowest of them needs. No message delays one that is ahead of it.
Network::Flight Network::send(const Stream& s, Picoseconds start) noexcept
{
    const Picoseconds work = figures::stream_time(s.length, s.mtu);
    NodeCalendars* const from = node_at(s.from);
    NodeCalendars* const to = node_at(s.to);
    if (from == nullptr || to == nullptr)
        return {start, start}; // no memory for calendars: reported by the caller
    const Interval out = enter(from->out[s.from_tni], start, work);
    const Picoseconds sent = std::max(out.end, out.begin + work + work * s.gap / 8);
    Picoseconds head = out.begin + figures::wire / 2;
    Picoseconds tail = sent + figures::wire / 2;
    int feeder = static_cast<int>(s.from_tni);
    for (size_t i = 0; i < s.links.size(); i++) {
        const Link& link = s.links[i];
        if (NodeCalendars* const node = node_at(link.node)) {
            const Interval pass = enter(node->ports[static_cast<unsigned>(link.port)], head, work, feeder);
            stand_behind(s, i, {{head, tail}, pass}, work);
            head = pass.begin;
            tail = std::max(tail, pass.end);
        }
        head += figures::hop;
        tail += figures::hop;
        feeder = no_feeder;
    }
    const Interval in = enter(to->in[s.to_tni], head, work);
    stand_behind(s, s.links.size(), {{head, tail}, in}, work);
    return {sent, std::max(tail, in.end) + figures::wire - figures::wire / 2};
}

Times Network::carry(const Way& way, const Transit& t, Picoseconds start) noexcept
{
    const uint32_t mtu = t.mtu == 0 ? figures::largest_packet : t.mtu;
    const bool asks = t.kind == Transit::Kind::get || t.kind == Transit::Kind::armw;
    const auto out = [&](uint32_t length) {
        return Stream{way.from, t.from_tni, way.to, t.to_tni, way.links, length, mtu, t.gap, false};
    };
    Picoseconds ready = start + figures::fetch;
    if (!asks) {
        if (t.kind == Transit::Kind::put)
            ready += figures::first_packet(t.length, mtu);
        const Flight flight = send(out(t.length), ready);
        const Picoseconds arrived = flight.arrived + figures::write;
        const Picoseconds answer = figures::wire + way.links.size() * figures::hop + figures::stream_time(0, mtu);
        return {flight.sent + figures::notice, arrived, arrived + figures::notice, arrived + answer + figures::notice};
    }
    const Flight request = send(out(figures::request_bytes), ready);
    const Picoseconds there =
        request.arrived +
        (t.kind == Transit::Kind::armw ? figures::armw : figures::first_packet(std::max<uint32_t>(t.length, 1), mtu));
    const uint32_t length = t.kind == Transit::Kind::armw ? sizeof(uint64_t) : t.length;
    const Flight answer = send({way.to, t.to_tni, way.from, t.from_tni, way.back, length, mtu, t.gap, true}, there);
    const bool armw = t.kind == Transit::Kind::armw;
    const Picoseconds here = answer.arrived + (armw ? 0 : figures::write);
    return {request.sent + figures::notice, armw ? there : here, answer.sent + figures::notice, here + figures::notice,
            there};
}

} // namespace tofu::sim
