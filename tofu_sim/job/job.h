// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The job: its directory and file, the slots of its processes, the owners of CQs and gates.
#pragma once

#include "job/descriptors.h"
#include "job/environment.h"
#include "job/layout.h"
#include "job/liveness.h"

#include <optional>

namespace tofu::sim {

/// Where a process sits and which CQs of its node are its own.
struct Placement {
    uint32_t node = 0;
    uint32_t local_rank = 0;
    uint32_t rank = 0;
    uint64_t cq_share = 0; ///< bit tni * cqs_per_tni + cq
};

/// As set, or derived from the number of all processes; 0: neither.
[[nodiscard]] uint32_t processes_of_a_node(const Environment& environment) noexcept;
/// The place of process number `rank`. Nothing if it does not fit; the caller reports.
[[nodiscard]] std::optional<Placement> place_process(const Environment& environment, uint32_t rank) noexcept;

/// CQs of a node that its local process `local_rank` of `ppn` may use (0: not given, all of them).
[[nodiscard]] uint64_t share_of_cqs(uint32_t ppn, uint32_t local_rank) noexcept;

class Job {
  public:
    /// Opens the directory and locks it; creates or checks the file. Errors are reported.
    [[nodiscard]] int open_locked(const Environment& environment) noexcept;
    /// Takes a slot and fills it; under the lock.
    [[nodiscard]] int join(const Environment& environment, int segment_fd) noexcept;
    void unlock() noexcept;
    /// Releases the slot, and removes the job's files if no other process lives; takes the lock itself.
    void leave() noexcept;
    /// Instead of unlock, where joining failed: nothing is left of it.
    void give_up() noexcept;
    /// After fork, in the child: forget everything, touch nothing shared.
    void forget() noexcept;

    [[nodiscard]] uint32_t process() const noexcept { return process_; }
    [[nodiscard]] uint32_t incarnation() const noexcept { return incarnation_; }
    [[nodiscard]] const Placement& placement() const noexcept { return placement_; }
    /// Of the job: JobHeader.
    [[nodiscard]] uint64_t born() const noexcept { return reinterpret_cast<const JobHeader*>(file_data_)->born; }

    /// Copies from the file without touching a page that does not exist yet. False or nothing: the file cannot be read
    /// now, so its contents are unknown.
    [[nodiscard]] bool read_slot(uint32_t process, ProcessSlot& slot) const noexcept;
    [[nodiscard]] std::optional<uint64_t> read_cq(uint32_t node, unsigned cq_of_node) const noexcept;
    [[nodiscard]] std::optional<uint64_t> read_gate(uint32_t node, unsigned gate_of_node) const noexcept;
    /// Of the process of that slot and incarnation (its low `bits`).
    [[nodiscard]] Life life(uint32_t process, uint32_t incarnation, unsigned bits) const noexcept;

    [[nodiscard]] Oversubscription& oversubscription() const noexcept
    {
        return *reinterpret_cast<Oversubscription*>(file_data_ + oversubscription_offset);
    }
    /// Our own node's entry, mapped and backed.
    [[nodiscard]] NodeEntry& own_node() const noexcept;

    /// CQs of the own node (guide 2.5), by number tni * cqs_per_tni + cq. One thread at a time (Process::slow_path);
    /// other processes read the words at any time. claim_cq() takes a free CQ, or one left by a dead process, for this
    /// process; false: another live process has it. The others do nothing for a CQ that this process does not own:
    /// update_cq() publishes its mode and the components of its VCQs, release_cq() frees it.
    [[nodiscard]] bool claim_cq(unsigned cq_of_node, CqMode mode, uint8_t components) noexcept;
    void update_cq(unsigned cq_of_node, CqMode mode, uint8_t components) noexcept;
    void release_cq(unsigned cq_of_node) noexcept;
    [[nodiscard]] bool owns_cq(unsigned cq_of_node) const noexcept;

