// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The part of a job that belongs to a node and its processes: their placement, the owners of CQs and gates, the areas
// of gates and of calendars. See job.h.
#include "job/job.h"

#include "job/kinship.h"
#include "job/liveness.h"
#include "job/report.h"

#include <utofu.h>

#include <cstddef>
#include <ctime>
#include <unistd.h>

namespace tofu::sim {

uint64_t share_of_cqs(uint32_t ppn, uint32_t local_rank) noexcept
{
    uint64_t share = 0;
    if (ppn <= cqs_per_tni) { // some CQs of each TNI
        const uint32_t count = cqs_per_tni / (ppn == 0 ? 1 : ppn);
        for (uint32_t tni = 0; tni < tnis_per_node; tni++) {
            for (uint32_t cq = 0; cq < count; cq++) {
                const uint32_t first = ppn == 0 ? 0 : local_rank % ppn * count;
                share |= uint64_t{1} << (tni * cqs_per_tni + first + cq);
            }
        }
    } else if (ppn <= cqs_per_node) { // one CQ on each of some TNIs
        const uint32_t count = cqs_per_node / ppn;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t number = local_rank % ppn * count + i;
            share |= uint64_t{1} << (number % tnis_per_node * cqs_per_tni + number / tnis_per_node);
        }
    }
    return share;
}

uint32_t processes_of_a_node(const Environment& environment) noexcept
{
    const uint32_t nodes = environment.topology.num_nodes();
    const bool shared = environment.ppn == 0 && environment.size && *environment.size > nodes;
    return shared ? (*environment.size + nodes - 1) / nodes : environment.ppn;
}

std::optional<Placement> place_process(const Environment& environment, uint32_t rank) noexcept
{
    const uint32_t nodes = environment.topology.num_nodes();
    const uint32_t ppn = processes_of_a_node(environment);
    Placement place;
    place.rank = rank;
    if (ppn != 0) {
        place.node = rank / ppn;
        place.local_rank = rank % ppn;
        if (place.node >= nodes || ppn > cqs_per_node)
            return std::nullopt;
    } else {
        place.node = rank % nodes;
        place.local_rank = rank / nodes;
    }
    place.cq_share =
        environment.cq_sharing == CqSharing::shares ? share_of_cqs(ppn, place.local_rank) : share_of_cqs(1, 0);
    return place;
}

/// The process that states this number, too, and is no relative of ours. A killed one takes a moment to vanish.
std::optional<ProcessSlot> Job::other_with_rank(uint32_t rank) const noexcept
{
    constexpr timespec pause{0, 1'000'000};
    constexpr int most_looks = 500;
    constexpr size_t together = 64;
    ProcessSlot block[together];
    for (uint32_t first = 0; first < max_processes; first += together) {
        if (!read(job_slots_offset + first * sizeof(ProcessSlot), block, sizeof block))
            return std::nullopt; // join() finds that, too
        for (uint32_t i = 0; i < together; i++) {
            const ProcessSlot& s = block[i];
            if (s.used.raw == 0 || s.rank != rank || s.states_rank == 0 || are_of_one_line(s.pid, ::getpid()))
                continue;
            Life life = member_life(file_.get(), first + i, s, true);
            for (int looks = 0; life == Life::unknown && looks < most_looks; looks++) {
                (void)::nanosleep(&pause, nullptr);
                life = member_life(file_.get(), first + i, s, true);
            }
            if (may_run(life))
                return s;
        }
    }
    return std::nullopt;
}

int Job::check_rank(uint32_t rank) const noexcept
{
    const auto other = other_with_rank(rank);
    if (!other)
        return UTOFU_SUCCESS;
    report("process %d (%.15s) of job '%s' has TOFU_SIM_RANK=%u, too: give each process another number, end that "
           "process, or choose another TOFU_SIM_JOB",
           other->pid, other->name, name_, rank);
    return UTOFU_ERR_INVALID_ARG;
}

