// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See poll_set.h. All of it is slow path.
#include "queue/poll_set.h"

#include <algorithm>
#include <new>

#include <rdma/fi_errno.h>

#include "progress/domain_base.h"
#include "progress/progress.h"
#include "progress/wait_set.h"
#include "provider/refusal.h"
#include "queue/cntr.h"
#include "queue/cq.h"
#include "queue/eq.h"

namespace tofu {
namespace {

PollSet& poll_set_of(struct fid* fid) noexcept
{
    return PollSet::of(reinterpret_cast<fid_poll*>(fid));
}
int close_poll_set(struct fid* fid) noexcept
{
    return poll_set_of(fid).close();
}
int poll(fid_poll* set, void** contexts, int count) noexcept
{
    return PollSet::of(set).poll(contexts, count);
}
int poll_add(fid_poll* set, struct fid* object, std::uint64_t flags) noexcept
{
    return flags != 0 ? -FI_EBADFLAGS : PollSet::of(set).add(object);
}
int poll_remove(fid_poll* set, struct fid* object, std::uint64_t flags) noexcept
{
    return flags != 0 ? -FI_EBADFLAGS : PollSet::of(set).remove(object);
}

fi_ops poll_fid_ops = object_ops({.close = close_poll_set});
fi_ops_poll poll_ops = {
    .size = sizeof(fi_ops_poll), .poll = poll, .poll_add = poll_add, .poll_del = poll_remove};

WaitSet& wait_set_of(struct fid* fid) noexcept
{
    return WaitSet::of(reinterpret_cast<fid_wait*>(fid));
}
CompletionQueue& queue_of(struct fid* fid) noexcept
{
    return CompletionQueue::of(reinterpret_cast<fid_cq*>(fid));
}
Counter& counter_of(struct fid* fid) noexcept
{
    return Counter::of(reinterpret_cast<fid_cntr*>(fid));
}

} // namespace

int PollSet::open(fid_domain* domain, fi_poll_attr* attr, fid_poll** set) noexcept
{
    if (set == nullptr || (attr != nullptr && attr->flags != 0))
        return -FI_EINVAL;
    DomainBase& owner = DomainBase::of(domain);
    auto* made = new (std::nothrow) PollSet(owner);
    if (made == nullptr)
        return -FI_ENOMEM;
    made->fid.fclass = FI_CLASS_POLL;
    made->fid.context = nullptr;
    made->fid.ops = &poll_fid_ops;
    made->ops = &poll_ops;
    owner.hold();
    *set = made;
    return 0;
}

int PollSet::close() noexcept
{
    {
        std::lock_guard guard(mutex_);
        if (!members_.empty())
            return -FI_EBUSY;
    }
    domain_.release();
    delete this;
    return 0;
}

int PollSet::add(struct fid* object) noexcept
{
    if (object == nullptr || (object->fclass != FI_CLASS_CQ && object->fclass != FI_CLASS_CNTR))
        return -FI_EINVAL;
    std::lock_guard guard(mutex_);
    if (std::find(members_.begin(), members_.end(), object) != members_.end())
        return 0;
    if (!members_.push(object))
        return -FI_ENOMEM;
    if (object->fclass == FI_CLASS_CQ)
        queue_of(object).hold();
    else
        counter_of(object).hold();
    return 0;
}

int PollSet::remove(struct fid* object) noexcept
{
    std::lock_guard guard(mutex_);
    if (!members_.erase(object))
        return -FI_EINVAL;
    if (object->fclass == FI_CLASS_CQ)
        queue_of(object).release();
    else
        counter_of(object).release();
    return 0;
}

int PollSet::poll(void** contexts, int count) noexcept
{
    int found = 0;
    std::lock_guard guard(mutex_);
    for (struct fid* object : members_) {
        const bool is_queue = object->fclass == FI_CLASS_CQ;
        if (found == count) { // no room to tell of it, but all make progress (fi_poll(3))
            (is_queue ? queue_of(object).progress() : counter_of(object).progress()).run();
            continue;
        }
        if (is_queue ? queue_of(object).look() : counter_of(object).changed_since_poll())
            contexts[found++] = object->context;
    }
    return found;
}

// --- fi_trywait

int try_wait(fid_fabric*, struct fid** fids, int count) noexcept
{
    if (count < 0 || (fids == nullptr && count > 0))
        return -FI_EINVAL;
    struct Object {
        WaitObject* single;
        WaitSet* set; ///< where `single` is null
    };
    const auto alone_or_set = [](WaitObject& object) -> Object {
        WaitSet* const set = object.set_of_signal();
        return set != nullptr ? Object{nullptr, set} : Object{&object, nullptr};
    };
    const auto object_of = [&](struct fid* fid) -> Object {
        if (fid == nullptr)
            return {nullptr, nullptr};
        switch (fid->fclass) {
        case FI_CLASS_CQ: return alone_or_set(queue_of(fid).wait_object());
        case FI_CLASS_CNTR: return alone_or_set(counter_of(fid).wait_object());
        case FI_CLASS_EQ: return alone_or_set(EventQueue::of(reinterpret_cast<fid_eq*>(fid)).wait_object());
        case FI_CLASS_WAIT: return {nullptr, &wait_set_of(fid)};
        default: return {nullptr, nullptr};
        }
    };
    for (int i = 0; i < count; i++)
        if (const Object object = object_of(fids[i]); object.single == nullptr && object.set == nullptr)
            return -FI_EINVAL;
    for (int i = 0; i < count; i++) {
        const Object object = object_of(fids[i]);
        object.single != nullptr ? object.single->clear() : object.set->clear();
    }
    bool some = false;
    for (int i = 0; i < count; i++) {
        const Object object = object_of(fids[i]);
        some |= object.single != nullptr ? object.single->look() : object.set->look();
    }
    return some ? -FI_EAGAIN : 0;
}

} // namespace tofu
