// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A round on its way through a circuit: pushed by the process that starts it, pulled by one that waits too long.
#include "barrier/circuit.h"

#include <array>
#include <atomic>

namespace tofu::sim {
namespace {

/// More than a process of any sensible circuit has to fire at once; the rest is found by pulls.
constexpr size_t push_list = 256;
constexpr unsigned push_budget = 8192;

} // namespace

void Circuit::push(GateRef gate, Tag tag) const noexcept
{
    std::array<Node, push_list> list;
    size_t length = 0;
    list[length++] = {gate, tag};
    for (unsigned budget = push_budget; length != 0 && budget != 0; budget--) {
        const Node from = list[--length];
        GateSetting setting;
        if (!gates_.read(from.gate, setting) || !setting.configured || setting.epoch != from.tag.epoch())
            continue;
        // Our output first, then the other input of the target: of two processes that write the two inputs of a gate at
        // the same time, at least one sees both (partner: this fence in the other process).
        std::atomic_thread_fence(std::memory_order_seq_cst);
        for (const Input input : {Input::packet, Input::signal}) {
            const GateRef target = setting.dst[static_cast<unsigned>(input)];
            GateSetting there;
            uint32_t round = 0;
            if (target == null_gate || !gates_.read(target, there) || !there.configured ||
                there.src[static_cast<unsigned>(input)] != from.gate)
                continue; // an unexpected packet is dropped
            if (input == Input::packet && host_.hold_packet != nullptr && host_.hold_packet(host_.context))
                continue;
            if (!gates_.round_for(target, there, input, from.tag, round) ||
                gates_.fire(target, there, round) != Fired::now)
                continue;
            if (is_start_gate(target))
                tell_end(target, Tag::of(there.epoch, round));
            else if (length < list.size())
                list[length++] = {target, Tag::of(there.epoch, round)};
        }
    }
}

void Circuit::tell_end(GateRef gate, Tag tag) const noexcept
{
    Packet packet;
    if (host_.ended != nullptr && gates_.fetch_end(gate, tag, packet) == Fetched::ready)
        host_.ended(host_.context, gate, packet.time);
}

/// The set of gates seen by one pull. If it is full no further gate is examined, so a pull is bounded.
class Circuit::Visited {
  public:
    /// False if it was there, or there is no room.
    bool add(const Node& node) noexcept
    {
        const uint64_t key = (uint64_t{node.gate} << 32 | node.tag.value) + 1;
        if (length_ == list_.size())
            return false;
        for (size_t at = (key * 0x9e3779b97f4a7c15u) >> 53;; at = (at + 1) % table_.size()) {
            if (table_[at] == key)
                return false;
            if (table_[at] == 0) {
                table_[at] = key;
                list_[length_++] = node;
                return true;
            }
        }
    }
    /// In order of discovery.
    [[nodiscard]] bool next(Node& node) noexcept
    {
        if (next_ == length_)
            return false;
        node = list_[next_++];
        return true;
    }

  private:
    std::array<uint64_t, 2048> table_{};
    std::array<Node, 1536> list_;
    size_t length_ = 0;
    size_t next_ = 0;
};

bool Circuit::gone(GateRef source, uint64_t recorded_owner) const noexcept
{
    if (recorded_owner == 0)
        return false;
    const uint64_t owner = host_.owner_of(host_.context, source);
    return owner != unknown_owner && (owner != recorded_owner || !host_.runs(host_.context, recorded_owner));
}

Circuit::Pulled Circuit::visit(const Node& node, bool look_for_dead, Visited& visited) const noexcept
{
    GateSetting setting;
    if (!gates_.read(node.gate, setting) || !setting.configured || setting.epoch != node.tag.epoch())
        return Pulled::nothing;
    switch (gates_.fire(node.gate, setting, node.tag.round())) {
    case Fired::now:
        if (!is_start_gate(node.gate))
            push(node.gate, node.tag);
        else
            tell_end(node.gate, node.tag);
        return Pulled::progress;
    case Fired::before: return Pulled::nothing;
    case Fired::lost: return Pulled::broken;
    case Fired::waiting: break;
    }
    for (const Input input : {Input::packet, Input::signal}) {
        const auto i = static_cast<unsigned>(input);
        const GateRef source = setting.src[i];
        Tag wanted;
        Packet packet;
        if (source == null_gate)
            continue;
        const bool joined = gates_.source_round(node.gate, setting, input, node.tag.round(), wanted);
        if (joined && gates_.fetch_output(source, wanted, packet) != Fetched::not_yet)
            continue;
        if (joined && !is_start_gate(source))
            (void)visited.add({source, wanted});
        else if (look_for_dead && gone(source, setting.src_owner[i]) &&
                 // Again, after we know: its last act may have been to start.
                 (!joined || gates_.fetch_output(source, wanted, packet) == Fetched::not_yet))
            return Pulled::broken;
    }
    return Pulled::nothing;
}

Circuit::Pulled Circuit::pull(GateRef gate, Tag tag, bool look_for_dead) const noexcept
{
    Visited visited;
    (void)visited.add({gate, tag});
    Pulled result = Pulled::nothing;
    Node node{};
    while (visited.next(node)) {
        const Pulled one = visit(node, look_for_dead, visited);
        if (one == Pulled::broken)
            return one;
        if (one == Pulled::progress)
            result = one;
    }
    return result;
}

} // namespace tofu::sim
