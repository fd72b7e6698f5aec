// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cq: completions of operations. Written by requests and the message protocol; read by the application,
// whose reading drives progress. Calls progress and wait.
#pragma once

#include <atomic>
#include <cstdint>

#include <rdma/fi_eq.h>

#include "lock.h"
#include "progress.h"

namespace tofu {

class Domain;

/// A successful completion in the widest format; the queue stores what its format needs.
struct Completion {
    void* context = nullptr;
    std::uint64_t flags = 0; ///< FI_SEND | FI_TAGGED, FI_RMA | FI_WRITE, ... as the manual page fi_cq(3) says
    std::size_t length = 0;
    void* buffer = nullptr;
    std::uint64_t data = 0;
    std::uint64_t tag = 0;
    fi_addr_t source = FI_ADDR_NOTAVAIL;
};

class CompletionQueue final : public fid_cq {
  public:
    static int open(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context);
    static CompletionQueue& of(fid_cq* c) noexcept { return *static_cast<CompletionQueue*>(c); }

    /// Never fails and never loses an entry: beyond its size the queue grows (slow path). Takes the queue's
    /// lock; callers hold at most home and endpoint locks.
    void write(const Completion& completion) noexcept;
    /// One error entry (fi_cq(3), struct fi_cq_err_entry); err is a positive FI_E*, prov_errno a uTofu code.
    void write_error(const Completion& completion, int err, int prov_errno,
                     std::size_t overflow_length = 0) noexcept;

    [[nodiscard]] ProgressSet& progress() noexcept { return progress_; }
    void hold() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { users_.fetch_sub(1, std::memory_order_relaxed); }

  private:
    CompletionQueue(Domain& domain, const fi_cq_attr& attr);
    Domain& domain_;
    ProgressSet progress_;
    Lock lock_;
    std::atomic<int> users_{0};
};

} // namespace tofu
