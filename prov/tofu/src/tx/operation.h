// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An operation under way and how it ends: where it reports (Reports), requests, which are tracked (Request), and
// operations of one communication, which are not (FastOp, FastOps). All engines use them, under the context's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "core/log.h"
#include "cq/counter.h"
#include "utofu/vcq.h"

namespace tofu {

// --- Reports, Request: the state of one operation of the application from its post to its completion, and where it
// completes

/// Rounds of progress that a call makes while it has to wait; after them it is refused.
inline constexpr unsigned rounds_of_a_call = 64;

/// The queue and counters that operations of a tx context report to.
struct Reports {
    Binding binding{}; ///< the completion queue
    TxCounters counters{};
    bool closing = false; ///< operations that fail from now on are discarded silently (fi_endpoint(3), fi_close)
};

/// The common part of all requests. When all communications of an operation (`pending`) have ended, the operation
/// completes once: an entry in the CQ if one is wanted or if it failed, and one count.
struct Request : vcq::CompletionHandler {
    const Reports* reports = nullptr; ///< of its context; null: its end is reported even while that closes
    CompletionQueue* cq = nullptr;
    Counter* counter = nullptr; ///< may be null
    Completion completion{};    ///< content of the entry
    std::uint32_t pending = 0;  ///< notices still to come, plus one while posting
    bool wants_entry = false;   ///< a success gets an entry (selective completion, fi_cq(3))
    int err = 0;                ///< positive FI_E* of the first failure
    int prov_errno = 0;         ///< its uTofu code

    /// Sets where the end of the operation is reported. `flags`: of its entry (fi_cq(3)); they also select the counter.
    void report_to(const Reports& to, std::uint64_t flags, void* context, bool entry) noexcept
    {
        reports = &to;
        cq = to.binding.cq.get();
        const TxCounters& counters = to.counters;
        counter = ((flags & FI_SEND) != 0   ? counters.send
                   : (flags & FI_READ) != 0 ? counters.read
                                            : counters.write)
                      .get();
        completion.context = context;
        completion.flags = flags;
        wants_entry = entry;
    }
};

/// Reports the request (entry, count). The caller gives it back to its pool afterwards.
void complete(Request& request) noexcept;

/// Notes a failure, unless there was an earlier one. `code` may be a success.
inline void note(Request& request, int utofu_code) noexcept
{
    if (utofu_code != UTOFU_SUCCESS && request.err == 0) [[unlikely]] {
        request.err = fi_error_of(utofu_code);
        request.prov_errno = utofu_code;
    }
}

/// Notes the end of one communication. Returns true if it was the last one.
inline bool count_down(Request& request, int utofu_code) noexcept
{
    note(request, utofu_code);
    return --request.pending == 0;
}

/// Reports the failure of an operation that has no request: `flags` are those of its entry (Request::report_to).
[[gnu::cold, gnu::noinline]] inline void report_failure(const Reports& to, std::uint64_t flags, void* context,
                                                        int utofu_code) noexcept
{
    Request request;
    request.report_to(to, flags, context, true);
    note(request, utofu_code);
    complete(request);
}

// --- FastOp, FastOps: a single communication, such as fi_write of 8 bytes or one native atomic. What has to be
// remembered until the notice comes lies in an array with one record for each place of the VCQ's completion window, so
// that nothing is allocated.

class TxContext;

/// One such operation, in one cache line.
struct alignas(least_line) FastOp : vcq::CompletionHandler {
    TxContext* context;   ///< that it was posted from, the same in all of one FastOps
    void* user_context;   ///< the application's
    void* result;         ///< where the fetched value or the bytes read go
    std::uint32_t length; ///< of what is read and has to be copied to `result`
    // Of an atomic:
    std::uint8_t kept;                               ///< kept_*
    static constexpr std::uint8_t kept_read = 1;     ///< all that follows: a read that may have to be done by a Get
    static constexpr std::uint8_t kept_indirect = 2; ///< `to`: the key was looked up
    std::uint8_t type;
    std::uint64_t to;   ///< fi_addr_t
    utofu_vcq_id_t vcq; ///< the target
    utofu_stadd_t stadd;
};
static_assert(sizeof(FastOp) == least_line);

/// All of a context, one for each completion tag.
class FastOps {
  public:
    /// False: no memory.
    [[nodiscard]] bool open(TxContext& context) noexcept
    {
        ops_.reset(new (std::nothrow) FastOp[vcq::CompletionTable::size]);
        for (unsigned i = 0; ops_ && i < vcq::CompletionTable::size; i++)
            ops_[i].context = &context;
        return ops_ != nullptr;
    }
    [[nodiscard]] FastOp& operator[](std::uint8_t tag) noexcept { return ops_[tag]; }
    [[nodiscard]] std::uint8_t tag_of(const FastOp& op) const noexcept
    {
        return static_cast<std::uint8_t>(&op - ops_.get());
    }

  private:
    std::unique_ptr<FastOp[]> ops_;
};

} // namespace tofu
