// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See poll_set.h.
#include "cq/poll_set.h"

#include <algorithm>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "cq/counter.h"
#include "cq/cq.h"
#include "cq/eq.h"
#include "cq/progress.h"
#include "utofu/library.h"

namespace tofu {

// --- WaitSet

static fi_ops wait_fid_ops = object_ops({.close = close_object<WaitSet>, .control = bind_member<&WaitSet::control>});
static fi_ops_wait wait_ops = {.size = sizeof(fi_ops_wait), .wait = bind_member<&WaitSet::wait>};

WaitSet::WaitSet(FabricBase& fabric) noexcept : Object(&fabric, FI_CLASS_WAIT)
{
    fid.ops = &wait_fid_ops;
    ops = &wait_ops;
}

int WaitSet::open(fid_fabric* fabric, fi_wait_attr* attr, fid_wait** set) noexcept
{
    return create<WaitSet>(FabricBase::of(fabric), attr, set, nullptr);
}

int WaitSet::set_up(const fi_wait_attr* attr) noexcept
{
    static constexpr fi_wait_attr defaults{FI_WAIT_UNSPEC, 0};
    const fi_wait_attr& wish = attr != nullptr ? *attr : defaults;
    if (wish.flags != 0)
        return -FI_EINVAL;
    kind_ = wish.wait_obj;
    if (kind_ == FI_WAIT_UNSPEC || kind_ == FI_WAIT_YIELD)
        return 0;
    if (!WakeSignal::offers(kind_))
        TOFU_INFO(FI_LOG_EQ, "wait set: wait object %d is not supported: use FI_WAIT_UNSPEC or FI_WAIT_FD\n", kind_);
    return signal_.open(kind_);
}

int WaitSet::add(WaitObject& member) noexcept
{
    std::lock_guard guard(mutex_);
    if (!members_.push(&member))
        return -FI_ENOMEM;
    hold();
    return 0;
}

void WaitSet::remove(WaitObject& member) noexcept
{
    {
        std::lock_guard guard(mutex_);
        if (!members_.erase(&member))
            return;
    }
    release(); // the application may close the set from here on
}

/// Looks at all members: the wake-ups of all have been cleared together.
bool WaitSet::poll() noexcept
{
    std::lock_guard guard(mutex_);
    bool some = false;
    for (WaitObject* member : members_)
        some |= member->poll();
    return some;
}

int WaitSet::wait(int timeout_ms)
{
    const Deadline deadline(timeout_ms);
    int error = 0;
    const vcq::Backend* const backend = vcq::Backend::get(error);
    BlockingWait sleeper(backend != nullptr ? &backend->functions() : nullptr, deadline, kind_ == FI_WAIT_YIELD);
    const bool some = sleeper.await(this, nullptr, [this]() noexcept {
        clear();
        return poll();
    });
    return some ? 0 : -FI_ETIMEDOUT;
}

std::size_t WaitSet::vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept
{
    std::lock_guard guard(mutex_);
    std::size_t count = 0;
    for (WaitObject* member : members_)
        if (ProgressSource* const progress = member->owner().progress; progress != nullptr)
            count += progress->vcqs(handles + count, most - count);
    return count;
}

// --- PollSet

static fi_ops poll_fid_ops = object_ops({.close = close_object<PollSet>});
static fi_ops_poll poll_ops = {
    .size = sizeof(fi_ops_poll),
    .poll = bind_member<&PollSet::poll>,
    .poll_add = bind_member<&PollSet::add>,
    .poll_del = bind_member<&PollSet::remove>,
};

/// Calls `visit` with a completion queue or a counter. False: it is neither.
template <class Visit>
static bool visit_source(struct fid* fid, Visit&& visit) noexcept
{
    if (!is_ours(fid, FI_CLASS_CQ) && !is_ours(fid, FI_CLASS_CNTR))
        return false;
    fid->fclass == FI_CLASS_CQ ? visit(CompletionQueue::of(fid)) : visit(Counter::of(fid));
    return true;
}

PollSet::PollSet(DomainBase& domain) noexcept : Object(&domain, FI_CLASS_POLL)
{
    fid.ops = &poll_fid_ops;
    ops = &poll_ops;
}

int PollSet::open(fid_domain* domain, fi_poll_attr* attr, fid_poll** set) noexcept
{
    return create<PollSet>(DomainBase::of(domain), attr, set, nullptr);
}

/// The set uses its members and they use the set: neither can be closed before the member is removed (fi_poll(3)).
/// Members of other domains are taken, as by the providers tcp, udp, shm and sockets; the page does not exclude them.
int PollSet::add(struct fid* object, std::uint64_t flags) noexcept
{
    if (flags != 0)
        return -FI_EBADFLAGS;
    std::lock_guard guard(mutex_);
    if (std::find(members_.begin(), members_.end(), object) != members_.end())
        return 0;
    if (!members_.reserve(members_.size() + 1))
        return -FI_ENOMEM;
    if (!visit_source(object, [](auto& source) { source.hold(); }))
        return -FI_EINVAL;
    members_.push_reserved(object);
    hold();
    return 0;
}

int PollSet::remove(struct fid* object, std::uint64_t flags) noexcept
{
    if (flags != 0)
        return -FI_EBADFLAGS;
    {
        std::lock_guard guard(mutex_);
        if (!members_.erase(object))
            return -FI_EINVAL;
    }
    visit_source(object, [](auto& source) { source.release(); });
    release(); // the application may close the set from here on
    return 0;
}

int PollSet::poll(void** contexts, int count) noexcept
{
    int found = 0;
    std::lock_guard guard(mutex_);
    for (struct fid* object : members_)
        visit_source(object, [&](auto& source) {
            if (found == count) // no room to report more, but all members make progress (fi_poll(3))
                source.progress().run();
            else if (source.has_events())
                contexts[found++] = object->context;
        });
    return found;
}

// --- fi_trywait

int try_wait(fid_fabric*, struct fid** fids, int count) noexcept
{
    if (count < 0 || (fids == nullptr && count > 0))
        return -FI_EINVAL;
    // In a wait set the signal is the set's, and all its members are looked at.
    const auto visit = [](struct fid* fid, auto&& look_at) {
        const auto alone_or_set = [&](auto& source) {
            if (WaitSet* const set = source.wait_object().set_of_signal(); set != nullptr)
                look_at(*set);
            else
                look_at(source.wait_object());
        };
        if (visit_source(fid, alone_or_set))
            return true;
        if (is_ours(fid, FI_CLASS_EQ))
            alone_or_set(EventQueue::of(fid));
        else if (is_ours(fid, FI_CLASS_WAIT))
            look_at(WaitSet::of(fid));
        else
            return false;
        return true;
    };
    for (int i = 0; i < count; i++)
        if (!visit(fids[i], [](auto&) {}))
            return -FI_EINVAL;
    for (int i = 0; i < count; i++)
        visit(fids[i], [](auto& object) { object.clear(); });
    bool some = false;
    for (int i = 0; i < count; i++)
        visit(fids[i], [&](auto& object) { some |= object.poll(); });
    return some ? -FI_EAGAIN : 0;
}

} // namespace tofu
