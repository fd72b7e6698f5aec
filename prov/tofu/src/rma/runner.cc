// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a call becomes a read or write: it is checked, its keys and buffers are found, and its first pieces are posted
// (progress.cc has the rest of its life). See runner.h.
#include "rma/runner.h"

#include <algorithm>

#include <rdma/fi_errno.h>

#include "core/limits.h"
#include "mem/local_buffer.h"

namespace tofu {

RmaRunner::RmaRunner(TxContext& tx, RemoteAccess& access) noexcept
    : tx_(tx),
      access_(access),
      waiting_(tx.pending(), this, Pending::Stream::steps_of<RmaRunner, RmaOp>),
      ops_(std::max<std::size_t>(tx.plan().attr.size, 64)),
      buffers_(tx),
      caps_(tx.vcq().backend().caps()),
      strong_{orders_writes(tx), orders_reads(tx)}
{
    constexpr std::uint64_t order_behind_writes = FI_ORDER_RAW | FI_ORDER_RMA_RAW;
    if ((tx.plan().attr.msg_order & order_behind_writes) != 0)
        access_.order_reads();
    if (strong_[0] || strong_[1])
        access_.order_regions();
}

bool orders_writes(const TxContext& tx) noexcept
{
    constexpr std::uint64_t orders = FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_WAR | FI_ORDER_RMA_WAR | FI_ORDER_WAS;
    return (tx.plan().attr.msg_order & orders) != 0;
}

bool orders_reads(const TxContext& tx) noexcept
{
    constexpr std::uint64_t orders = FI_ORDER_RAW | FI_ORDER_RMA_RAW | FI_ORDER_RAR | FI_ORDER_RMA_RAR | FI_ORDER_RAS;
    return (tx.plan().attr.msg_order & orders) != 0;
}

// --- taking a call in

int check(const RmaCall& call, const TxContext& tx, std::size_t& total) noexcept
{
    const fi_msg_rma& msg = call.msg;
    if (msg.iov_count > rma_iov_limit || msg.rma_iov_count > rma_remote_limit ||
        (msg.iov_count != 0 && msg.msg_iov == nullptr) || (msg.rma_iov_count != 0 && msg.rma_iov == nullptr))
        return -FI_EINVAL;
    if (any_nowhere(msg.msg_iov, msg.iov_count)) [[unlikely]]
        return refuse_nowhere();
    std::size_t local = 0;
    std::size_t remote = 0;
    if (!total_length(msg.msg_iov, msg.iov_count, local))
        return -FI_EMSGSIZE;
    for (std::size_t i = 0; i < msg.rma_iov_count; i++)
        if (__builtin_add_overflow(remote, msg.rma_iov[i].len, &remote))
            return -FI_EMSGSIZE;
    if (local != remote)
        return -FI_EINVAL;
    if (local > limits::max_msg_size)
        return -FI_EMSGSIZE;
    if ((call.flags & FI_INJECT) && (call.read || local > std::min(tx.plan().attr.inject_size, rma_inject_limit)))
        return call.read ? -FI_EBADFLAGS : -FI_EMSGSIZE;
    if ((call.flags & FI_REMOTE_CQ_DATA) && tx.engines()[Engine::messages] == nullptr)
        return -FI_EOPNOTSUPP;
    total = local;
    return 0;
}

void RmaRunner::describe(RmaOp& op, const RmaCall& call, const Peer& peer, std::size_t total) noexcept
{
    const fi_msg_rma& msg = call.msg;
    op.notify = on_notice;
    op.report_to(tx_.reports(), FI_RMA | (call.read ? FI_READ : FI_WRITE), msg.context,
                 !call.silent && tx_.reports().binding.reports(call.flags));
    op.runner = this;
    op.call = waiting_.next_call();
    op.peer = peer;
    op.access = call.read ? FI_REMOTE_READ : FI_REMOTE_WRITE;
    for (std::size_t i = 0; i < msg.rma_iov_count; i++)
        access_.add(op, msg.rma_iov[i].addr, msg.rma_iov[i].len, msg.rma_iov[i].key);
    op.to = msg.addr;
    op.data = msg.data;
    op.read = call.read;
    // submit() waits for signaled operations before a fence; the strong order flag orders it behind unsignaled ones.
    op.fenced = (call.flags & FI_FENCE) != 0;
    op.strong_order = strong_[call.read] || op.fenced;
    op.remote_notice = peer.counts_events;
    if (op.remote_notice && op.targets > 1)
        op.find_further(op.targets - 1u, op.read, !op.read);
    op.last.notify = on_last;
    op.last.op = &op;
    for (unsigned i = 0; op.by_directory && i < op.targets; i++) {
        op.segment[i].notify = on_segment;
        op.segment[i].op = &op;
    }
    op.remote_data = (call.flags & FI_REMOTE_CQ_DATA) != 0;
    op.data_at_once = call.silent && !op.by_directory;
    // One Put only, so that a late failure is reported once. No event: its account must learn if the event fails to
    // come.
    op.sent_suffices = !call.read && !op.by_directory && (call.flags & FI_INJECT_COMPLETE) != 0 &&
                       msg.iov_count <= 1 && msg.rma_iov_count <= 1 && total <= caps_.max_putget_size && !op.remote_notice;
    posted_unsignaled_ |= op.sent_suffices;
    op.local_count = static_cast<std::uint8_t>(msg.iov_count);
    op.total = total;
    std::copy_n(msg.msg_iov, msg.iov_count, op.local);
}

ssize_t RmaRunner::submit(const RmaCall& call) noexcept
{
    std::size_t total = 0;
    if (int ret = check(call, tx_, total); ret != 0) [[unlikely]]
        return ret;
    const Peer* peer = tx_.peers().find(call.msg.addr);
    if (peer == nullptr) [[unlikely]]
        return -FI_EINVAL;
    // An operation that waits keeps its place: no later one to the same peer overtakes it.
    if (waiting_.holds(Pending::line_of(*peer))) [[unlikely]] {
        tx_.progress();
        if (waiting_.holds(Pending::line_of(*peer)))
            return tx_.again(Stat::again_behind);
    }
    if ((call.flags & FI_FENCE) && !tx_.fence().passed(call.msg.addr, call.flags)) [[unlikely]]
        return -FI_EAGAIN;
    RmaOp* op = ops_.alloc();
    if (op == nullptr) [[unlikely]] {
        tx_.progress();
        op = ops_.alloc();
        if (op == nullptr)
            return tx_.again(Stat::again_operations);
    }
    describe(*op, call, *peer, total);
    if (total == 0 && op->remote_notice) [[unlikely]] {
        if (const int ret = begin_empty(*op, call.msg); ret != 0) {
            drop(*op);
            return ret;
        }
    }
    if (total != 0) {
        const auto progress = [this] { return tx_.try_progress(); };
        int ret = access_.resolve_now(*op, progress);
        if (ret == asked_anew) [[unlikely]]
            return wait_for_key(*op, call);
        if (ret == 0 && op->remote_notice) [[unlikely]]
            ret = access_.pay_now(*op, op->prov_errno, progress);
        if (ret != 0 && !refuses_call(ret)) { // the operation fails, not the call
            op->err = -ret;
            op->posted = total;
            finish(*op);
            return 0;
        }
        if (ret == 0)
            ret = buffers_.attach(*op, call);
        if (ret != 0) [[unlikely]] {
            drop(*op);
            return ret;
        }
    }
    return launch(*op);
}

/// Posts a new operation. 0, or -FI_EAGAIN and the operation is gone. Progress that was made since it was called may
/// have let an earlier one wait, which it must not overtake.
ssize_t RmaRunner::launch(RmaOp& op) noexcept
{
    const auto try_to_post = [&] {
        return waiting_.holds(Pending::line_of(op.peer)) ? Lack::peer : post_some(op);
    };
    Lack lack = try_to_post();
    if (lack != Lack::nothing && op.posted == 0) [[unlikely]] {
        tx_.progress();
        lack = try_to_post();
        if (lack != Lack::nothing && op.posted == 0) {
            drop(op);
            return -FI_EAGAIN;
        }
    }
    if (lack == Lack::nothing && op.remote_data && op.data_at_once)
        send_data_at_once(op);
    if (lack != Lack::nothing)
        enqueue(op, lack);
    else if (op.pending == 0)
        finish(op);
    return 0;
}

} // namespace tofu
