// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Short operations: those that are a single communication, such as fi_write of 8 bytes or one native atomic. What has
// to be remembered until the notice comes lies in an array with one record for each place of the VCQ's completion
// window, so that nothing is allocated. Filled in and ended by rma and atomic under the context's lock; calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "core/limits.h"
#include "utofu/vcq.h"

namespace tofu {

class TxContext;

/// One such operation. What an operation that succeeds needs is in one cache line. One
/// thread at a time has all of a context: neighbours may share a line.
struct alignas(least_line) QuickOp : vcq::Waiter {
    TxContext* context;   ///< that it was posted from, the same in all of one QuickOps
    void* user_context;   ///< the application's
    void* result;         ///< where the fetched value or the bytes read go
    std::size_t length;   ///< of what is read and has to be copied to `result`
    utofu_vcq_id_t home;  ///< the peer's
    utofu_stadd_t stadd;  ///< the target
    bool kept;            ///< all that follows: it may have to go the long way
    alignas(least_line) std::uint64_t key; ///< by which the target is found anew
    utofu_vcq_id_t vcq;   ///< of the peer, that home or an annex
    std::uint64_t address;
    std::uint64_t to;     ///< fi_addr_t
    std::uint64_t operand;
    std::uint64_t compare;
    std::uint64_t call;   ///< its number in the order of calls (tx/pending_queue.h)
    std::uint8_t family;
    std::uint8_t op;
    std::uint8_t type;
};
static_assert(sizeof(QuickOp) == 128);

/// All of a context, one for each place of the window.
class QuickOps {
  public:
    /// False: no memory.
    [[nodiscard]] bool open(TxContext& context) noexcept
    {
        ops_.reset(new (std::nothrow) QuickOp[vcq::Window::size]);
        for (unsigned i = 0; ops_ && i < vcq::Window::size; i++)
            ops_[i].context = &context;
        return ops_ != nullptr;
    }
    [[nodiscard]] QuickOp& operator[](std::uint8_t place) noexcept { return ops_[place]; }
    [[nodiscard]] std::uint8_t place_of(const QuickOp& op) const noexcept
    {
        return static_cast<std::uint8_t>(&op - ops_.get());
    }

  private:
    std::unique_ptr<QuickOp[]> ops_;
};

} // namespace tofu
