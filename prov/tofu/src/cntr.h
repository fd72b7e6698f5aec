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

    /// Any thread. Release: who reads the count sees what the operation wrote (partner: read()).
    void count(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_release); }
    void count_error(std::uint64_t n = 1) noexcept { errors_.fetch_add(n, std::memory_order_release); }

    [[nodiscard]] ProgressSet& progress() noexcept { return progress_; }
    void hold() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { users_.fetch_sub(1, std::memory_order_relaxed); }

    // --- the calls of fi_cntr's operation table
    std::uint64_t read() noexcept;
    std::uint64_t read_errors() noexcept;
    void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_release); }
    void set_errors(std::uint64_t value) noexcept { errors_.store(value, std::memory_order_release); }
    int wait(std::uint64_t threshold, int timeout_ms) noexcept;
    [[nodiscard]] fi_wait_obj wait_object() const noexcept { return wait_object_; }
    int close() noexcept;

  private:
    Counter(Domain& domain, fi_wait_obj object) noexcept;

    Domain& domain_;
    fi_wait_obj wait_object_;
    ProgressSet progress_;
    std::atomic<std::uint64_t> value_{0};
    std::atomic<std::uint64_t> errors_{0};
    std::atomic<int> users_{0};
};

} // namespace tofu
