// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ties the gates of this process to its job.
#include "barrier/process_vbgs.h"

#include "clock/clock.h"
#include "job/flows.h"
#include "job/process.h"

#include <atomic>
#include <new>

namespace tofu::sim {
namespace {

alignas(Vbgs) std::byte storage[sizeof(Vbgs)];
std::atomic<Vbgs*> instance{nullptr};
std::atomic<uint64_t> chaos_state{0};

Job& job() noexcept
{
    return Process::self().job();
}

uint64_t owner_of(void*, GateRef gate) noexcept
{
    return job().read_gate(node_of_gate(gate), gate_on_node(gate)).value_or(unknown_owner);
}

bool may_run_owner(void*, uint64_t word) noexcept
{
    const OwnerWord owner = OwnerWord::decode(word);
    return owner.taken && may_run(job().life(owner.process, owner.incarnation, 16));
}

/// Every other packet waits for a pull. It has its own sequence, so that barriers do not disturb the decisions for
/// one-sided communication of the same seed.
bool hold_packet(void*) noexcept
{
    uint64_t x = chaos_state.load(std::memory_order_relaxed);
    x = x * 6364136223846793005u + 1442695040888963407u;
    chaos_state.store(x, std::memory_order_relaxed); // a lost update is as random
    return x >> 63 != 0;
}

void wake_owner(void*, GateRef gate, uint64_t time) noexcept
{
    const OwnerWord owner = OwnerWord::decode(owner_of(nullptr, gate));
    if (owner.taken)
        wake_actor(owner.process, time);
}

void count_packets(void*, GateRef target, uint32_t path, uint64_t packets) noexcept
{
    Process& self = Process::self();
    const std::lock_guard guard(self.slow_path());
    FlowTable& table = segment_flows(self.segment().base);
    const unsigned place = flow_place(table, node_of_gate(target));
    if (FlowCounters* const row = flow_row(table, barrier_flows))
        row[place * path_ids + path % path_ids].packets += packets;
}

bool claim(void*, unsigned gate) noexcept
{
    return job().claim_gate(gate);
}

void release(void*, unsigned gate) noexcept
{
    job().release_gate(gate);
}

int back(void*, GateRef gate) noexcept
{
    return job().back_gates(node_of_gate(gate), gate_on_node(gate) / gates_per_tni);
}

} // namespace

int enter_vbgs() noexcept
{
    Process& self = Process::self();
    if (const int rc = self.enter(); rc != UTOFU_SUCCESS)
        return rc;
    if (process_vbgs() != nullptr)
        return UTOFU_SUCCESS;
    const std::lock_guard guard(self.slow_path());
    if (process_vbgs() != nullptr)
        return UTOFU_SUCCESS;
    VbgHost host;
    host.node = self.job().placement().node;
    host.topology = self.topology();
    host.gates = Gates(self.job().gate_area(), self.topology().num_nodes());
    host.circuit.owner_of = owner_of;
    host.circuit.runs = may_run_owner;
    host.circuit.count_packets = count_packets;
    if (is_exact()) {
        host.circuit.ended = wake_owner; // and nothing is held: when it is pulled is a matter of this machine
    } else if (self.environment().chaos) {
        chaos_state.store(self.environment().chaos->seed + self.job().process(), std::memory_order_relaxed);
        host.circuit.hold_packet = hold_packet;
    }
    host.claim = claim;
    host.release = release;
    host.back = back;
    instance.store(new (storage) Vbgs(host), std::memory_order_release); // partner: process_vbgs
    return UTOFU_SUCCESS;
}

Vbgs* process_vbgs() noexcept
{
    return instance.load(std::memory_order_acquire);
}

const Topology& process_topology() noexcept
{
    return Process::self().topology();
}

void reset_vbgs_in_child() noexcept
{
    instance.store(nullptr, std::memory_order_relaxed);
}

} // namespace tofu::sim
