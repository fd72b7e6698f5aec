// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: fuzz target: headers of areas and counts of return blocks hold anything; what a sender believes of them lies
// within the area, and within what it has sent. Called by: tests/fuzz. Calls: area/wire.
#include "fuzz.h"

#include "address/address.h"
#include "area/wire.h"

namespace tofu::sim::fuzz {
namespace {

using namespace tofu::proto;

void header(Input& input)
{
    constexpr std::uint64_t nonce = 77;
    constexpr std::uint32_t index = 3;
    AreaHeader read{};
    input.fill(&read, sizeof read);
    if (input.below(8) != 0) { // mostly one that is looked at to its end
        read.magic = area_magic;
        read.version = wire_version;
        read.nonce = nonce;
        read.index = index;
        read.ring_count = static_cast<std::uint32_t>(input.number(max_ring_count));
        read.ring_slots = input.below(4) != 0 ? 1u << input.below(16) : read.ring_slots;
        read.hint = static_cast<std::uint32_t>(input.number(read.ring_count));
    }
    Geometry geometry{};
    std::uint32_t ring = 0;
    const Heading heading = read_header(read, nonce, index, geometry, ring);
    require((heading == Heading::usable) == geometry.valid(), "a geometry where there is one, and none else");
    if (heading != Heading::usable)
        return;
    require(read.magic == area_magic && read.version == wire_version && read.nonce == nonce && read.index == index,
            "the area that was meant");
    require(ring <= geometry.ring_count, "a ring of the area, or none");
    require(geometry.claim(geometry.ring_count) <= geometry.rings(), "claim words in front of the rings");
    require(geometry.ring(geometry.ring_count) <= geometry.size(), "rings within the area");
    require(geometry.eager_limit() <= max_eager && geometry.eager_limit() >= slot_size, "messages of our own length");
}

void count(Input& input)
{
    const auto before = input.take<std::uint32_t>();
    const std::uint32_t under_way = input.below(max_ring_slots + 1); // never more than a ring holds
    const std::uint32_t sent = before + under_way;
    const auto reported = sent - static_cast<std::uint32_t>(input.number(under_way));
    const std::uint32_t now = believed(reported, sent, before);
    require(sent - now <= under_way, "neither backwards nor beyond what was sent");
    require(now == before || now == reported, "a count that somebody has named");
    require(sent - reported > under_way || now == reported, "what can be is believed");
}

} // namespace

void words(Input input)
{
    while (!input.empty()) {
        if (input.below(2) == 0)
            header(input);
        else
            count(input);
    }
}

} // namespace tofu::sim::fuzz
