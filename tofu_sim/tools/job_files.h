// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The jobs of this user as the tofu-sim command sees them: from outside, reading only.
#pragma once

#include "barrier/state.h"
#include "clock/network.h"
#include "job/layout.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tofu::sim::tools {

/// A descriptor that is closed with its owner.
class File {
  public:
    File() noexcept = default;
    explicit File(int fd) noexcept : fd_(fd) {}
    File(File&& other) noexcept : fd_(other.release()) {}
    File& operator=(File&& other) noexcept;
    ~File();

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
    int release() noexcept;

  private:
    int fd_ = -1;
};

struct JobView {
    std::string name;
    File directory;
    File file;
    int open_error = 0;              ///< errno, where there is no file
    std::optional<JobHeader> header; ///< nothing while the file is being made, or damaged
};

struct ProcessView {
    uint32_t slot = 0;
    ProcessSlot entry{};
    bool running = false;
};

/// job/base_directory.h; closed if there is none.
[[nodiscard]] File open_base();
[[nodiscard]] std::string base_path();
[[nodiscard]] std::vector<std::string> list_jobs(const File& base);
[[nodiscard]] std::optional<JobView> open_job(const File& base, const std::string& name);

/// All taken slots, of running and dead processes; also of a job of another version, since slots show in all of them
/// which process runs.
[[nodiscard]] std::vector<ProcessView> read_processes(const JobView& job);
[[nodiscard]] NodeEntry read_node(const JobView& job, uint32_t node);

/// The gates of TNIs of which any has been set, by number of the TNI: node * tnis_per_node + tni. They are large.
void visit_gates(const JobView& job, const std::function<void(uint32_t tni, const TniGates& gates)>& visit);

/// The calendars of nodes that something has passed, where the job has a virtual clock.
void visit_calendars(const JobView& job,
                     const std::function<void(uint32_t node, const NodeCalendars& calendars)>& visit);

/// A read-only mapping of the segment of a running process.
class SegmentView {
  public:
    SegmentView() noexcept = default;
    SegmentView(const SegmentView&) = delete;
    SegmentView& operator=(const SegmentView&) = delete;
    ~SegmentView();

    [[nodiscard]] bool open(const ProcessView& process);
    [[nodiscard]] std::byte* base() const noexcept { return base_; }
    [[nodiscard]] uint32_t mrq_entries() const noexcept { return mrq_entries_; } ///< from ring to ring
    [[nodiscard]] uint32_t mrq_capacity(CqMode mode) const noexcept
    {
        return mode == CqMode::session ? mrq_session_ : mrq_free_;
    }

  private:
    std::byte* base_ = nullptr;
    size_t bytes_ = 0;
    uint32_t mrq_entries_ = 0;
    uint32_t mrq_free_ = 0;
    uint32_t mrq_session_ = 0;
};

enum class Removal { removed, in_use, failed };

/// Removes the job's files unless one of its processes runs.
[[nodiscard]] Removal remove_job(const File& base, const std::string& name);

} // namespace tofu::sim::tools
