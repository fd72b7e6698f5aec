// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See rma.h.
#include "rma/rma.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/limits.h"
#include "cq/domain_base.h"
#include "tx/ep_handle.h"

namespace tofu {

/// Bytes up to which a copy is cheaper than registering the buffer, and than looking up the registration of a buffer
/// that lies in a region.
constexpr std::size_t copy_limit = BouncePool::large_size;
constexpr std::size_t copy_limit_in_region = BouncePool::small_size;

/// Does the context's msg_order ask for an order of writes, of reads?
static bool orders_writes(const TxContext& tx) noexcept
{
    constexpr std::uint64_t orders = FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_WAR | FI_ORDER_RMA_WAR | FI_ORDER_WAS;
    return (tx.config().attr.msg_order & orders) != 0;
}

static bool orders_reads(const TxContext& tx) noexcept
{
    constexpr std::uint64_t orders = FI_ORDER_RAW | FI_ORDER_RMA_RAW | FI_ORDER_RAR | FI_ORDER_RMA_RAR | FI_ORDER_RAS;
    return (tx.config().attr.msg_order & orders) != 0;
}

int Rma::attach(RmaOp& op, const RmaCall& call) noexcept
{
    const bool keep = (call.flags & FI_INJECT) != 0; // the application may reuse its buffer when the call returns
    if (!op.read && op.total <= max_inline_) {
        const bool one_piece = op.local_count <= 1 && op.targets <= 1;
        if (!keep || one_piece)
            return 0;
    }
    void* const* const desc = call.msg.desc;
    const bool in_region = desc != nullptr && op.local_count != 0 && desc[0] != nullptr;
    if (op.total <= (in_region && !keep ? copy_limit_in_region : copy_limit)) {
        op.bounce = bounces_.alloc(op.total);
        if (op.bounce.data != nullptr) {
            if (!op.read)
                gather(op.bounce.data, op.local, op.local_count, op.total);
            return 0;
        }
        if (keep)
            return -FI_EAGAIN;
    }
    if (op.total >= Rails::least_length && may_leave_ && !op.fenced && !op.sent_suffices && !op.data_at_once)
        op.rail = tx_.rails().acquire(Rails::By::us, op.peer.target_vcq, op.total);
    LocalMemory& memory = tx_.rails().memory(op.rail);
    for (unsigned i = 0; i < op.local_count; i++, op.acquired++) {
        op.refs[i] = {};
        const auto [base, length] = op.local[i];
        if (length == 0)
            continue;
        if (int ret = memory.acquire(base, length, !op.read, op.refs[i], desc != nullptr ? desc[i] : nullptr); ret != 0)
            return ret;
    }
    return 0;
}

void Rma::give_back(RmaOp& op) noexcept
{
    if (op.bounce.data != nullptr)
        bounces_.release(op.bounce);
    op.bounce = {};
    for (unsigned i = 0; i < op.acquired; i++)
        tx_.rails().memory(op.rail).release(op.refs[i]);
    op.acquired = 0;
    if (op.rail != 0) [[unlikely]]
        tx_.rails().release(Rails::By::us, op.rail);
    op.rail = 0;
}

// --- taking a call in

int check(const RmaCall& call, const TxContext& tx, std::size_t& total) noexcept
{
    const fi_msg_rma& msg = call.msg;
    if (msg.iov_count > rma_iov_limit || msg.rma_iov_count > rma_remote_limit ||
        (msg.iov_count != 0 && msg.msg_iov == nullptr) || (msg.rma_iov_count != 0 && msg.rma_iov == nullptr))
        return -FI_EINVAL;
    if (any_null(msg.msg_iov, msg.iov_count)) [[unlikely]]
        return refuse_null();
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
    if ((call.flags & FI_INJECT) && (call.read || local > std::min(tx.config().attr.inject_size, rma_inject_limit)))
        return call.read ? -FI_EBADFLAGS : -FI_EMSGSIZE;
    if ((call.flags & FI_REMOTE_CQ_DATA) && tx.engines()[Engine::messages] == nullptr)
        return -FI_EOPNOTSUPP;
    total = local;
    return 0;
}

void Rma::describe(RmaOp& op, const RmaCall& call, const Peer& peer, std::size_t total) noexcept
{
    const fi_msg_rma& msg = call.msg;
    op.notify = on_notice;
    op.report_to(tx_.reports(), FI_RMA | (call.read ? FI_READ : FI_WRITE), msg.context,
                 !call.is_inject && tx_.reports().binding.reports(call.flags));
    op.engine = this;
    op.peer = peer;
    op.access = call.read ? FI_REMOTE_READ : FI_REMOTE_WRITE;
    for (std::size_t i = 0; i < msg.rma_iov_count; i++)
        op.add(msg.rma_iov[i].addr, msg.rma_iov[i].len, msg.rma_iov[i].key);
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
    op.remote_data = (call.flags & FI_REMOTE_CQ_DATA) != 0;
    op.data_at_once = call.is_inject;
    // One Put only, so that a late failure is reported once. No event: its account must learn if the event fails to
    // come.
    op.sent_suffices = !call.read && (call.flags & FI_INJECT_COMPLETE) != 0 && msg.iov_count <= 1 &&
                       msg.rma_iov_count <= 1 && total <= caps_.max_putget_size && !op.remote_notice;
    posted_unsignaled_ |= op.sent_suffices;
    op.local_count = static_cast<std::uint8_t>(msg.iov_count);
    op.total = total;
    std::copy_n(msg.msg_iov, msg.iov_count, op.local);
}

ssize_t Rma::submit(const RmaCall& call) noexcept
{
    std::size_t total = 0;
    if (int ret = check(call, tx_, total); ret != 0) [[unlikely]]
        return ret;
    const Peer* peer = tx_.peers().find(call.msg.addr);
    if (peer == nullptr) [[unlikely]]
        return -FI_EINVAL;
    // An operation that waits keeps its place: no later one to the same peer overtakes it.
    if (waiting_.blocks(PendingQueue::queue_key(*peer))) [[unlikely]] {
        tx_.progress();
        if (waiting_.blocks(PendingQueue::queue_key(*peer)))
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
        for (unsigned i = 0; i < op->targets; i++) // the data goes to the target VCQ, and must not overtake the bytes
            op->data_at_once &= op->target[i].at.vcq == op->peer.target_vcq;
        if (ret == 0 && op->remote_notice) [[unlikely]]
            ret = access_.spend_now(*op, op->prov_errno, progress);
        if (ret != 0 && !refuses_call(ret)) { // the operation fails, not the call
            op->err = -ret;
            op->posted = total;
            finish(*op);
            return 0;
        }
        if (ret == 0)
            ret = attach(*op, call);
        if (ret != 0) [[unlikely]] {
            drop(*op);
            return ret;
        }
    }
    return launch(*op);
}

/// Posts a new operation. 0, or -FI_EAGAIN and the operation is gone. Progress that was made since it was called may
/// have let an earlier one wait, which it must not overtake.
ssize_t Rma::launch(RmaOp& op) noexcept
{
    const auto try_to_post = [&] {
        return waiting_.blocks(PendingQueue::queue_key(op.peer)) ? BlockReason::peer : post_some(op);
    };
    BlockReason reason = try_to_post();
    if (reason != BlockReason::nothing && op.posted == 0) [[unlikely]] {
        tx_.progress();
        reason = try_to_post();
        if (reason != BlockReason::nothing && op.posted == 0) {
            drop(op);
            return -FI_EAGAIN;
        }
    }
    if (reason == BlockReason::nothing && op.remote_data && op.data_at_once)
        send_data_at_once(op);
    if (reason != BlockReason::nothing)
        enqueue(op, reason);
    else if (op.pending == 0)
        finish(op);
    return 0;
}

// --- Rma: the fast path of reads and writes

/// Flags that the fast path does not serve: other completion levels, and what takes more than one communication.
constexpr std::uint64_t long_flags = FI_INJECT | FI_FENCE | FI_REMOTE_CQ_DATA | FI_INJECT_COMPLETE | FI_TRIGGER;

Rma::Rma(TxContext& tx) noexcept
    : tx_(tx), vcq_(tx.vcq()), access_(tx.vcq(), tx.peers(), tx.peer_memory()),
      // An unsignaled Put cannot be counted.
      plain_inject_(tx.reports().counters.write == nullptr && !tx.config().shares_vcq),
      max_inline_(tx.vcq().backend().caps().max_piggyback_size), inject_flags_(vcq::flags_of(orders_writes(tx), false)),
      write_flags_(vcq::delivered_flags(orders_writes(tx), false)),
      read_flags_(vcq::delivered_flags(orders_reads(tx), false)),
      waiting_(tx.pending(), this, PendingQueue::SubQueue::steps_of<Rma, RmaOp>),
      memory_(tx.rails().memory(Rails::own)),
      longest_(std::min(Rails::least_length - 1, tx.vcq().backend().caps().max_putget_size)),
      ops_(std::max<std::size_t>(tx.config().attr.size, 64)), bounces_(tx.vcq()),
      caps_(tx.vcq().backend().caps()), strong_{orders_writes(tx), orders_reads(tx)},
      may_leave_((tx.config().attr.msg_order & ~std::uint64_t{FI_ORDER_SAS}) == 0)
{
    constexpr std::uint64_t order_behind_writes = FI_ORDER_RAW | FI_ORDER_RMA_RAW;
    if ((tx.config().attr.msg_order & order_behind_writes) != 0)
        access_.order_reads();
    const TxCounters& counters = tx.reports().counters;
    const bool has_queue = tx.reports().binding.cq != nullptr;
    const auto choose = [](const Counter* counter, auto counted, auto uncounted) {
        return counter != nullptr ? counted : uncounted;
    };
    write_done_[false] = choose(counters.write, &fast_done<false, false, true>, &fast_done<false, false, false>);
    write_done_[true] = !has_queue
                            ? write_done_[false]
                            : choose(counters.write, &fast_done<false, true, true>, &fast_done<false, true, false>);
    read_done_[false] = choose(counters.read, &fast_done<true, false, true>, &fast_done<true, false, false>);
    read_done_[true] = !has_queue ? read_done_[false]
                                  : choose(counters.read, &fast_done<true, true, true>, &fast_done<true, true, false>);
}

template <bool read, bool entry, bool counted>
void Rma::fast_done(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    const FastOp& op = *static_cast<FastOp*>(handler);
    TxContext& tx = *op.context;
    constexpr std::uint64_t flags = FI_RMA | (read ? FI_READ : FI_WRITE);
    if (notice.code != UTOFU_SUCCESS) [[unlikely]] {
        report_failure(tx.reports(), flags, op.user_context, notice.code);
        return;
    }
    if constexpr (read) {
        const std::byte* from = Rma::of(tx).read_buffer_.get() + tx.fast().tag_of(op) * max_fast_read;
        if (op.length == 8) [[likely]]
            std::memcpy(op.result, from, 8);
        else if (op.length != 0)
            std::memcpy(op.result, from, op.length);
    }
    if constexpr (entry)
        tx.reports().binding.cq->write_from_poll({.context = op.user_context, .flags = flags});
    if constexpr (counted)
        (read ? tx.reports().counters.read : tx.reports().counters.write)->count();
}

ssize_t Rma::fast_refused(vcq::Post posted) noexcept
{
    if (posted == vcq::Post::error)
        return not_fast; // submit() meets the same error and reports it
    tx_.progress();
    return -FI_EAGAIN;
}

template <bool read, bool in_place>
ssize_t Rma::go_fast(void* buffer, std::size_t length, void* desc, fi_addr_t to, std::uint64_t address,
                     std::uint64_t key, void* context, std::uint64_t flags) noexcept
{
    Target target;
    const std::size_t limit = in_place ? longest_ : read ? max_fast_read : max_inline_;
    if ((flags & long_flags) != 0 || !goes_at_once(buffer, length, limit, to, address, key, target)) [[unlikely]]
        return not_fast;
    utofu_stadd_t local = 0;
    if (in_place ? !memory_.find_in_region(desc, buffer, length, !read, local)
                 : read && !read_buffer_ && !make_read_buffer()) [[unlikely]]
        return not_fast;
    const std::uint8_t tag = vcq_.completions().next();
    if (tag == 0) [[unlikely]]
        return fast_refused(vcq::Post::busy);
    FastOp& op = tx_.fast()[tag];
    const auto& done = read ? read_done_ : write_done_;
    op.notify = tx_.reports().binding.selects(flags) ? done[true] : done[false];
    op.user_context = context;
    const vcq::SignaledArgs how{&op, read ? read_flags_ : write_flags_};
    vcq::Post posted;
    if constexpr (read) {
        op.result = buffer;
        op.length = static_cast<std::uint32_t>(in_place ? 0 : length);
        posted = vcq_.get(target.vcq, in_place ? local : read_stadd_ + tag * max_fast_read, target.stadd, length, how);
    } else {
        posted = in_place ? vcq_.put(target.vcq, local, target.stadd, length, how)
                          : vcq_.put_inline(target.vcq, buffer, target.stadd, length, how);
    }
    return posted == vcq::Post::done ? 0 : fast_refused(posted);
}

template ssize_t Rma::go_fast<true, false>(void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t, void*,
                                           std::uint64_t) noexcept;
template ssize_t Rma::go_fast<false, false>(void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t, void*,
                                            std::uint64_t) noexcept;
template ssize_t Rma::go_fast<true, true>(void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t, void*,
                                          std::uint64_t) noexcept;
template ssize_t Rma::go_fast<false, true>(void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t, void*,
                                           std::uint64_t) noexcept;

Rma::~Rma()
{
    if (read_buffer_)
        vcq_.dereg(read_stadd_);
}

bool Rma::make_read_buffer() noexcept
{
    OwnMemory made(vcq::CompletionTable::size * max_fast_read);
    if (!made || vcq_.reg(made.get(), made.size(), false, read_stadd_) != 0)
        return false;
    read_buffer_ = std::move(made);
    return true;
}

// --- fi_rma(3): the calls of the application. Each tries the fast path (Rma) where it has one, else it calls
// Rma::submit.

namespace {

ssize_t submit(fid_ep* ep, const RmaCall& call) noexcept
{
    EpHandle& handle = EpHandle::of(ep);
    TxContext& tx = *handle.tx;
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return tx.domain().deferred().calls->defer(handle, call);
    return tx.call_locked([&] { return Rma::of(tx).submit(call); });
}

/// Submits a call with one remote segment, which is as long as the local ones together. The endpoint's default flags
/// apply, except to injects.
ssize_t plain(fid_ep* ep, bool read, fi_msg_rma msg, std::uint64_t address, std::uint64_t key, std::uint64_t flags = 0,
              bool is_inject = false) noexcept
{
    std::size_t length = 0;
    if (msg.iov_count > rma_iov_limit || (msg.iov_count != 0 && msg.msg_iov == nullptr))
        return -FI_EINVAL;
    for (std::size_t i = 0; i < msg.iov_count; i++)
        length += msg.msg_iov[i].iov_len;
    const fi_rma_iov remote{address, length, key};
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    const std::uint64_t defaults = EpHandle::of(ep).tx_flags & (known_rma_flags(read) | FI_TRIGGER);
    return submit(ep, {msg, is_inject ? flags : defaults | flags, read, is_inject});
}

/// As plain(), with one local segment.
[[gnu::noinline]] ssize_t single(fid_ep* ep, bool read, const void* buf, std::size_t length, void* desc, fi_addr_t to,
                                 std::uint64_t address, std::uint64_t key, void* context, std::uint64_t data = 0,
                                 std::uint64_t flags = 0, bool is_inject = false) noexcept
{
    const iovec iov{const_cast<void*>(buf), length};
    return plain(ep, read, {&iov, &desc, 1, to, nullptr, 0, context, data}, address, key, flags, is_inject);
}

/// fi_read and fi_write.
template <bool read, class Buffer>
ssize_t fast(fid_ep* ep, Buffer* buf, size_t len, void* desc, fi_addr_t to, uint64_t addr, uint64_t key,
             void* context) noexcept
{
    TxContext& tx = *EpHandle::of(ep).tx;
    {
        std::lock_guard guard(tx.lock());
        Rma& engine = Rma::of(tx);
        const std::uint64_t flags = EpHandle::of(ep).tx_flags;
        void* const buffer = const_cast<void*>(buf);
        ssize_t ret = engine.go_fast<read, false>(buffer, len, desc, to, addr, key, context, flags);
        if (ret != Rma::not_fast) [[likely]]
            return ret;
        if (desc != nullptr)
            ret = engine.go_fast<read, true>(buffer, len, desc, to, addr, key, context, flags);
        if (ret != Rma::not_fast)
            return ret;
    }
    return single(ep, read, buf, len, desc, to, addr, key, context);
}

template <bool read>
ssize_t segments(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
                 void* context) noexcept
{
    return plain(ep, read, {iov, EpHandle::of(ep).descs(desc), count, to, nullptr, 0, context, 0}, addr, key);
}

template <bool read>
ssize_t message(fid_ep* ep, const fi_msg_rma* msg, uint64_t flags) noexcept
{
    if (msg == nullptr)
        return -FI_EINVAL;
    if (flags & ~(known_rma_flags(read) | FI_TRIGGER))
        return -FI_EBADFLAGS;
    RmaCall call{*msg, flags, read, false};
    call.msg.desc = EpHandle::of(ep).descs(call.msg.desc);
    return submit(ep, call);
}

ssize_t inject_write(fid_ep* ep, const void* buf, size_t len, fi_addr_t to, uint64_t addr, uint64_t key) noexcept
{
    TxContext& tx = *EpHandle::of(ep).tx;
    {
        std::lock_guard guard(tx.lock());
        const ssize_t ret = Rma::of(tx).inject_fast(buf, len, to, addr, key);
        if (ret != Rma::not_fast) [[likely]]
            return ret;
    }
    return single(ep, false, buf, len, nullptr, to, addr, key, nullptr, 0, FI_INJECT, true);
}

ssize_t writedata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data, fi_addr_t to, uint64_t addr,
                  uint64_t key, void* context) noexcept
{
    return single(ep, false, buf, len, desc, to, addr, key, context, data, FI_REMOTE_CQ_DATA);
}

ssize_t inject_writedata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t to, uint64_t addr,
                         uint64_t key) noexcept
{
    return single(ep, false, buf, len, nullptr, to, addr, key, nullptr, data, FI_REMOTE_CQ_DATA | FI_INJECT, true);
}

} // namespace

fi_ops_rma rma_ops = {
    .size = sizeof(fi_ops_rma),
    .read = fast<true, void>,
    .readv = segments<true>,
    .readmsg = message<true>,
    .write = fast<false, const void>,
    .writev = segments<false>,
    .writemsg = message<false>,
    .inject = inject_write,
    .writedata = writedata,
    .injectdata = inject_writedata,
};

} // namespace tofu
