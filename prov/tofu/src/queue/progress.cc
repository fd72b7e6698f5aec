// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See progress.h.
#include "queue/progress.h"

#include <algorithm>
#include <mutex>

#include "endpoint/endpoint.h"
#include "object/domain.h"

namespace tofu {

ProgressSet::ProgressSet(Domain& domain) noexcept : domain_(domain)
{
    domain_.adopt(lock_);
}

ProgressSet::~ProgressSet()
{
    domain_.drop(lock_);
}

int ProgressSet::add(Endpoint& endpoint) noexcept
{
    std::lock_guard guard(lock_);
    const bool there = std::find(endpoints_.begin(), endpoints_.end(), &endpoint) != endpoints_.end();
    return there || endpoints_.push(&endpoint) ? 0 : -FI_ENOMEM;
}

void ProgressSet::remove(Endpoint& endpoint) noexcept
{
    std::lock_guard guard(lock_);
    endpoints_.erase(&endpoint);
}

bool ProgressSet::run(bool patient) noexcept
{
    // The lock keeps endpoints from being closed meanwhile; who does not get it leaves the round to its holder.
    // Order: this lock, then home, then endpoint; remove() is called with none of them.
    if (patient)
        lock_.lock();
    else if (!lock_.try_lock())
        return false;
    const bool some = look_everywhere(patient);
    lock_.unlock();
    return some;
}

bool ProgressSet::look_everywhere(bool patient) noexcept
{
    bool some = domain_.progress_home(patient);
    for (Endpoint* endpoint : endpoints_)
        some |= endpoint->progress(patient);
    return some;
}

std::size_t ProgressSet::vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept
{
    std::size_t count = domain_.homes(handles, most);
    std::lock_guard guard(lock_);
    for (Endpoint* endpoint : endpoints_)
        if (count < most && endpoint->vcq().is_open())
            handles[count++] = endpoint->vcq().handle();
    return count;
}

} // namespace tofu
