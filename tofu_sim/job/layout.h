// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What lies in shared memory: the job file (one per job) and the segment (one per process). Data only.
//
// A segment is a sealed memfd of fixed, sparse size: nothing in it grows, a page costs memory once it is
// touched. Everything a process publishes is found at an offset that follows from its VCQ index, so a
// reader needs no offset or size from its peer except the one checked when the segment is mapped.
#pragma once

#include "job/shared_word.h"

#include <cstddef>
#include <cstdint>

namespace tofu::sim {

/// Areas begin at multiples of it: the same layout for every size of page, since files are mapped whole.
inline constexpr size_t layout_unit = 4096;

// ---- Quantities: tables 6.2 and 6.3 of the guide ----

inline constexpr unsigned tnis_per_node = 6;
inline constexpr unsigned cqs_per_tni = 9;
inline constexpr unsigned vcqs_per_cq = 8;
inline constexpr unsigned cqs_per_node = tnis_per_node * cqs_per_tni;
inline constexpr unsigned vcqs_per_node = cqs_per_node * vcqs_per_cq;
inline constexpr unsigned gates_per_tni = 48;
inline constexpr unsigned start_gates_per_tni = 16;
inline constexpr unsigned gates_per_node = gates_per_tni * tnis_per_node;

inline constexpr unsigned max_processes = 4096; ///< of a job; a process slot id has 12 bits
inline constexpr unsigned max_nodes = 1u << 18; ///< the largest installation has 158,976

/// Index of a VCQ on its node, 0 … vcqs_per_node - 1: (tni, cq, component).
[[nodiscard]] constexpr unsigned vcq_index(unsigned tni, unsigned cq, unsigned component) noexcept
{
    return (tni * cqs_per_tni + cq) * vcqs_per_cq + component;
}

// ---- Liveness ----

/// A word that the kernel marks (FUTEX_OWNER_DIED, thread id cleared) in the instant its owner dies, because
/// it is in the robust-futex list of the owner's service thread (job/liveness.h). While alive it holds that
/// thread's id; 0 means departed or freed. A reader remembers the id it saw and compares: one load.
/// Eight bytes, because the kernel's list node of each word is kept at the same distance in private memory.
struct AliveWord {
    SharedWord<uint32_t> owner;
    uint32_t reserved;
};
static_assert(sizeof(AliveWord) == 8);

inline constexpr uint32_t alive_tid_mask = 0x3fffffff; ///< FUTEX_TID_MASK

/// What vcq_alive holds. A session mode VCQ differs in a bit that the kernel leaves alone (FUTEX_WAITERS), so
/// that a VCQ that is opened again in another mode is not mistaken for the earlier one.
[[nodiscard]] constexpr uint32_t alive_vcq(uint32_t tid, bool session) noexcept
{
    return session ? tid | 0x80000000u : tid;
}

// ---- The job file ----

inline constexpr uint64_t job_magic = 0x746f66752d6a6f62;     ///< "tofu-job"
inline constexpr uint64_t segment_magic = 0x746f66752d736567; ///< "tofu-seg"
inline constexpr uint32_t layout_version = 12;

/// TOFU_SIM_CLOCK: none; each process has a clock of its own; and processes proceed in the order of their clocks.
enum class ClockMode : uint8_t { none = 0, tofud = 1, exact = 2 };

struct JobHeader {
    uint64_t magic; ///< written last: a file without it is not yet a job
    uint32_t version;
    uint32_t num_nodes;
    uint8_t shape[3]; ///< units of 2x3x2 along X, Y, Z
    uint8_t wraps;    ///< bits 0, 1, 2: X, Y, Z are a torus
    uint32_t ppn;     ///< processes per node as asked for, 0: not given
    uint64_t file_bytes;
    uint64_t pid_namespace; ///< of its processes: only there can their life be checked
    uint64_t born;          ///< nanoseconds since 1970: distinguishes jobs of one name
    uint8_t clock;          ///< ClockMode of its processes
    uint8_t reserved0[3];
    uint32_t size; ///< number of processes by the first one that states it, 0: none has
    uint32_t each; ///< processes_of_a_node() of its first process
    uint8_t reserved[4];
};
static_assert(sizeof(JobHeader) == 64);

/// Behind the header: how many processes the job has, and how many processors they may run on at a time, all together,
/// by their masks and by the quotas of their cgroups (job/oversubscription).
/// Written under the job's lock, read without.
struct Oversubscription {
    SharedWord<uint32_t> processes;
    SharedWord<uint32_t> processors;
    SharedWord<uint32_t> changes; ///< number of joins and leaves
    uint32_t quota;               ///< processors' time, the least of all processes; 0: none has a quota
    uint64_t mask[16];            ///< of the processors, as the kernel numbers them
};
inline constexpr size_t oversubscription_offset = 64;

/// Are the numbers of a header of this version such as its first process writes?
[[nodiscard]] constexpr bool is_sound_header(const JobHeader& header, uint64_t file_bytes) noexcept;

/// One process of the job. Claimed and released under the lock of the job directory; `incarnation` grows with
/// every new owner, so that data of an earlier owner is recognised. Whether the owner still runs is
/// found by member_life (job/liveness.h), never on a data path.
struct alignas(apart) ProcessSlot {
    SharedWord<uint32_t> used;        ///< 0 free, 1 taken, perhaps by a dead process
    SharedWord<uint32_t> incarnation; ///< 14 bits are used in claims of queues
    int32_t pid;
    int32_t segment_fd;  ///< number of the memfd in the owner: /proc/<pid>/fd/<segment_fd>
    uint64_t start_time; ///< field 22 of /proc/<pid>/stat: identifies a reused pid
    uint32_t node;
    uint32_t local_rank; ///< 0, 1, … among the processes of the node
    uint32_t rank;       ///< of the launcher, or the slot's number
    uint8_t holds_lock;  ///< 1: the owner holds the slot's lock (job/liveness.h). 0: the kernel has none
    uint8_t states_rank; ///< 1: `rank` is this process's alone (Environment::states_rank)
    uint16_t reserved;
    uint64_t cq_share; ///< the node's CQs this process may use: bit tni * cqs_per_tni + cq
    char name[16];     ///< of the program, for `tofu-sim show`
};
static_assert(sizeof(ProcessSlot) == 64 && offsetof(ProcessSlot, start_time) == 16);

/// A CQ of a node: 0 when free, else process slot + 1 (bits 0-15), incarnation (16-31), mode (32-39),
/// component bits (40-47). One word, changed by compare-and-swap, so a killed process leaves no half of it.
struct CqWord {
    SharedWord<uint64_t> word;
};
enum class CqMode : uint8_t { none = 0, free_mode = 1, exclusive = 2, session = 3 };

/// A barrier gate of a node: 0 when free, else process slot + 1 (bits 0-15), incarnation (16-31).
struct GateWord {
    SharedWord<uint64_t> word;
};

struct NodeEntry {
    CqWord cqs[cqs_per_node];       ///< [tni * cqs_per_tni + cq]
    GateWord gates[gates_per_node]; ///< [tni * gates_per_tni + gate]
};

inline constexpr size_t job_slots_offset = layout_unit;
static_assert(oversubscription_offset >= sizeof(JobHeader) &&
              oversubscription_offset + sizeof(Oversubscription) <= job_slots_offset);
inline constexpr size_t job_nodes_offset = job_slots_offset + max_processes * sizeof(ProcessSlot);

/// The state of the barrier gates (barrier/state.h), by node and TNI. It stays when an owner dies, so that what
/// a dead process had begun can be continued; pages are backed when a gate is allocated.
inline constexpr size_t tni_gates_bytes = 40960;

[[nodiscard]] constexpr size_t job_gates_offset(size_t num_nodes) noexcept
{
    return (job_nodes_offset + num_nodes * sizeof(NodeEntry) + layout_unit - 1) & ~(layout_unit - 1);
}
/// When the TNIs and links of a node are busy, and how long without credit (clock/network), for the virtual clock.
/// Backed on use.
inline constexpr size_t clock_node_bytes = 16384;

[[nodiscard]] constexpr size_t job_clock_offset(size_t num_nodes) noexcept
{
    return job_gates_offset(num_nodes) + num_nodes * tnis_per_node * tni_gates_bytes;
}
/// The turn in exact mode (clock/schedule): a head, and a place for each process. Backed where there is that
/// mode.
inline constexpr size_t schedule_actor_bytes = 256;
inline constexpr size_t schedule_bytes = layout_unit + max_processes * schedule_actor_bytes;
[[nodiscard]] constexpr size_t job_schedule_offset(size_t num_nodes) noexcept
{
    return job_clock_offset(num_nodes) + num_nodes * clock_node_bytes;
}
[[nodiscard]] constexpr size_t job_file_bytes(size_t num_nodes) noexcept
{
    return job_schedule_offset(num_nodes) + schedule_bytes;
}

constexpr bool is_sound_header(const JobHeader& header, uint64_t file_bytes) noexcept
{
    const uint64_t units = uint64_t{header.shape[0]} * header.shape[1] * header.shape[2];
    return header.magic == job_magic && units != 0 && header.num_nodes <= max_nodes && header.num_nodes == units * 12 &&
           header.file_bytes == file_bytes && header.file_bytes == job_file_bytes(header.num_nodes);
}

// ---- The segment of a process ----

inline constexpr size_t service_area_bytes = size_t{1} << 20; ///< memory/: mailbox and tables
inline constexpr size_t clock_area_bytes = size_t{1} << 20;   ///< clock/: when bytes have arrived
inline constexpr size_t vcq_control_bytes = layout_unit;      ///< queue positions, session state
inline constexpr size_t stag_table_bytes = size_t{1} << 20;   ///< memory/: STag table of one VCQ
inline constexpr size_t vcq_queue_bytes = size_t{1} << 20;    ///< session mode: shared TOQ and TCQ
inline constexpr size_t mrq_entry_bytes = 64;
inline constexpr size_t max_mrq_entries = size_t{1} << 21;

/// What the owner has posted, counted by where it went; only for show: readers may see it late. `bytes_back` is the
/// payload of gets, which travels towards the poster.
struct FlowCounters {
    uint64_t operations;
    uint64_t bytes_out;
    uint64_t bytes_back;
    uint64_t packets; ///< of barriers: of settings that its gates no longer have
};
static_assert(sizeof(FlowCounters) == 32);

/// A row of counters for each VCQ, so that each has one writer at a time (guide 2.5) and plain adds lose nothing, and
/// one for barriers. In it, those of a node by path ID, at a place that is the same in all rows, found by open
/// addressing. Place 0 belongs to no node: for NOPs, for access without a target, and for nodes beyond the capacity.
inline constexpr unsigned path_ids = 16;
inline constexpr unsigned max_flow_nodes = 4096;
inline constexpr unsigned flow_rows = vcqs_per_node + 1;
inline constexpr unsigned barrier_flows = vcqs_per_node;
inline constexpr size_t largest_page = 65536; ///< aarch64; rights are given by the page
struct FlowTable {
    SharedWord<uint32_t> nodes[max_flow_nodes]; ///< number + 1, or 0: free; stored once
    SharedWord<uint32_t> used[flow_rows];       ///< not 0: the row has been written. Looking at others would back them
    /// No alignas: a mapping begins at a page of this system, not at one of the largest kind.
    uint8_t unused[largest_page - sizeof(nodes) - sizeof(used)];
    FlowCounters flows[flow_rows][max_flow_nodes * path_ids]; ///< place * path_ids + path ID
};
static_assert(offsetof(FlowTable, flows) == largest_page && sizeof(FlowTable::flows[0]) % largest_page == 0);

struct SegmentHeader {
    uint64_t magic;
    uint32_t version;
    uint32_t mrq_entries; ///< stride of the MRQ rings: the larger of the two below
    uint64_t segment_bytes;
    int32_t pid;
    uint32_t process;     ///< slot in the job file
    uint32_t incarnation; ///< of that slot
    uint32_t node;
    uint32_t mrq_entries_free; ///< capacity of a ring: powers of two, 2048 … 2097152
    uint32_t mrq_entries_session;
    SharedWord<uint32_t> service_callback_due; ///< not 0: a peer rang the service thread for job/service_callback.h
    uint8_t reserved0[12];

