// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See wait_set.h. All of it is slow path.
#include "progress/wait_set.h"

#include <algorithm>
#include <new>

#include <rdma/fi_errno.h>

#include "progress/domain_base.h"
#include "progress/progress.h"
#include "provider/fabric_base.h"
#include "provider/log.h"
#include "provider/refusal.h"

namespace tofu {
namespace {

WaitSet& wait_set_of(struct fid* fid) noexcept
{
    return WaitSet::of(reinterpret_cast<fid_wait*>(fid));
}
int close_wait_set(struct fid* fid) noexcept
{
    return wait_set_of(fid).close();
}
int control_wait_set(struct fid* fid, int command, void* argument) noexcept
{
    return wait_set_of(fid).control(command, argument);
}
int wait(fid_wait* set, int timeout) noexcept
{
    return WaitSet::of(set).wait(timeout);
}

fi_ops wait_fid_ops = object_ops({.close = close_wait_set, .control = control_wait_set});
fi_ops_wait wait_ops = {.size = sizeof(fi_ops_wait), .wait = wait};

} // namespace

int WaitSet::open(fid_fabric* fabric, fi_wait_attr* attr, fid_wait** set) noexcept
{
    static constexpr fi_wait_attr defaults{FI_WAIT_UNSPEC, 0};
    const fi_wait_attr& wish = attr != nullptr ? *attr : defaults;
    if (set == nullptr || wish.flags != 0)
        return -FI_EINVAL;
    const bool plain = wish.wait_obj == FI_WAIT_UNSPEC || wish.wait_obj == FI_WAIT_YIELD;
    if (!plain && !WakeSignal::offers(wish.wait_obj)) {
        TOFU_INFO(FI_LOG_EQ, "wait set: wait object %d is not offered\n", wish.wait_obj);
        return -FI_ENOSYS;
    }
    FabricBase& owner = FabricBase::of(fabric);
    auto* made = new (std::nothrow) WaitSet(owner, wish.wait_obj);
    if (made == nullptr)
        return -FI_ENOMEM;
    if (!plain)
        if (int error = made->signal_.open(wish.wait_obj); error != 0) {
            delete made;
            return error;
        }
    made->fid.fclass = FI_CLASS_WAIT;
    made->fid.context = nullptr;
    made->fid.ops = &wait_fid_ops;
    made->ops = &wait_ops;
    owner.hold();
    *set = made;
    return 0;
}

int WaitSet::close() noexcept
{
    {
        std::lock_guard guard(mutex_);
        if (!members_.empty())
            return -FI_EBUSY;
    }
    fabric_.release();
    delete this;
    return 0;
}

int WaitSet::add(WaitObject& member) noexcept
{
    std::lock_guard guard(mutex_);
    return members_.push(&member) ? 0 : -FI_ENOMEM;
}

void WaitSet::remove(WaitObject& member) noexcept
{
    std::lock_guard guard(mutex_);
    members_.erase(&member);
}

/// None is left out: its wake-up was cleared with those of the others.
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
    const vcq::Functions* functions = nullptr;
    {
        std::lock_guard guard(mutex_);
        for (WaitObject* member : members_)
            if (member->owner().domain != nullptr)
                functions = &member->owner().domain->backend().functions();
    }
    Sleeper sleeper(functions, deadline, kind_ == FI_WAIT_YIELD);
    for (;;) {
        clear();
        if (look())
            return 0;
        ProgressSet* sets[most];
        std::size_t count = 0;
        {
            std::lock_guard guard(mutex_);
            for (WaitObject* member : members_)
                if (member->owner().progress != nullptr && count < most)
                    sets[count++] = member->owner().progress;
        }
        if (!sleeper.sleep(sets, count))
            return -FI_ETIMEDOUT;
    }
}

int WaitSet::control(int command, void* argument) noexcept
{
    switch (command) {
    case FI_GETWAITOBJ:
        if (argument == nullptr)
            return -FI_EINVAL;
        *static_cast<fi_wait_obj*>(argument) = kind_;
        return 0;
    case FI_GETWAIT: return signal_.hand_out(argument);
    default: return -FI_ENOSYS;
    }
}

} // namespace tofu
