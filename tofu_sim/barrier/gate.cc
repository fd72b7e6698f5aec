// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One gate: its setting, its inputs of a round, its output (guide 2.3.1).
#include "barrier/gate.h"

#include "clock/clock.h"

#include <algorithm>
#include <atomic>

namespace tofu::sim {
namespace {

constexpr uint32_t mismatch_bit = 1u << 7;
constexpr uint32_t timed_bit = 1u << 8;

constexpr uint64_t tagged(Tag tag, uint32_t payload) noexcept
{
    return uint64_t{tag.value} << 32 | payload;
}

/// Brings a word to `tag`, unless it is at that tag or beyond. False: it is beyond.
bool put(SharedWord<uint64_t>& word, Tag tag, uint32_t payload) noexcept
{
    uint64_t seen = word.load_acquire();
    while (tag_of(seen) != tag) {
        if (later(tag_of(seen), tag))
            return false; // we are a straggler of an earlier round
        // Fails at most once for each other writer of this round: the tag is then ours or beyond.
        if (word.compare_exchange(seen, tagged(tag, payload)))
            break;
    }
    return true;
}

void publish(OutputSlot& slot, Tag tag, const Packet& packet) noexcept
{
    const unsigned words = packet_words(packet.op, packet.count);
    for (unsigned i = 0; i < words; i++)
        if (!put(slot.half[2 * i], tag, static_cast<uint32_t>(packet.words[i])) ||
            !put(slot.half[2 * i + 1], tag, static_cast<uint32_t>(packet.words[i] >> 32)))
            return;
    if (packet.op == ReduceOp::bfpsum && !put(slot.half[slot_status_at], tag, packet.bfp_status))
        return;
    if (packet.time != 0 && (!put(slot.half[slot_time_at], tag, static_cast<uint32_t>(packet.time)) ||
                             !put(slot.half[slot_time_at + 1], tag, static_cast<uint32_t>(packet.time >> 32))))
        [[unlikely]]
        return;
    // Last: its acquiring readers find all halves of this round, or of a later one (partner: fetch).
    (void)put(slot.head, tag,
              static_cast<uint32_t>(packet.op) | uint32_t{packet.count} << 4 | (packet.mismatch ? mismatch_bit : 0) |
                  (packet.time != 0 ? timed_bit : 0));
}

Fetched fetch(const OutputSlot& slot, Tag tag, Packet& packet) noexcept
{
    const uint64_t head = slot.head.load_acquire(); // partner: the end of publish
    if (tag_of(head) != tag)
        return later(tag_of(head), tag) ? Fetched::lost : Fetched::not_yet;
    const auto payload = static_cast<uint32_t>(head);
    Packet result;
    result.op = static_cast<ReduceOp>(payload & 0xf);
    result.count = payload >> 4 & 7;
    result.mismatch = (payload & mismatch_bit) != 0;
    const unsigned words = packet_words(result.op, result.count);
    if (words > max_packet_words)
        return Fetched::lost; // nothing that we would write
    for (unsigned i = 0; i < words; i++) {
        const uint64_t low = slot.half[2 * i].load_acquire();
        const uint64_t high = slot.half[2 * i + 1].load_acquire();
        if (tag_of(low) != tag || tag_of(high) != tag)
            return Fetched::lost;
        result.words[i] = high << 32 | static_cast<uint32_t>(low);
    }
    if (result.op == ReduceOp::bfpsum) {
        const uint64_t status = slot.half[slot_status_at].load_acquire();
        if (tag_of(status) != tag)
            return Fetched::lost;
        result.bfp_status = static_cast<uint32_t>(status);
    }
    if ((payload & timed_bit) != 0) [[unlikely]] {
        const uint64_t low = slot.half[slot_time_at].load_acquire();
        const uint64_t high = slot.half[slot_time_at + 1].load_acquire();
        if (tag_of(low) != tag || tag_of(high) != tag)
            return Fetched::lost;
        result.time = high << 32 | static_cast<uint32_t>(low);
    }
    packet = result;
    return Fetched::ready;
}

/// From here on stragglers of earlier epochs change nothing.
void begin_epoch(OutputSlot* slots, uint32_t epoch) noexcept
{
    for (unsigned i = 0; i < slots_per_output; i++) {
        (void)slots[i].head.exchange(tagged(Tag::of(epoch, 0), 0));
        for (SharedWord<uint64_t>& half : slots[i].half)
            (void)half.exchange(tagged(Tag::of(epoch, 0), 0));
    }
}

constexpr uint64_t edge_word(uint32_t own_epoch, uint32_t source_epoch, uint32_t offset) noexcept
{
    return uint64_t{own_epoch} << 56 | uint64_t{source_epoch} << 48 | (offset & 0xffffff);
}

} // namespace

TniGates& Gates::tni(GateRef gate) const noexcept
{
    return *reinterpret_cast<TniGates*>(area_ + size_t{gate / gates_per_tni} * tni_gates_bytes);
}

GateState& Gates::state(GateRef gate) const noexcept
{
    return tni(gate).gates[number_on_tni(gate)];
}

OutputSlot* Gates::inward_slots(GateRef gate) const noexcept
{
    return is_start_gate(gate) ? tni(gate).ends[number_on_tni(gate)] : state(gate).out;
}

bool Gates::read(GateRef gate, GateSetting& setting) const noexcept
{
    const GateState& s = state(gate);
    for (unsigned attempt = 0; attempt < 4; attempt++) {
        const uint64_t before = s.version.load_acquire(); // partner: the end of write
        if ((before & 1) != 0)
            return false; // the owner is changing it, or died there: then the gate has no owner
        setting.configured = s.configured.load_relaxed() != 0;
        setting.path = s.path.load_relaxed();
        for (unsigned i = 0; i < 2; i++) {
            setting.src[i] = s.src[i].load_relaxed();
            setting.dst[i] = s.dst[i].load_relaxed();
            setting.src_owner[i] = s.src_owner[i].load_relaxed();
            if ((setting.src[i] != null_gate && !valid(setting.src[i])) ||
                (setting.dst[i] != null_gate && !valid(setting.dst[i])))
                setting.configured = false;
        }
        std::atomic_thread_fence(std::memory_order_acquire);
        if (s.version.load_relaxed() == before) {
            setting.epoch = epoch_of_version(before);
            return true;
        }
    }
    return false;
}

void Gates::write(GateRef gate, const GateSetting& setting) const noexcept
{
    GateState& s = state(gate);
    const uint64_t odd = s.version.load_acquire() + 1; // even was left: an owner died in here
    const uint64_t writing = odd | 1;
    s.version.store_seq(writing);
    std::atomic_thread_fence(std::memory_order_release); // partner: the fence in read
    s.configured.store_relaxed(setting.configured ? 1 : 0);
    s.path.store_relaxed(setting.path);
    const uint32_t epoch = epoch_of_version(writing + 1);
    begin_epoch(s.out, epoch);
    if (is_start_gate(gate))
        begin_epoch(tni(gate).ends[number_on_tni(gate)], epoch);
    for (unsigned i = 0; i < 2; i++) {
        s.src[i].store_relaxed(setting.src[i]);
        s.dst[i].store_relaxed(setting.dst[i]);
        s.src_owner[i].store_relaxed(setting.src_owner[i]);
        // What the source has sent before is not for us.
        uint64_t edge = edge_word(epoch, (epoch - 1) & 0xff, 0);
        GateSetting source;
        if (setting.src[i] != null_gate && setting.src[i] != gate && read(setting.src[i], source))
            edge = edge_word(epoch, source.epoch, last_round(state(setting.src[i]).out, source.epoch));
        else if (setting.src[i] == gate)
            edge = edge_word(epoch, epoch, 0);
        (void)s.edge[i].exchange(edge);
    }
    s.version.store_release(writing + 1);
}

uint32_t Gates::rounds_sent(GateRef gate, const GateSetting& setting) const noexcept
{
    return last_round(state(gate).out, setting.epoch);
}

Fetched Gates::fetch_output(GateRef gate, Tag tag, Packet& packet) const noexcept
{
    return fetch(state(gate).out[tag.round() % slots_per_output], tag, packet);
}

void Gates::publish_output(GateRef gate, Tag tag, const Packet& packet) const noexcept
{
    publish(state(gate).out[tag.round() % slots_per_output], tag, packet);
}

Fetched Gates::fetch_end(GateRef gate, Tag tag, Packet& packet) const noexcept
{
    return fetch(tni(gate).ends[number_on_tni(gate)][tag.round() % slots_per_output], tag, packet);
}

void Gates::publish_end(GateRef gate, Tag tag, const Packet& packet) const noexcept
{
    publish(tni(gate).ends[number_on_tni(gate)][tag.round() % slots_per_output], tag, packet);
}

bool Gates::offset_of(GateRef gate, const GateSetting& setting, Input input, GateSetting& source,
                      uint32_t& offset) const noexcept
{
    const auto i = static_cast<unsigned>(input);
    SharedWord<uint64_t>& edge = state(gate).edge[i];
    // The edge first, then the source: if their epochs differ, the source's is the newer one.
    uint64_t seen = edge.load_acquire();
    if (seen >> 56 != setting.epoch || !read(setting.src[i], source) || !source.configured || source.dst[i] != gate)
        return false;
    if ((seen >> 48 & 0xff) != source.epoch) {
        // The source was set after this gate: its first round comes next here. All readers find the same, since
        // this gate cannot continue before.
        const uint32_t next = last_round(inward_slots(gate), setting.epoch);
        const uint64_t fresh = edge_word(setting.epoch, source.epoch, 0 - next);
        if (edge.compare_exchange(seen, fresh))
            seen = fresh;
        else if (seen >> 48 != fresh >> 48)
            return false;
    }
    offset = static_cast<uint32_t>(seen & 0xffffff);
    return true;
}

bool Gates::source_round(GateRef gate, const GateSetting& setting, Input input, uint32_t round, Tag& tag) const noexcept
{
    GateSetting source;
    uint32_t offset = 0;
    if (!offset_of(gate, setting, input, source, offset))
        return false;
    tag = Tag::of(source.epoch, round + offset);
    return true;
}

bool Gates::round_for(GateRef gate, const GateSetting& setting, Input input, Tag source_tag,
                      uint32_t& round) const noexcept
{
    GateSetting source;
    uint32_t offset = 0;
    if (!offset_of(gate, setting, input, source, offset) || source.epoch != source_tag.epoch())
        return false;
    round = (source_tag.round() - offset) & 0xffffff;
    return true;
}

bool Gates::fired(GateRef gate, Tag tag) const noexcept
{
    const Tag found = tag_of(inward_slots(gate)[tag.round() % slots_per_output].head.load_acquire());
    return found == tag || later(found, tag);
}

/// By the virtual clock: when what `source` sent at `sent` is an input of this gate.
Picoseconds Gates::time_here(GateRef gate, GateRef source, Input input, Picoseconds sent) const noexcept
{
    GateSetting setting;
    if (input == Input::signal || !has_clock() || !read(source, setting))
        return sent;
    return Network::gate_input(sent, clock_network().hops(node_of_gate(source), setting.path, node_of_gate(gate)));
}

Fired Gates::fire(GateRef gate, const GateSetting& setting, uint32_t round) const noexcept
{
    const Tag tag = Tag::of(setting.epoch, round);
    if (fired(gate, tag))
        return Fired::before;
    Packet result;
    Picoseconds last = 0; // input
    bool any = false;
    for (const Input input : {Input::packet, Input::signal}) {
        const GateRef src = setting.src[static_cast<unsigned>(input)];
        if (src == null_gate)
            continue;
        Tag wanted;
        Packet packet;
        if (!source_round(gate, setting, input, round, wanted))
            return Fired::waiting;
        const Fetched fetched = fetch_output(src, wanted, packet);
        if (fetched == Fetched::not_yet)
            return Fired::waiting;
        if (fetched == Fetched::lost)
            return fired(gate, tag) ? Fired::before : Fired::lost;
        if (packet.time != 0) [[unlikely]]
            last = std::max(last, time_here(gate, src, input, packet.time));
        result = any ? combine(result, packet) : packet;
        any = true;
    }
    if (!any)
        return Fired::waiting; // nothing comes in here, so nothing goes out
    result.time = last == 0 || is_start_gate(gate) ? last : Network::gate_output(last);
    OutputSlot& slot = inward_slots(gate)[round % slots_per_output];
    publish(slot, tag, result);
    return Fired::now;
}

} // namespace tofu::sim
