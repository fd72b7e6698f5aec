// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See wait_set.h. All of it is slow path.
#include "cq/wait_set.h"

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "core/object.h"
#include "cq/progress.h"
#include "utofu/library.h"

namespace tofu {
namespace {

fi_ops wait_fid_ops = object_ops({.close = close_object<WaitSet>, .control = calls<&WaitSet::control>});
fi_ops_wait wait_ops = {.size = sizeof(fi_ops_wait), .wait = calls<&WaitSet::wait>};

} // namespace

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
        TOFU_INFO(FI_LOG_EQ, "wait set: wait object %d is not offered\n", kind_);
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
bool WaitSet::look() noexcept
{
    std::lock_guard guard(mutex_);
    bool some = false;
    for (WaitObject* member : members_)
        some |= member->look();
    return some;
}

int WaitSet::wait(int timeout_ms) noexcept
{
    static constexpr std::size_t most = 64;
    const Deadline deadline(timeout_ms);
    int error = 0;
    const vcq::Backend* const backend = vcq::Backend::get(error);
    Sleeper sleeper(backend != nullptr ? &backend->functions() : nullptr, deadline, kind_ == FI_WAIT_YIELD);
    for (;;) {
        clear();
        if (look())
            return 0;
        ProgressSource* sources[most];
        std::size_t count = 0;
        {
            std::lock_guard guard(mutex_);
            for (WaitObject* member : members_)
                if (member->owner().progress != nullptr && count < most)
                    sources[count++] = member->owner().progress;
        }
        if (!sleeper.sleep(sources, count))
            return -FI_ETIMEDOUT;
    }
}

} // namespace tofu