    /// The same for a barrier gate of the own node.
    [[nodiscard]] bool claim_gate(unsigned gate_of_node) noexcept;
    void release_gate(unsigned gate_of_node) noexcept;
    /// State of the gates of all nodes, job_gates_offset in the file; pages of a TNI exist once they were backed.
    [[nodiscard]] std::byte* gate_area() const noexcept;
    [[nodiscard]] int back_gates(uint32_t node, unsigned tni) noexcept;
    /// The same for when the TNIs and links of all nodes are busy.
    [[nodiscard]] std::byte* clock_area() const noexcept;
    [[nodiscard]] int back_clock(uint32_t node) noexcept;
    /// The turn; pages of the head and of a process's place exist once they were backed.
    [[nodiscard]] std::byte* schedule_area() const noexcept;
    [[nodiscard]] int back_schedule(uint32_t process) noexcept;

  private:
    [[nodiscard]] int open_directory(const char* name) noexcept;
    [[nodiscard]] int open_file(const Environment& environment) noexcept;
    [[nodiscard]] int start_file(const Environment& environment) noexcept;
    [[nodiscard]] int check_file(const Environment& environment, const JobHeader& header) noexcept;
    [[nodiscard]] int back_pages(size_t offset, size_t bytes) noexcept;
    [[nodiscard]] bool read(size_t offset, void* to, size_t bytes) const noexcept;
    [[nodiscard]] std::optional<uint32_t> find_slot(bool& locked) const noexcept;
    [[nodiscard]] std::optional<ProcessSlot> other_with_rank(uint32_t rank) const noexcept;
    [[nodiscard]] int check_rank(uint32_t rank) const noexcept;
    [[nodiscard]] ProcessSlot& slot(uint32_t process) const noexcept;
    [[nodiscard]] uint64_t cq_word(CqMode mode, uint8_t components) const noexcept;
    void remove_files(int directory) noexcept;
    void close_all() noexcept;

    /// A descriptor of the job's file: the one that is kept or, where the program has closed it, another for now.
    class FileNow {
      public:
        explicit FileNow(const Job& job) noexcept;
        ~FileNow();
        FileNow(const FileNow&) = delete;
        FileNow& operator=(const FileNow&) = delete;
        [[nodiscard]] int get() const noexcept { return fd_; }

      private:
        int fd_;
        int opened_ = -1;
    };

    KeptFile base_;      ///< job/base_directory.h
    KeptFile directory_; ///< the job's; carries the lock
    KeptFile file_;      ///< its mapping, too, keeps the lock of our slot
    std::byte* file_data_ = nullptr;
    char base_path_[64] = {};
    char path_[160] = {}; ///< of the directory
    size_t file_bytes_ = 0;
    uint32_t num_nodes_ = 0;
    char name_[65] = {};
    uint32_t process_ = 0;
    uint32_t incarnation_ = 0;
    uint64_t start_time_ = 0;
    uint64_t pid_namespace_ = 0;
    Placement placement_;
    bool joined_ = false;
};

/// Of a CqWord or GateWord.
struct OwnerWord {
    uint32_t process; ///< meaningful if taken
    uint32_t incarnation;
    CqMode mode;
    uint8_t components;
    bool taken;

    [[nodiscard]] static constexpr OwnerWord decode(uint64_t word) noexcept
    {
        return {static_cast<uint32_t>((word & 0xffff) - 1) & 0xffff, static_cast<uint32_t>(word >> 16 & 0xffff),
                static_cast<CqMode>(word >> 32 & 0xff), static_cast<uint8_t>(word >> 40 & 0xff), (word & 0xffff) != 0};
    }
    [[nodiscard]] constexpr uint64_t encode() const noexcept
    {
        return uint64_t{process + 1} | uint64_t{incarnation & 0xffff} << 16 |
               uint64_t{static_cast<uint8_t>(mode)} << 32 | uint64_t{components} << 40;
    }
};

} // namespace tofu::sim
