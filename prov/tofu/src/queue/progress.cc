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

void ProgressSet::add(Endpoint& endpoint)
{
    std::lock_guard guard(lock_);
    if (std::find(endpoints_.begin(), endpoints_.end(), &endpoint) == endpoints_.end())
        endpoints_.push_back(&endpoint);
}

void ProgressSet::remove(Endpoint& endpoint) noexcept
{
    std::lock_guard guard(lock_);
    std::erase(endpoints_, &endpoint);
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
