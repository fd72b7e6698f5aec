// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See peer_cq.h. An entry goes through the ring of our queue, as in any queue, so no operation has to look where it
// reports. The owner drives progress by fi_cq_read without a buffer, and gets the entries then.
#include "cq/peer_cq.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "core/object.h"
#include "core/peer_abi.h"
#include "cq/counter.h"
#include "cq/cq.h"
#include "cq/domain_base.h"

namespace tofu {
namespace {

/// Hangs on fid.context of our object, for which the application has no other use.
struct QueueLink {
    peer::Cq& owner;
    std::mutex turn;
    bool full = false; ///< the owner did not take `last`
    CqEntry last{};

    /// Hands an entry on. False: the owner can't take it now.
    [[nodiscard]] bool give(bool textual) noexcept
    {
        const Completion& c = last.completion;
        if (last.err == 0)
            return owner.owner->write(&owner, c.context, c.flags, c.length, c.buffer, c.data, c.tag, c.source) == 0;
        struct {
            fi_cq_err_entry known;
            fi_addr_t source[2]; // which our header may not have
        } error{};
        auto data = last.tell(error.known, true, textual);
        error.known.err_data = data ? data->bytes : nullptr;
        error.known.err_data_size = data ? data->size : 0;
        return owner.owner->write_error(&owner, &error.known) == 0;
    }
};

struct CounterLink {
    peer::Cntr& owner;
    std::mutex turn;
    std::uint64_t told = 0;
    std::uint64_t told_errors = 0;
};

template <class Link, class Handle>
Link& link_of(Handle& object) noexcept
{
    return *static_cast<Link*>(object.fid.context);
}

/// fi_close of a T with such a Link.
template <class T, class Link, int (*close)(struct fid*)>
int close_linked(struct fid* fid) noexcept
{
    Link* const link = &link_of<Link>(T::of(fid));
    const int ret = close(fid);
    if (ret == 0)
        delete link;
    return ret;
}

ssize_t make_progress(fid_cq* cq, void*, std::size_t) noexcept
{
    CompletionQueue& queue = CompletionQueue::of(cq);
    (void)queue.read_from(nullptr, 0, nullptr);
    hand_on(queue);
    return -FI_EAGAIN;
}

std::uint64_t make_progress(fid_cntr* cntr) noexcept
{
    Counter& counter = Counter::of(cntr);
    CounterLink& link = link_of<CounterLink>(*cntr);
    const std::lock_guard guard(link.turn);
    for (const std::uint64_t now = counter.read(); link.told != now; link.told++)
        link.owner.owner->inc(&link.owner);
    for (const std::uint64_t now = counter.read_errors(); link.told_errors != now; link.told_errors++)
        link.owner.owner->inc_error(&link.owner);
    return 0;
}

constexpr auto never = refuses<-FI_ENOSYS>;
int close_counter(struct fid* fid) noexcept { return Counter::of(fid).close(); }
fi_ops queue_fid_ops =
    object_ops({.close = close_linked<CompletionQueue, QueueLink, close_object<CompletionQueue>>});
fi_ops counter_fid_ops = object_ops({.close = close_linked<Counter, CounterLink, close_counter>});
fi_ops_cq* queue_ops(const fi_ops_cq& ordinary) noexcept
{
    static fi_ops_cq ops = {sizeof(fi_ops_cq), make_progress, never, never, never, never, never, ordinary.strerror};
    return &ops;
}
fi_ops_cntr* counter_ops(const fi_ops_cntr&) noexcept
{
    static fi_ops_cntr ops = {sizeof(fi_ops_cntr), make_progress, never, never, never, never, never, never};
    return &ops;
}

/// With FI_PEER: makes an object of ours with a Link to the owner's object, which `context` names.
template <class T, class Link, class Owned, class Attr, class OpsOf>
int open(fid_domain* domain, Attr* wish, typename T::Handle** made, void* context, fi_ops& fid_ops, OpsOf&& ops_of) noexcept
{
    if ((given(wish).flags & FI_PEER) == 0)
        return T::open(domain, wish, made, context);
    Owned* const owner = peer::imported<Owned>(context);
    if (owner == nullptr) {
        TOFU_WARN(FI_LOG_DOMAIN, "FI_PEER: the context names no object of an owner, or libfabric %u.%u has another fi_peer(3): "
                                 "use 2.0 to 2.6\n", FI_MAJOR(provider.fi_version), FI_MINOR(provider.fi_version));
        return -FI_EINVAL;
    }
    Attr attr = *wish;
    attr.flags &= ~FI_PEER;
    std::unique_ptr<Link> link(new (std::nothrow) Link{*owner, {}});
    if (link == nullptr)
        return -FI_ENOMEM;
    if (int ret = T::open(domain, &attr, made, link.get()); ret != 0)
        return ret;
    (void)link.release(); // the object's
    (*made)->fid.ops = &fid_ops;
    (*made)->ops = ops_of(*(*made)->ops);
    return 0;
}

} // namespace

int open_queue(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context) noexcept
{
    return open<CompletionQueue, QueueLink, peer::Cq>(domain, attr, cq, context, queue_fid_ops, queue_ops);
}

int open_counter(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context) noexcept
{
    return open<Counter, CounterLink, peer::Cntr>(domain, attr, cntr, context, counter_fid_ops, counter_ops);
}

void hand_on(CompletionQueue& queue) noexcept
{
    if (queue.fid.ops != &queue_fid_ops)
        return;
    QueueLink& link = link_of<QueueLink>(queue);
    const std::lock_guard guard(link.turn);
    while (link.full || queue.take(link.last)) {
        link.full = !link.give(queue.owner().model().textual_addresses);
        if (link.full)
            return;
    }
}

} // namespace tofu
