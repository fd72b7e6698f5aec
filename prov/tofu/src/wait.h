// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Blocking readers. A reader that finds nothing sleeps until something may have come for one of its VCQs: the
// backend wakes it where it can (tofu_sim_wait), else it polls with growing pauses. Called by cq, cntr and eq.
#pragma once

#include <chrono>
#include <cstdint>

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

namespace tofu {

class Domain;
class ProgressSet;

/// The end of a wait: `timeout_ms` from now, never for a negative one (fi_cq(3), fi_cntr(3)).
class Deadline {
  public:
    explicit Deadline(int timeout_ms) noexcept;
    [[nodiscard]] bool passed() const noexcept;
    /// Milliseconds left, at least 0 and at most `most`.
    [[nodiscard]] int left_ms(int most) const noexcept;

  private:
    std::chrono::steady_clock::time_point end_;
    bool never_;
};

/// One reader's sleep between two looks; starts anew with every wait.
class Sleeper {
  public:
    Sleeper(Domain& domain, ProgressSet& set, const Deadline& deadline) noexcept;
    /// Sleeps a while, or not at all at first; false when the deadline has passed. Never longer than the bound
    /// within which a signal from another thread of this process is to be seen.
    [[nodiscard]] bool sleep() noexcept;

  private:
    Domain& domain_;
    ProgressSet& set_;
    const Deadline& deadline_;
    unsigned rounds_ = 0;
};

/// Which wait objects a queue or counter can have: FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD.
[[nodiscard]] bool wait_object_offered(fi_wait_obj object) noexcept;

int open_wait_set(fid_fabric* fabric, fi_wait_attr* attr, fid_wait** set);
int try_wait(fid_fabric* fabric, struct fid** fids, int count);
int open_poll_set(fid_domain* domain, fi_poll_attr* attr, fid_poll** set);

} // namespace tofu
