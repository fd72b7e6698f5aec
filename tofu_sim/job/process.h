// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// This process as a member of its job: joined on the first uTofu call that needs it, left at exit.
#pragma once

#include "job/environment.h"
#include "job/job.h"
#include "job/segment.h"
#include "memory/memory.h"

#include <memory>
#include <mutex>

namespace tofu::sim {

class Process {
  public:
    /// The one process; a static object without destructor.
    [[nodiscard]] static Process& self() noexcept;

    /// Joins the job if this has not happened: UTOFU_SUCCESS, or the error of the first attempt, which has
    /// been reported on stderr. Any thread, any time.
    [[nodiscard]] int enter() noexcept;
    [[nodiscard]] bool joined() const noexcept { return state_.load_acquire() == joined_state; }

    /// Valid once joined.
    [[nodiscard]] const Environment& environment() const noexcept { return environment_; }
    [[nodiscard]] Job& job() noexcept { return job_; }
    [[nodiscard]] OwnSegment& segment() noexcept { return segment_; }
    [[nodiscard]] const Topology& topology() const noexcept { return environment_.topology; }
    [[nodiscard]] Coords coords() const noexcept { return coords_; }
    [[nodiscard]] ProcessMemory& memory() noexcept { return *memory_; }
    [[nodiscard]] uint32_t service_tid() const noexcept { return service_tid_; }

    /// Our own segment as a peer sees it.
    [[nodiscard]] Peer as_peer() const noexcept;

    /// Serialises creation, freeing and lookup of peers (slow paths only).
    [[nodiscard]] std::mutex& slow_path() noexcept { return slow_path_; }

    /// At exit: VCQs answer nothing any more, the job forgets us.
    void leave() noexcept;
    /// In a forked child: as if uTofu had never been called.
    void reset_in_child() noexcept;

  private:
    enum State : uint32_t { outside_state, joined_state, failed_state, left_state };

    [[nodiscard]] int join() noexcept;
    [[nodiscard]] int open_trace() noexcept;
    /// Others can see whether this process is there: it has VCQs or gates.
    [[nodiscard]] bool is_reachable() noexcept;
    [[nodiscard]] bool owns(const GateWord& gate) const noexcept;
    void vanish() noexcept;

    SharedWord<uint32_t> state_{outside_state};
    int error_ = 0;
    std::mutex join_mutex_;
    std::mutex slow_path_;
    Environment environment_;
    Job job_;
    OwnSegment segment_;
    Coords coords_{};
    std::unique_ptr<ProcessMemory> memory_; ///< with the service thread
    uint32_t service_tid_ = 0;
    int pid_ = 0;
};

/// In a forked child: the parent's object, which is neither used nor destroyed there, stays known to leak checkers.
void keep_reachable(void* object) noexcept;

/// Called by Process::leave while the VCQs still exist: what was posted is on its way and arrives.
void finish_vcqs_at_exit() noexcept;

/// Called in the child after fork by Process::reset_in_child, in this order; each directory resets its own.
void reset_vcqs_in_child() noexcept;
void reset_vbgs_in_child() noexcept;

} // namespace tofu::sim
