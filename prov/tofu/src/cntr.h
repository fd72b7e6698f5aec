// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cntr: counts of completed operations and of errors. Counted up by requests, the message protocol and
// remote events; read and waited for by the application. Calls progress and wait.
#pragma once

#include <atomic>
#include <cstdint>

#include <rdma/fi_eq.h>

#include "progress.h"

namespace tofu {

class Domain;

class Counter final : public fid_cntr {
  public:
    static int open(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context);
    static Counter& of(fid_cntr* c) noexcept { return *static_cast<Counter*>(c); }

    /// Any thread. Wakes waiters where there are any (one load otherwise).
    void count(std::uint64_t n = 1) noexcept;
    void count_error(std::uint64_t n = 1) noexcept;

    [[nodiscard]] ProgressSet& progress() noexcept { return progress_; }
    void hold() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { users_.fetch_sub(1, std::memory_order_relaxed); }

  private:
    Counter(Domain& domain, const fi_cntr_attr& attr);
    Domain& domain_;
    ProgressSet progress_;
    std::atomic<std::uint64_t> value_{0};
    std::atomic<std::uint64_t> errors_{0};
    std::atomic<int> users_{0};
};

} // namespace tofu
