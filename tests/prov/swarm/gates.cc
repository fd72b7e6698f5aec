// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See gates.h. A gate waits for a signal and a packet, combines what they carry, and passes it on. Signals arrive at
// once, packets when the network lets them; those from one gate to another keep their order.
#include "gates.h"

#include <algorithm>
#include <cstring>

#include "program.h"

namespace swarm {

namespace {

constexpr unsigned most_of_tni = 48;

utofu_vbg_id_t id_of(unsigned node, unsigned tni, unsigned number) noexcept
{
    return std::uint64_t{tni} << 61 | std::uint64_t{node} << 32 | number;
}

bool is_real(int op) noexcept
{
    return op == UTOFU_REDUCE_OP_BFPSUM;
}

std::uint64_t combined(int op, std::uint64_t a, std::uint64_t b) noexcept
{
    switch (op) {
    case UTOFU_REDUCE_OP_BAND: return a & b;
    case UTOFU_REDUCE_OP_BOR: return a | b;
    case UTOFU_REDUCE_OP_BXOR: return a ^ b;
    case UTOFU_REDUCE_OP_MAX: return std::max(a, b);
    case UTOFU_REDUCE_OP_SUM: return a + b;
    default: break;
    }
    double x = 0, y = 0;
    std::memcpy(&x, &a, sizeof x);
    std::memcpy(&y, &b, sizeof y);
    x += y;
    std::memcpy(&a, &x, sizeof a);
    return a;
}

} // namespace

void BarrierGates::equip(unsigned gates_of_tni, const Relaxations& relaxations)
{
    relaxations_ = relaxations;
    if (gates_of_tni < 2)
        return;
    const unsigned all = std::min(gates_of_tni, most_of_tni);
    starts_ = std::max(all / 3, 1u);
    relays_ = all - starts_;
    gates_.resize(std::size_t{most_processes} * tnis * all);
}

bool BarrierGates::place_of(utofu_vbg_id_t id, unsigned& node, unsigned& tni, unsigned& number) noexcept
{
    node = static_cast<unsigned>(id >> 32 & 0x1fffffff);
    tni = static_cast<unsigned>(id >> 61);
    number = static_cast<unsigned>(id);
    return node < most_processes && tni < tnis && number < most_of_tni;
}

/// Null: no such gate.
BarrierGates::Gate* BarrierGates::find(utofu_vbg_id_t id)
{
    unsigned node = 0, tni = 0, number = 0;
    if (!place_of(id, node, tni, number) || number >= starts_ + relays_)
        return nullptr;
    return &gates_[(std::size_t{node} * tnis + tni) * (starts_ + relays_) + number];
}

/// Null: it is not allocated.
BarrierGates::Gate* BarrierGates::of(utofu_vbg_id_t id)
{
    Gate* const gate = find(id);
    return gate != nullptr && gate->taken ? gate : nullptr;
}

// --- gates

/// What has arrived may stay in a gate whatever happens to it: the guide does not say.
void BarrierGates::clear(Gate& gate)
{
    if (gate.packets.empty() && gate.signals.empty())
        return;
    if (dice_.below(4) == 0) {
        gate.packets.clear();
        gate.signals.clear();
    }
}

int BarrierGates::alloc(unsigned process, unsigned node, unsigned tni, std::size_t count, utofu_vbg_id_t* ids)
{
    if (count == 0)
        return UTOFU_ERR_INVALID_NUMBER;
    if (tni >= tnis)
        return UTOFU_ERR_INVALID_TNI_ID;
    std::vector<utofu_vbg_id_t> found;
    const auto take = [&](unsigned from, unsigned number, std::size_t wanted) {
        const unsigned begin = relaxations_.reuse ? 0 : next_++;
        for (unsigned i = 0; i < number && found.size() < wanted; i++)
            if (const utofu_vbg_id_t id = id_of(node, tni, from + (begin + i) % number); !find(id)->taken)
                found.push_back(id);
        return found.size() == wanted;
    };
    if (!take(0, starts_, 1) || !take(starts_, relays_, count))
        return UTOFU_ERR_FULL;
    for (std::size_t i = 0; i < count; i++) {
        Gate& gate = *find(found[i]);
        clear(gate);
        gate.taken = true;
        gate.first = i == 0;
        gate.process = process;
        ids[i] = found[i];
    }
    return UTOFU_SUCCESS;
}

void BarrierGates::release(Gate& gate)
{
    clear(gate);
    gate.taken = gate.set = gate.first = gate.started = gate.ended = false;
}

int BarrierGates::free(const utofu_vbg_id_t* ids, std::size_t count)
{
    for (std::size_t i = 0; i < count; i++)
        if (of(ids[i]) == nullptr)
            return UTOFU_ERR_INVALID_VBG_ID;
    for (std::size_t i = 0; i < count; i++) {
        if (relaxations_.any)
            land(ids[i]);
        release(*find(ids[i]));
    }
    return UTOFU_SUCCESS;
}

int BarrierGates::set(const utofu_vbg_setting* settings, std::size_t count)
{
    for (std::size_t i = 0; i < count; i++) {
        const utofu_vbg_setting& s = settings[i];
        const Gate* const gate = of(s.vbg_id);
        if (gate == nullptr || gate->first != (i == 0))
            return UTOFU_ERR_INVALID_VBG_ID;
        for (const utofu_vbg_id_t local : {s.src_lcl_vbg_id, s.dst_lcl_vbg_id})
            if (local != UTOFU_VBG_ID_NULL &&
                (of(local) == nullptr || of(local)->process != gate->process || local == s.vbg_id))
                return UTOFU_ERR_INVALID_VBG_ID;
    }
    for (std::size_t i = 0; i < count; i++) {
        Gate& gate = *find(settings[i].vbg_id);
        clear(gate);
        gate.wires = settings[i];
        gate.set = true;
    }
    for (std::size_t i = 0; i < count; i++)
        advance(settings[i].vbg_id); // what was kept may do that
    return UTOFU_SUCCESS;
}

// --- rounds

void BarrierGates::combine(Load& into, const Load& other) noexcept
{
    into.mismatch |= other.mismatch || into.op != other.op;
    if (into.mismatch)
        return;
    into.count = std::min(into.count, other.count); // the guide does not say
    for (unsigned i = 0; i < into.count; i++)
        into.word[i] = combined(into.op, into.word[i], other.word[i]);
}

void BarrierGates::send(const Gate& gate, const Load& load)
{
    const utofu_vbg_setting& wires = gate.wires;
    if (wires.dst_rmt_vbg_id != UTOFU_VBG_ID_NULL)
        flights_.push_back({wires.vbg_id, wires.dst_rmt_vbg_id, load,
                            relaxations_.late && dice_.below(8) == 0 ? dice_.below(300) : 0});
    if (wires.dst_lcl_vbg_id == UTOFU_VBG_ID_NULL)
        return;
    if (Gate* const next = find(wires.dst_lcl_vbg_id); next != nullptr && next->taken) {
        next->signals.push_back(load);
        advance(wires.dst_lcl_vbg_id);
    }
}

/// Passes on what has arrived, if it is all that the gate waits for.
void BarrierGates::advance(utofu_vbg_id_t id)
{
    Gate& gate = *find(id);
    const bool signal = gate.wires.src_lcl_vbg_id != UTOFU_VBG_ID_NULL;
    const bool packet = gate.wires.src_rmt_vbg_id != UTOFU_VBG_ID_NULL;
    while (gate.set && (signal || packet) && !(signal && gate.signals.empty()) && !(packet && gate.packets.empty())) {
        if (gate.first && (!gate.started || gate.ended))
            return;
        Load load = signal ? gate.signals.front() : gate.packets.front();
        if (signal && packet)
            combine(load, gate.packets.front());
        if (signal)
            gate.signals.pop_front();
        if (packet)
            gate.packets.pop_front();
        if (gate.first) {
            gate.ended = true;
            gate.result = load;
            return;
        }
        send(gate, load);
    }
}

int BarrierGates::start(utofu_vbg_id_t id, utofu_reduce_op op, const void* data, std::size_t count)
{
    Gate* const gate = of(id);
    if (gate == nullptr || !gate->first || !gate->set)
        return UTOFU_ERR_INVALID_VBG_ID;
    if (op != UTOFU_REDUCE_OP_BARRIER && (count == 0 || count > (is_real(op) ? reals : words)))
        return UTOFU_ERR_INVALID_NUMBER;
    if (gate->started)
        return UTOFU_ERR_BUSY;
    Load load;
    load.op = op;
    load.count = static_cast<unsigned>(count);
    if (count != 0)
        std::memcpy(load.word, data, count * sizeof(std::uint64_t));
    gate->started = true;
    gate->ended = false;
    gate->op = op;
    gate->count = load.count;
    send(*gate, load);
    advance(id);
    return UTOFU_SUCCESS;
}

int BarrierGates::poll(utofu_vbg_id_t id, utofu_reduce_op op, void* data)
{
    Gate* const gate = of(id);
    if (gate == nullptr || !gate->first)
        return UTOFU_ERR_INVALID_VBG_ID;
    if (!gate->started)
        return UTOFU_ERR_BUSY;
    if (!gate->ended)
        return UTOFU_ERR_NOT_COMPLETED;
    gate->started = gate->ended = false;
    const Load& result = gate->result;
    const bool right_poll =
        (gate->op == UTOFU_REDUCE_OP_BARRIER) == (op == UTOFU_REDUCE_OP_BARRIER) && is_real(gate->op) == is_real(op);
    if (result.mismatch || result.op != gate->op || !right_poll)
        return UTOFU_ERR_BARRIER_MISMATCH;
    if (gate->count != 0)
        std::memcpy(data, result.word, gate->count * sizeof(std::uint64_t));
    return UTOFU_SUCCESS;
}

// --- packets

/// A gate waits for packets of its source (guide 2.3.1), so it drops any other. What it does before it is set is open.
void BarrierGates::arrive(const Flight& flight)
{
    Gate* const gate = find(flight.to);
    if (gate == nullptr)
        return;
    const bool expected = gate->wires.src_rmt_vbg_id == flight.from;
    if (gate->set ? !expected && !relaxations_.any : dice_.below(2) == 0)
        return;
    gate->packets.push_back(flight.load);
    advance(flight.to);
}

void BarrierGates::step()
{
    const Flight& any = flights_[dice_.below(static_cast<unsigned>(flights_.size()))];
    const auto at = std::find_if(flights_.begin(), flights_.end(),
                                 [&](const Flight& f) { return f.from == any.from && f.to == any.to; });
    if (at->wait != 0) {
        at->wait--;
        return;
    }
    const Flight arrived = *at;
    flights_.erase(at);
    arrive(arrived);
}

/// What is on its way from or to a gate arrives before it is freed: a microsecond against a call of the system.
void BarrierGates::land(utofu_vbg_id_t gate)
{
    for (std::size_t at = 0; at < flights_.size();) {
        if (flights_[at].from != gate && flights_[at].to != gate) {
            at++;
            continue;
        }
        const Flight flight = flights_[at];
        flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(at));
        arrive(flight);
    }
}

void BarrierGates::kill(unsigned process)
{
    close_off();
    std::vector<Flight> last;
    for (std::size_t at = 0; at < flights_.size();) {
        if (const Gate* const from = of(flights_[at].from); from == nullptr || from->process != process) {
            at++;
            continue;
        }
        last.push_back(flights_[at]);
        flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    for (Gate& gate : gates_)
        if (gate.taken && gate.process == process)
            release(gate);
    for (std::size_t at = 0; at < last.size(); at++) {
        const auto lost = [&](std::size_t i) { return last[i].to == UTOFU_VBG_ID_NULL; };
        if (lost(at))
            continue;
        if (dice_.below(4) != 0) {
            arrive(last[at]);
            continue;
        }
        for (std::size_t i = at + 1; i < last.size(); i++) // those behind a lost one are lost, too
            if (last[i].from == last[at].from && last[i].to == last[at].to)
                last[i].to = UTOFU_VBG_ID_NULL;
    }
}

} // namespace swarm