std::optional<uint64_t> Job::read_cq(uint32_t node, unsigned cq_of_node) const noexcept
{
    uint64_t word = 0;
    const size_t offset =
        job_nodes_offset + node * sizeof(NodeEntry) + offsetof(NodeEntry, cqs) + cq_of_node * sizeof(CqWord);
    return read(offset, &word, sizeof word) ? std::optional(word) : std::nullopt;
}

std::optional<uint64_t> Job::read_gate(uint32_t node, unsigned gate_of_node) const noexcept
{
    uint64_t word = 0;
    const size_t offset =
        job_nodes_offset + node * sizeof(NodeEntry) + offsetof(NodeEntry, gates) + gate_of_node * sizeof(GateWord);
    return read(offset, &word, sizeof word) ? std::optional(word) : std::nullopt;
}

NodeEntry& Job::own_node() const noexcept
{
    return reinterpret_cast<NodeEntry*>(file_data_ + job_nodes_offset)[placement_.node];
}

uint64_t Job::cq_word(CqMode mode, uint8_t components) const noexcept
{
    return OwnerWord{process_, incarnation_, mode, components, true}.encode();
}

bool Job::claim_cq(unsigned cq_of_node, CqMode mode, uint8_t components) noexcept
{
    SharedWord<uint64_t>& word = own_node().cqs[cq_of_node].word;
    uint64_t seen = word.load_acquire();
    const OwnerWord owner = OwnerWord::decode(seen);
    if (owner.taken && may_run(life(owner.process, owner.incarnation, 16)))
        return false;
    return word.compare_exchange(seen, cq_word(mode, components));
}

bool Job::owns_cq(unsigned cq_of_node) const noexcept
{
    const OwnerWord owner = OwnerWord::decode(own_node().cqs[cq_of_node].word.load_acquire());
    return owner.taken && owner.process == process_ && owner.incarnation == (incarnation_ & 0xffff);
}

void Job::update_cq(unsigned cq_of_node, CqMode mode, uint8_t components) noexcept
{
    if (owns_cq(cq_of_node)) // not where two have met
        own_node().cqs[cq_of_node].word.store_release(cq_word(mode, components));
}

void Job::release_cq(unsigned cq_of_node) noexcept
{
    if (owns_cq(cq_of_node))
        own_node().cqs[cq_of_node].word.store_release(0);
}

bool Job::claim_gate(unsigned gate_of_node) noexcept
{
    SharedWord<uint64_t>& word = own_node().gates[gate_of_node].word;
    uint64_t seen = word.load_acquire();
    const OwnerWord owner = OwnerWord::decode(seen);
    if (owner.taken && may_run(life(owner.process, owner.incarnation, 16)))
        return false;
    return word.compare_exchange(seen, cq_word(CqMode::none, 0));
}

void Job::release_gate(unsigned gate_of_node) noexcept
{
    own_node().gates[gate_of_node].word.store_release(0);
}

std::byte* Job::gate_area() const noexcept
{
    return file_data_ + job_gates_offset(num_nodes_);
}

int Job::back_gates(uint32_t node, unsigned tni) noexcept
{
    const size_t index = size_t{node} * tnis_per_node + tni;
    return back_pages(job_gates_offset(num_nodes_) + index * tni_gates_bytes, tni_gates_bytes);
}

std::byte* Job::clock_area() const noexcept
{
    return file_data_ + job_clock_offset(num_nodes_);
}

int Job::back_clock(uint32_t node) noexcept
{
    return back_pages(job_clock_offset(num_nodes_) + node * clock_node_bytes, clock_node_bytes);
}

std::byte* Job::schedule_area() const noexcept
{
    return file_data_ + job_schedule_offset(num_nodes_);
}

int Job::back_schedule(uint32_t process) noexcept
{
    const size_t offset = job_schedule_offset(num_nodes_);
    const int rc = back_pages(offset, layout_unit);
    return rc != UTOFU_SUCCESS
               ? rc
               : back_pages(offset + layout_unit + process * schedule_actor_bytes, schedule_actor_bytes);
}

} // namespace tofu::sim
