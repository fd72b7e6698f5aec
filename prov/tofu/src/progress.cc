// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See progress.h.
#include "progress.h"

#include <algorithm>
#include <mutex>

#include "domain.h"
#include "endpoint.h"

namespace tofu {

ProgressSet::ProgressSet(Domain& domain) noexcept : domain_(domain)
{
    lock_.set_enabled(domain.model().locks);
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

void ProgressSet::run() noexcept
{
    // The lock keeps endpoints from being closed meanwhile; who does not get it leaves the round to its holder.
    // Order: this lock, then home, then endpoint; remove() is called with none of them.
    if (!lock_.try_lock())
        return;
    domain_.progress_home();
    for (Endpoint* endpoint : endpoints_)
        endpoint->progress();
    lock_.unlock();
}

std::size_t ProgressSet::vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept
{
    std::size_t count = 0;
    if (count < most)
        handles[count++] = domain_.home().handle();
    std::lock_guard guard(lock_);
    for (Endpoint* endpoint : endpoints_)
        if (count < most && endpoint->vcq().is_open())
            handles[count++] = endpoint->vcq().handle();
    return count;
}

} // namespace tofu
