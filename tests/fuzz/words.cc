// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fuzz target: headers of areas, grants and counts of credit blocks hold anything; what a sender believes of them lies
// within the area, and within what it has sent.
#include "fuzz.h"

#include "av/address.h"
#include "msg/wire.h"

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
    }
    require(read_header(read, nonce, index) != HeaderCheck::usable || (read.nonce == nonce && read.index == index),
            "the area that was meant");
}

void grant(Input& input)
{
    const std::uint64_t slots = input.below(4) != 0 ? 1u << input.below(16) : input.take<std::uint32_t>();
    const unsigned index = input.below(2 * growing_endpoints);
    const std::uint32_t part = input.below(2) != 0 ? Grant::further : 0;
    const std::uint32_t first = static_cast<std::uint32_t>(input.number(1 << 20)) | part;
    const Grant grant = read_grant(slots << 32 | first, index);
    if (grant.slots == 0)
        return;
    require(Geometry{1, grant.slots}.valid(), "a ring that can be");
    require(grant.is_further() || grant.offset() >= anon_slots_offset, "behind the words of others");
    require(!grant.is_further() || index < growing_endpoints, "under an STag that is for rings");
    require(eager_limit_of(grant.slots) <= max_eager && eager_limit_of(grant.slots) >= slot_size,
            "messages of our own length");
}

void count(Input& input)
{
    const auto before = input.take<std::uint32_t>();
    const std::uint32_t under_way = input.below(max_ring_slots + 1); // never more than a ring holds
    const std::uint32_t sent = before + under_way;
    const auto reported = sent - static_cast<std::uint32_t>(input.number(under_way));
    const std::uint32_t now = clamp_reported(reported, sent, before);
    require(sent - now <= under_way, "neither backwards nor beyond what was sent");
    require(now == before || now == reported, "a count that was reported");
    require(sent - reported > under_way || now == reported, "what can be is believed");
}

} // namespace

void words(Input input)
{
    while (!input.empty()) {
        switch (input.below(3)) {
        case 0: header(input); break;
        case 1: grant(input); break;
        default: count(input); break;
        }
    }
}

} // namespace tofu::sim::fuzz
