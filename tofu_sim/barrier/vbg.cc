// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The gates of this process: allocation, setting, starting and polling a circuit (guide 3.4, 3.8).
#include "barrier/vbg.h"

#include "job/real_time.h"
#include "topology/ids.h"

#include <algorithm>
#include <bit>
#include <sched.h>

namespace tofu::sim {
namespace {

/// In polls. The longest is about what giving the processor away and getting it back costs.
constexpr uint32_t min_patience = 2;
constexpr uint32_t max_patience = 128;
constexpr uint64_t soon_ns = 1'500; ///< sooner than by a switch to another process and back
/// In yields: by then a preempted pusher has run again, so a pull is needed only after a death.
constexpr uint32_t first_pull = 32;
constexpr uint32_t longest_between_pulls = 256;
constexpr uint64_t first_look_ns = 5'000'000;
constexpr uint64_t longest_pause_ns = 200'000'000;

/// `packets`: of the setting that the gate has.
void count_packets(const Circuit& circuit, GateRef gate, uint64_t packets) noexcept
{
    GateSetting setting;
    const GateRef& target = setting.dst[static_cast<unsigned>(Input::packet)];
    if (packets != 0 && circuit.host().count_packets != nullptr && circuit.gates().read(gate, setting) &&
        setting.configured && target != null_gate)
        circuit.host().count_packets(circuit.host().context, target, setting.path, packets);
}

} // namespace

// ---- One circuit ----

int VbgSet::start(const Circuit& circuit, Kind kind, const Packet& own) noexcept
{
    if (!configured_)
        return UTOFU_ERR_INVALID_VBG_ID;
    if (this->kind() != Kind::none)
        return UTOFU_ERR_BUSY;
    set_kind(kind);
    own_ = own;
    fruitless_ = 0;
    tag_ = Tag::of(tag_.epoch(), tag_.round() + 1);
    if (tag_.round() == 0) [[unlikely]]
        count_turn(circuit);
    GateSetting setting;
    if (circuit.gates().read(start_gate_, setting) && setting.src[0] == null_gate && setting.src[1] == null_gate)
        circuit.gates().publish_end(start_gate_, tag_, own); // it waits for nothing
    circuit.gates().publish_output(start_gate_, tag_, own);
    circuit.push(start_gate_, tag_);
    return UTOFU_SUCCESS;
}

/// The rounds of the gates of a set go on together: all counters have come round.
[[gnu::cold, gnu::noinline]] void VbgSet::count_turn(const Circuit& circuit) const noexcept
{
    for (unsigned i = 0; i < num_gates_; i++)
        count_packets(circuit, start_gate_ - number_on_tni(start_gate_) + gates_[i], uint64_t{1} << 24);
}

int VbgSet::finish(int code, const Packet& result) noexcept
{
    set_kind(Kind::none);
    if (code == UTOFU_SUCCESS && (result.mismatch || result.op != own_.op || result.count != own_.count))
        return UTOFU_ERR_BARRIER_MISMATCH;
    return code;
}

int VbgSet::check(Kind kind) const noexcept
{
    if (!configured_)
        return UTOFU_ERR_INVALID_VBG_ID;
    return this->kind() != kind ? UTOFU_ERR_BUSY : UTOFU_SUCCESS;
}

int VbgSet::poll(const Circuit& circuit, Kind kind, Packet& result) noexcept
{
    if (const int rc = check(kind); rc != UTOFU_SUCCESS)
        return rc;
    switch (circuit.gates().fetch_end(start_gate_, tag_, result)) {
    case Fetched::ready:
        if (fruitless_ >= patience_)
            learn();
        return finish(UTOFU_SUCCESS, result);
    case Fetched::lost: return finish(UTOFU_ERR_BARRIER_OTHER, result);
    case Fetched::not_yet: break;
    }
    if (++fruitless_ < patience_) [[likely]]
        return UTOFU_ERR_NOT_COMPLETED;
    return poll_slowly(circuit, result);
}

uint64_t VbgSet::ends_at(const Circuit& circuit) const noexcept
{
    Packet packet;
    const bool ended =
        configured_ && kind() != Kind::none && circuit.gates().fetch_end(start_gate_, tag_, packet) == Fetched::ready;
    return ended ? packet.time : UINT64_MAX;
}

/// A round has ended after yields: were they worth it?
void VbgSet::learn() noexcept
{
    patience_ = real_time_ns() - slow_since_ns_ < soon_ns ? std::min(patience_ * 4, max_patience)
                                                          : std::max(patience_ / 2, min_patience);
}

/// The round takes long: perhaps the processes that forward it have no processor, or have died.
[[gnu::noinline]] int VbgSet::poll_slowly(const Circuit& circuit, Packet& result) noexcept
{
    if (fruitless_ == patience_) {
        slow_since_ns_ = real_time_ns();
        look_pause_ns_ = first_look_ns;
        next_look_ns_ = slow_since_ns_ + first_look_ns;
    }
    const uint32_t waited = fruitless_ - patience_;
    bool look_for_dead = false;
    if (waited % 64 == 63) {
        const uint64_t now = real_time_ns();
        if (now >= next_look_ns_) {
            look_for_dead = true;
            look_pause_ns_ = std::min(look_pause_ns_ * 2, longest_pause_ns);
            next_look_ns_ = now + look_pause_ns_;
        }
    }
    // A pull looks at all that is missing, which costs much in a large circuit: at 32, 64, 128, 256, 512, 768, …
    // yields. Packets that the adversary holds are found by pulls only.
    const bool held = circuit.host().hold_packet != nullptr && waited % 4 == 0;
    const bool due = waited >= first_pull && (std::has_single_bit(waited) || waited % longest_between_pulls == 0);
    if (held || due || look_for_dead) {
        const Circuit::Pulled pulled = circuit.pull(start_gate_, tag_, look_for_dead);
        if (pulled != Circuit::Pulled::nothing) {
            const Fetched fetched = circuit.gates().fetch_end(start_gate_, tag_, result);
            if (fetched == Fetched::ready) {
                learn();
                return finish(UTOFU_SUCCESS, result);
            }
            if (pulled == Circuit::Pulled::broken)
                return finish(UTOFU_ERR_BARRIER_OTHER, result);
        }
    }
    (void)::sched_yield();
    return UTOFU_ERR_NOT_COMPLETED;
}

// ---- Allocation ----

Vbgs::Vbgs(const VbgHost& host) noexcept : host_(host), circuit_(host.gates, host.circuit) {}

bool Vbgs::are_under_way() const noexcept
{
    const VbgSet* const first = &sets_[0][0];
    return std::any_of(first, first + tnis_per_node * start_gates_per_tni,
                       [](const VbgSet& set) { return set.is_under_way(); });
}

std::optional<GateRef> Vbgs::gate_of(const Topology& topology, utofu_vbg_id_t vbg_id) noexcept
{
    const Coords coords = decode_coords(vbg_id);
    const unsigned tni = decode_tni(vbg_id);
    const auto gate = static_cast<unsigned>(vbg_id & 0xffff);
    if (tni >= tnis_per_node || gate >= gates_per_tni || !topology.contains(coords) ||
        encode_vbg_id(coords, tni, gate) != vbg_id)
        return std::nullopt;
    return gate_ref(topology.node_of(coords), tni, gate);
}

utofu_vbg_id_t Vbgs::id_of(GateRef gate) const noexcept
{
    const unsigned tni = gate_on_node(gate) / gates_per_tni;
    return encode_vbg_id(host_.topology.coords_of(node_of_gate(gate)), tni, number_on_tni(gate));
}

void Vbgs::release_gates(unsigned tni, std::span<const uint8_t> gates) noexcept
{
    for (const uint8_t gate : gates)
        host_.release(host_.circuit.context, tni * gates_per_tni + gate);
}

/// One start/end gate, then relay gates; all or nothing.
bool Vbgs::claim_gates(unsigned tni, size_t count, VbgSet& set, unsigned& start) noexcept
{
    size_t have = 0;
    const auto claim = [&](unsigned first, unsigned end) {
        for (unsigned gate = first; gate < end && have < count; gate++) {
            if (host_.claim(host_.circuit.context, tni * gates_per_tni + gate)) {
                set.gates_[have++] = static_cast<uint8_t>(gate);
                if (gate < start_gates_per_tni)
                    break;
            }
        }
    };
    claim(0, start_gates_per_tni);
    if (have == 1) {
        start = set.gates_[0];
        claim(start_gates_per_tni, gates_per_tni);
    }
    if (have == count)
        return true;
    release_gates(tni, {set.gates_, have});
    return false;
}

int Vbgs::alloc(utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long flags, utofu_vbg_id_t* vbg_ids) noexcept
{
    if (tni_id >= tnis_per_node)
        return UTOFU_ERR_INVALID_TNI_ID;
    if (num_vbgs == 0)
        return UTOFU_ERR_INVALID_NUMBER;
    if ((flags & ~UTOFU_VBG_FLAG_THREAD_SAFE) != 0)
        return UTOFU_ERR_INVALID_FLAGS;
    if (vbg_ids == nullptr)
        return UTOFU_ERR_INVALID_POINTER;
    if (num_vbgs > 1 + gates_per_tni - start_gates_per_tni)
        return UTOFU_ERR_FULL;
    const std::lock_guard guard(slow_path_);
    if (const int rc = host_.back(host_.circuit.context, gate_ref(host_.node, tni_id, 0)); rc != UTOFU_SUCCESS)
        return rc;
    VbgSet claimed;
    unsigned start = 0;
    bool done = false;
    // Two processes that both need the last gates may each find too few, and give all back: once more.
    for (unsigned attempt = 0; attempt < 8 && !done; attempt++) {
        done = claim_gates(tni_id, num_vbgs, claimed, start);
        if (!done)
            (void)::sched_yield();
    }
    if (!done)
        return UTOFU_ERR_FULL;
    VbgSet& set = sets_[tni_id][start];
    std::copy_n(claimed.gates_, num_vbgs, set.gates_);
    set.num_gates_ = static_cast<uint8_t>(num_vbgs);
    set.thread_safe_ = (flags & UTOFU_VBG_FLAG_THREAD_SAFE) != 0;
    set.configured_ = false;
    set.set_kind(Kind::none);
    set.start_gate_ = gate_ref(host_.node, tni_id, start);
    for (size_t i = 0; i < num_vbgs; i++) {
        const GateRef gate = gate_ref(host_.node, tni_id, set.gates_[i]);
        write_gate(gate, GateSetting{});
        vbg_ids[i] = id_of(gate);
    }
    set.used_.store(true, std::memory_order_release); // partner: find
    return UTOFU_SUCCESS;
}

int Vbgs::free(const utofu_vbg_id_t* vbg_ids, size_t num_vbgs) noexcept
{
    if (vbg_ids == nullptr)
        return UTOFU_ERR_INVALID_POINTER;
    if (num_vbgs == 0)
        return UTOFU_ERR_INVALID_NUMBER;
    const std::lock_guard guard(slow_path_);
    VbgSet* const set = find(vbg_ids[0]);
    if (set == nullptr)
        return UTOFU_ERR_INVALID_VBG_ID;
    if (num_vbgs != set->num_gates_)
        return UTOFU_ERR_INVALID_NUMBER;
    const unsigned tni = decode_tni(vbg_ids[0]);
    for (size_t i = 0; i < num_vbgs; i++)
        if (vbg_ids[i] != id_of(gate_ref(host_.node, tni, set->gates_[i])))
            return UTOFU_ERR_INVALID_VBG_ID;
    // The setting stays until the gate is allocated again: the last round may still pass through it on its way
    // to a process that is slower than this one.
    set->used_.store(false, std::memory_order_release);
    release_gates(tni, {set->gates_, num_vbgs});
    return UTOFU_SUCCESS;
}

VbgSet* Vbgs::find(utofu_vbg_id_t vbg_id) noexcept
{
    const auto gate = gate_of(host_.topology, vbg_id);
    if (!gate || node_of_gate(*gate) != host_.node || !is_start_gate(*gate))
        return nullptr;
    VbgSet& set = sets_[gate_on_node(*gate) / gates_per_tni][number_on_tni(*gate)];
    return set.used_.load(std::memory_order_acquire) ? &set : nullptr; // partner: alloc
}

// ---- Setting ----

/// With the old setting goes the count of its rounds: it is kept where the counts of this process are.
void Vbgs::write_gate(GateRef gate, const GateSetting& setting) noexcept
{
    GateSetting old;
    if (host_.gates.read(gate, old))
        count_packets(circuit_, gate, host_.gates.rounds_sent(gate, old));
    host_.gates.write(gate, setting);
}

int Vbgs::check_end(utofu_vbg_id_t id, bool local, GateRef& gate) noexcept
{
    gate = null_gate;
    if (id == UTOFU_VBG_ID_NULL)
        return UTOFU_SUCCESS;
    const auto named = gate_of(host_.topology, id);
    if (!named || (local && node_of_gate(*named) != host_.node))
        return UTOFU_ERR_INVALID_VBG_ID;
    gate = *named;
    return host_.back(host_.circuit.context, *named);
}

int Vbgs::check(const VbgSet& set, const utofu_vbg_setting& setting, GateSetting& out) noexcept
{
    const unsigned tni = gate_on_node(set.start_gate_) / gates_per_tni;
    const utofu_vbg_id_t sources[2] = {setting.src_rmt_vbg_id, setting.src_lcl_vbg_id};
    const utofu_vbg_id_t targets[2] = {setting.dst_rmt_vbg_id, setting.dst_lcl_vbg_id};
    for (unsigned i = 0; i < 2; i++) {
        const bool local = i == static_cast<unsigned>(Input::signal);
        for (const utofu_vbg_id_t id : {sources[i], targets[i]})
            if (local && id != UTOFU_VBG_ID_NULL && decode_tni(id) != tni)
                return UTOFU_ERR_INVALID_VBG_ID; // signals stay in their TNI
        for (const auto& [id, gate] : {std::pair{sources[i], &out.src[i]}, {targets[i], &out.dst[i]}})
            if (const int rc = check_end(id, local, *gate); rc != UTOFU_SUCCESS)
                return rc;
        out.src_owner[i] = out.src[i] == null_gate ? 0 : host_.circuit.owner_of(host_.circuit.context, out.src[i]);
    }
    if (setting.dst_rmt_vbg_id != UTOFU_VBG_ID_NULL) {
        const uint8_t* const given = setting.dst_path_coords;
        const PathCoords path = given[0] != UTOFU_PATH_COORD_NULL
                                    ? PathCoords{given[0], given[1], given[2]}
                                    : host_.topology.choose_path(host_.topology.coords_of(host_.node),
                                                                 decode_coords(setting.dst_rmt_vbg_id));
        if (!Topology::contains_path(path))
            return UTOFU_ERR_INVALID_PATH;
        out.path = encode_path(path);
    }
    out.configured = true;
    return UTOFU_SUCCESS;
}

int Vbgs::set(const utofu_vbg_setting* settings, size_t num_settings) noexcept
{
    if (settings == nullptr)
        return UTOFU_ERR_INVALID_POINTER;
    if (num_settings == 0)
        return UTOFU_ERR_INVALID_NUMBER;
    const std::lock_guard guard(slow_path_);
    VbgSet* const set = find(settings[0].vbg_id);
    if (set == nullptr)
        return UTOFU_ERR_INVALID_VBG_ID;
    if (num_settings > set->num_gates_)
        return UTOFU_ERR_INVALID_NUMBER;
    const VbgSet::Guard set_guard(*set);
    GateSetting checked[gates_per_tni];
    GateRef gates[gates_per_tni];
    uint64_t seen = 0; // gates named twice
    for (size_t i = 0; i < num_settings; i++) {
        const auto gate = gate_of(host_.topology, settings[i].vbg_id);
        const std::span own{set->gates_, set->num_gates_};
        if (!gate || *gate / gates_per_tni != set->start_gate_ / gates_per_tni ||
            std::find(own.begin(), own.end(), number_on_tni(*gate)) == own.end() ||
            (seen >> number_on_tni(*gate) & 1) != 0)
            return UTOFU_ERR_INVALID_VBG_ID;
        seen |= uint64_t{1} << number_on_tni(*gate);
        gates[i] = *gate;
        if (const int rc = check(*set, settings[i], checked[i]); rc != UTOFU_SUCCESS)
            return rc;
    }
    for (size_t i = 0; i < num_settings; i++)
        write_gate(gates[i], checked[i]);
    GateSetting start;
    (void)host_.gates.read(set->start_gate_, start);
    set->tag_ = Tag::of(start.epoch, 0);
    set->set_kind(Kind::none);
    set->configured_ = true;
    return UTOFU_SUCCESS;
}

} // namespace tofu::sim
