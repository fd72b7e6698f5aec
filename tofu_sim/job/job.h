// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the job: its directory and file, the slots of its processes, who owns which CQ and gate.
// Called by: job/process, tni/vcq (CQs), tni/remote (lookup), barrier/ (gates). Calls: job/liveness, files.
#pragma once

#include "job/environment.h"
#include "job/layout.h"

#include <optional>

namespace tofu::sim {

// Where a process sits and which CQs of its node are its own.
struct Placement {
    uint32_t node = 0;
    uint32_t local_rank = 0;
    uint32_t rank = 0;
    uint64_t cq_share = 0; // bit tni * cqs_per_tni + cq
};

// The place of process number `rank`. Nothing if it does not fit; the caller reports.
[[nodiscard]] std::optional<Placement> place_process(const Environment& environment,
                                                     uint32_t rank) noexcept;

// CQs of a node that its local process `local_rank` of `ppn` may use (0: not given, all of them).
[[nodiscard]] uint64_t share_of_cqs(uint32_t ppn, uint32_t local_rank) noexcept;

class Job {
  public:
    // Opens the directory and locks it; creates or checks the file. Errors are reported.
    [[nodiscard]] int open_locked(const Environment& environment) noexcept;
    // Takes a slot and fills it; under the lock.
    [[nodiscard]] int join(const Environment& environment, int segment_fd) noexcept;
    void unlock() noexcept;
    // Gives the slot back and removes the job's files if nobody else lives; takes the lock itself.
    void leave() noexcept;
    // After fork, in the child: forget everything, touch nothing shared.
    void forget() noexcept;

    [[nodiscard]] uint32_t process() const noexcept { return process_; }
    [[nodiscard]] uint32_t incarnation() const noexcept { return incarnation_; }
    [[nodiscard]] const Placement& placement() const noexcept { return placement_; }
    [[nodiscard]] uint64_t start_time() const noexcept { return start_time_; }

    // Copies from the file without touching a page that does not exist yet.
    [[nodiscard]] bool read_slot(uint32_t process, ProcessSlot& slot) const noexcept;
    [[nodiscard]] uint64_t read_cq(uint32_t node, unsigned cq_of_node) const noexcept;
    [[nodiscard]] uint64_t read_gate(uint32_t node, unsigned gate_of_node) const noexcept;
    // The process of that slot and incarnation (its low `bits`) still runs.
    [[nodiscard]] bool runs(uint32_t process, uint32_t incarnation, unsigned bits) const noexcept;

    // Our own node's entry, mapped and backed.
    [[nodiscard]] NodeEntry& own_node() const noexcept;

    // Takes a free CQ, or one left by a dead process, for this process; false if someone has it.
    [[nodiscard]] bool claim_cq(unsigned cq_of_node, CqMode mode, uint8_t components) noexcept;
    void update_cq(unsigned cq_of_node, CqMode mode, uint8_t components) noexcept;
    void release_cq(unsigned cq_of_node) noexcept;

    // The same for a barrier gate of the own node.
    [[nodiscard]] bool claim_gate(unsigned gate_of_node) noexcept;
    void release_gate(unsigned gate_of_node) noexcept;
    // State of the gates of all nodes, job_gates_offset in the file; pages of a TNI exist once they were backed.
    [[nodiscard]] std::byte* gate_area() const noexcept;
    [[nodiscard]] int back_gates(uint32_t node, unsigned tni) noexcept;

  private:
    [[nodiscard]] int open_directory(const char* name) noexcept;
    [[nodiscard]] int open_file(const Environment& environment) noexcept;
    [[nodiscard]] int start_file(const Environment& environment) noexcept;
    [[nodiscard]] int check_file(const Environment& environment, const JobHeader& header) noexcept;
    [[nodiscard]] int back_pages(size_t offset, size_t bytes) noexcept;
    [[nodiscard]] uint32_t count_running() const noexcept;
    [[nodiscard]] std::optional<uint32_t> find_slot() const noexcept;
    [[nodiscard]] ProcessSlot& slot(uint32_t process) const noexcept;
    [[nodiscard]] uint64_t cq_word(CqMode mode, uint8_t components) const noexcept;
    void remove_files() noexcept;
    void close_all() noexcept;

    int base_fd_ = -1;      // /dev/shm/tofu-sim-<uid>
    int directory_fd_ = -1; // the job's; carries the lock
    int file_fd_ = -1;
    std::byte* file_ = nullptr;
    size_t file_bytes_ = 0;
    uint32_t num_nodes_ = 0;
    char name_[65] = {};
    uint32_t process_ = 0;
    uint32_t incarnation_ = 0;
    uint64_t start_time_ = 0;
    Placement placement_;
    bool joined_ = false;
};

// Of a CqWord or GateWord.
struct OwnerWord {
    uint32_t process; // meaningful if taken
    uint32_t incarnation;
    CqMode mode;
    uint8_t components;
    bool taken;

    [[nodiscard]] static constexpr OwnerWord decode(uint64_t word) noexcept
    {
        return {static_cast<uint32_t>((word & 0xffff) - 1) & 0xffff,
                static_cast<uint32_t>(word >> 16 & 0xffff), static_cast<CqMode>(word >> 32 & 0xff),
                static_cast<uint8_t>(word >> 40 & 0xff), (word & 0xffff) != 0};
    }
    [[nodiscard]] constexpr uint64_t encode() const noexcept
    {
        return uint64_t{process + 1} | uint64_t{incarnation & 0xffff} << 16 |
               uint64_t{static_cast<uint8_t>(mode)} << 32 | uint64_t{components} << 40;
    }
};

} // namespace tofu::sim
