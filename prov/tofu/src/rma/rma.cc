// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The short way of reads and writes. See rma.h.
#include "rma/rma.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <rdma/fi_errno.h>

namespace tofu {
namespace {

/// Flags that the short way does not serve: other completion levels, and what takes more than one communication.
constexpr std::uint64_t long_flags = FI_INJECT | FI_FENCE | FI_REMOTE_CQ_DATA | FI_INJECT_COMPLETE | FI_TRIGGER;

} // namespace

RmaEngine::RmaEngine(TxContext& tx) noexcept
    : tx_(tx),
      vcq_(tx.vcq()),
      access_(tx.vcq(), tx.peers(), tx.peer_memory()),
      // An unsignaled Put can be neither counted nor retried.
      plain_inject_(tx.reports().counters.write == nullptr && !tx.plan().shares_vcq),
      max_inline_(tx.vcq().backend().caps().max_piggyback_size),
      inject_flags_(vcq::flags_of(orders_writes(tx), false)),
      write_flags_(vcq::delivered_flags(orders_writes(tx), false)),
      read_flags_(vcq::delivered_flags(orders_reads(tx), false)),
      runner_(tx, access_),
      memory_(tx.rails().memory(Rails::own)),
      longest_(std::min(Rails::least_length - 1, tx.vcq().backend().caps().max_putget_size))
{
}

template <bool read, bool entry>
void RmaEngine::quick_done(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    const QuickOp& op = *static_cast<QuickOp*>(waiter);
    TxContext& tx = *op.context;
    constexpr std::uint64_t flags = FI_RMA | (read ? FI_READ : FI_WRITE);
    if (notice.code != UTOFU_SUCCESS) [[unlikely]] {
        report_failure(tx.reports(), flags, op.user_context, notice.code);
        return;
    }
    if constexpr (read) {
        const std::byte* from =
            RmaEngine::of(tx).landing_.get() + tx.quick().place_of(op) * max_quick_read;
        if (op.length == 8) [[likely]]
            std::memcpy(op.result, from, 8);
        else if (op.length != 0)
            std::memcpy(op.result, from, op.length);
    }
    if constexpr (entry)
        tx.reports().binding.cq->hand_over({.context = op.user_context, .flags = flags});
    if (Counter* const counter = read ? tx.reports().counters.read : tx.reports().counters.write)
        counter->count();
}

ssize_t RmaEngine::quick_refused(vcq::Post posted) noexcept
{
    if (posted == vcq::Post::error)
        return not_quick; // the runner meets the same error and reports it
    tx_.progress();
    return -FI_EAGAIN;
}

template <bool read, bool in_place>
ssize_t RmaEngine::go_quickly(void* buffer, std::size_t length, void* desc, fi_addr_t to, std::uint64_t address,
                              std::uint64_t key, void* context, std::uint64_t flags) noexcept
{
    Target target;
    const std::size_t limit = in_place ? longest_ : read ? max_quick_read : max_inline_;
    if ((flags & long_flags) != 0 || !goes_at_once(buffer, length, limit, to, address, key, target)) [[unlikely]]
        return not_quick;
    utofu_stadd_t local = 0;
    if (in_place ? !memory_.find_in_region(desc, buffer, length, !read, local)
                 : read && !landing_ && !make_landing()) [[unlikely]]
        return not_quick;
    const std::uint8_t place = vcq_.window().next();
    if (place == 0) [[unlikely]]
        return quick_refused(vcq::Post::busy);
    QuickOp& op = tx_.quick()[place];
    op.notify = tx_.reports().binding.reports(flags) ? &quick_done<read, true> : &quick_done<read, false>;
    op.user_context = context;
    const vcq::Signaled how{&op, read ? read_flags_ : write_flags_};
    vcq::Post posted;
    if constexpr (read) {
        op.result = buffer;
        op.length = in_place ? 0 : length;
        posted = vcq_.get(target.vcq, in_place ? local : landing_stadd_ + place * max_quick_read, target.stadd, length,
                          how);
    } else {
        posted = in_place ? vcq_.put(target.vcq, local, target.stadd, length, how)
                          : vcq_.put_inline(target.vcq, buffer, target.stadd, length, how);
    }
    return posted == vcq::Post::done ? 0 : quick_refused(posted);
}

template ssize_t RmaEngine::go_quickly<true, false>(void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t,
                                                    void*, std::uint64_t) noexcept;
template ssize_t RmaEngine::go_quickly<false, false>(void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t,
                                                     void*, std::uint64_t) noexcept;
template ssize_t RmaEngine::go_quickly<true, true>(void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t,
                                                   void*, std::uint64_t) noexcept;
template ssize_t RmaEngine::go_quickly<false, true>(void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t,
                                                    void*, std::uint64_t) noexcept;

RmaEngine::~RmaEngine()
{
    if (landing_)
        vcq_.dereg(landing_stadd_);
}

bool RmaEngine::make_landing() noexcept
{
    OwnMemory made(vcq::Window::size * max_quick_read);
    if (!made || vcq_.reg(made.get(), made.size(), false, landing_stadd_) != 0)
        return false;
    landing_ = std::move(made);
    return true;
}

} // namespace tofu