    /// Doorbell of tofu_sim_wait (api/wait.cc): posters look at `sleepers` (one load) and ring when it is set.
    alignas(apart) SharedWord<uint32_t> sleepers;
    alignas(apart) SharedWord<uint32_t> doorbell;

    alignas(apart) AliveWord alive; ///< of the process
    /// Of each VCQ, by vcq_index: alive_vcq(tid, mode) while the VCQ exists, so that one load answers both
    /// "is the process alive" and "has the VCQ been created and not freed".
    alignas(apart) AliveWord vcq_alive[vcqs_per_node];
};
static_assert(sizeof(SegmentHeader) <= layout_unit && offsetof(SegmentHeader, sleepers) == 64);

inline constexpr size_t segment_service_offset = layout_unit;
inline constexpr size_t segment_clock_offset = segment_service_offset + service_area_bytes;
inline constexpr size_t segment_flows_offset =
    (segment_clock_offset + clock_area_bytes + largest_page - 1) & ~(largest_page - 1);
inline constexpr size_t segment_vcqs_offset = (segment_flows_offset + sizeof(FlowTable) + 0xfffff) & ~size_t{0xfffff};

/// Inside the region of one VCQ.
inline constexpr size_t vcq_stag_table_offset = size_t{1} << 20; ///< control page in front
inline constexpr size_t vcq_queue_offset = vcq_stag_table_offset + stag_table_bytes;
inline constexpr size_t vcq_mrq_offset = vcq_queue_offset + vcq_queue_bytes;

[[nodiscard]] constexpr size_t vcq_region_bytes(size_t mrq_entries) noexcept
{
    return vcq_mrq_offset + ((mrq_entries * mrq_entry_bytes + 0xfffff) & ~size_t{0xfffff});
}
[[nodiscard]] constexpr size_t vcq_region_offset(unsigned index, size_t mrq_entries) noexcept
{
    return segment_vcqs_offset + index * vcq_region_bytes(mrq_entries);
}
[[nodiscard]] constexpr size_t segment_total_bytes(size_t mrq_entries) noexcept
{
    return vcq_region_offset(vcqs_per_node, mrq_entries);
}

/// Where the parts of a mapped segment are. `base` is the start of a mapping of segment_total_bytes.
[[nodiscard]] inline SegmentHeader& segment_header(std::byte* base) noexcept
{
    return *reinterpret_cast<SegmentHeader*>(base);
}
[[nodiscard]] inline std::byte* segment_service_area(std::byte* base) noexcept
{
    return base + segment_service_offset;
}
[[nodiscard]] inline FlowTable& segment_flows(std::byte* base) noexcept
{
    return *reinterpret_cast<FlowTable*>(base + segment_flows_offset);
}

} // namespace tofu::sim
