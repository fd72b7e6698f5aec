// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cq: completions of operations. Written by requests and the message protocol; read by the application,
// whose reading drives progress. Calls progress and wait.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fi_eq.h>
#include <sys/types.h>

#include "lock.h"
#include "progress.h"
#include "wait.h"

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

    // --- the calls of fi_cq's operation table
    ssize_t read(void* buffer, std::size_t count, fi_addr_t* sources) noexcept;
    ssize_t read_error(fi_cq_err_entry* entry, std::uint64_t flags) noexcept;
    ssize_t wait_and_read(void* buffer, std::size_t count, fi_addr_t* sources, const void* condition,
                          int timeout_ms) noexcept;
    void signal() noexcept;
    [[nodiscard]] WaitObject& wait_object() noexcept { return wait_; }
    /// For poll sets: makes progress where the queue is empty; true where it is not.
    [[nodiscard]] bool look() noexcept;
    int close() noexcept;

  private:
    /// An entry of the ring; `err` 0 for a success.
    struct Slot {
        Completion completion;
        std::size_t overflow_length;
        int err;
        int prov_errno;
    };
    using Copy = std::size_t (*)(const Completion& completion, void* to) noexcept;

    CompletionQueue(Domain& domain, const fi_cq_attr& attr) noexcept;
    ~CompletionQueue();
    static bool ready(void* self) noexcept;
    [[nodiscard]] Slot& put() noexcept;
    [[gnu::noinline]] void grow() noexcept;
    [[nodiscard]] bool empty() const noexcept
    {
        return std::atomic_ref(tail_).load(std::memory_order_relaxed) == head_;
    }
    [[nodiscard]] ssize_t take(void* buffer, std::size_t count, fi_addr_t* sources) noexcept;

    Domain& domain_;
    Copy copy_;              ///< by format
    std::size_t entry_size_; ///< by format
    bool threshold_;         ///< FI_CQ_COND_THRESHOLD
    Lock lock_;
    std::unique_ptr<Slot[]> ring_;
    std::size_t mask_ = 0;
    // Counts of entries ever read and written; the ring holds those between.
    std::uint64_t head_ = 0;
    mutable std::uint64_t tail_ = 0;
    ProgressSet progress_;
    std::atomic<unsigned> signals_{0};
    std::atomic<int> users_{0};
    WaitObject wait_; ///< last: leaves its wait set and the thread before the rest goes
};

} // namespace tofu
