// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See progress.h.
#include "cq/progress.h"

#include <algorithm>
#include <mutex>

#include <sched.h>

#include "cq/domain_base.h"

namespace tofu {

ProgressSet::ProgressSet(DomainBase& domain) noexcept : domain_(domain)
{
    domain_.auto_progress().adopt(lock_);
}

ProgressSet::~ProgressSet()
{
    domain_.auto_progress().drop(lock_);
}

int ProgressSet::add(Pollable& endpoint) noexcept
{
    std::lock_guard guard(lock_);
    const bool there = std::find(endpoints_.begin(), endpoints_.end(), &endpoint) != endpoints_.end();
    const bool added = there || endpoints_.push(&endpoint);
    first_ = endpoints_.empty() ? nullptr : endpoints_[0];
    return added ? 0 : -FI_ENOMEM;
}

void ProgressSet::remove(Pollable& endpoint) noexcept
{
    std::lock_guard guard(lock_);
    endpoints_.erase(&endpoint);
    first_ = endpoints_.empty() ? nullptr : endpoints_[0];
}

bool ProgressSet::run(bool patient) noexcept
{
    // The lock keeps endpoints from being closed meanwhile; a thread that does not get it leaves the round to the
    // holder. Order: this lock, then home, then endpoint; remove() is called with none of them.
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
    for (Pollable* endpoint : endpoints_)
        some |= endpoint->progress(patient);
    return some;
}

/// Yields if that may help. The backend knows whether there are more processes than cores; without it, a peer that has
/// not answered for long may need this core.
void ProgressSet::yield(unsigned looks) noexcept
{
    if (looks < 2 * (between_if_oversubscribed +
                     1)) // programs that yield between two looks, as Open MPI does, need no more of it
        return;
    const auto ask = domain_.backend().functions().give_way;
    const bool oversubscribed = ask != nullptr && ask(looks / (between_if_oversubscribed + 1)) != 0;
    between_.store(oversubscribed ? between_if_oversubscribed : between, std::memory_order_relaxed);
    if (!oversubscribed && looks >= patience && looks % yield_every <= between)
        sched_yield();
}

std::size_t ProgressSet::vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept
{
    ProgressSet& everything = domain_.auto_progress().everything();
    if (domain_.deferred().any() && this != &everything)
        return everything.vcqs(handles, most);
    std::size_t count = domain_.homes(handles, most);
    std::lock_guard guard(lock_);
    for (const Pollable* endpoint : endpoints_)
        count += vcqs_of(*endpoint, handles + count, most - count);
    return count;
}

std::size_t vcqs_of(const Pollable& endpoint, utofu_vcq_hdl_t* handles, std::size_t most) noexcept
{
    std::size_t count = 0;
    for (const vcq::Vcq* each = &endpoint.polled(); each != nullptr; each = each->beside())
        if (count < most && each->is_open())
            handles[count++] = each->handle();
    return count;
}

} // namespace tofu
