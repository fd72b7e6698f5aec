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
    endpoints_changed();
    return added ? 0 : -FI_ENOMEM;
}

void ProgressSet::remove(Pollable& endpoint) noexcept
{
    std::lock_guard guard(lock_);
    endpoints_.erase(&endpoint);
    endpoints_changed();
}

void ProgressSet::endpoints_changed() noexcept
{
    first_ = endpoints_.empty() ? nullptr : endpoints_[0];
    has_others_ = endpoints_.size() > 1;
}

bool ProgressSet::run(bool patient) noexcept
{
    // The lock keeps endpoints from being closed meanwhile; a thread that does not get it leaves the round to the
    // holder. Order: this lock, then target lock, then endpoint; remove() is called with none of them.
    if (patient)
        lock_.lock();
    else if (!lock_.try_lock())
        return false;
    const bool some = poll_all(patient);
    lock_.unlock();
    return some;
}

bool ProgressSet::poll_all(bool patient) noexcept
{
    bool some = domain_.progress_domain(patient);
    for (Pollable* endpoint : endpoints_)
        some |= endpoint->progress(patient);
    return some;
}

void ProgressSet::begin_interval() noexcept
{
    const unsigned length = interval_.load(std::memory_order_relaxed);
    // The length may have changed: a multiple of it follows, so that full rounds come.
    polls_.store((polls_.load(std::memory_order_relaxed) + length) & ~(length - 1), std::memory_order_relaxed);
    std::atomic_ref(left_).store(length, std::memory_order_relaxed);
}

/// Yields if that may help. The backend knows whether there are more processes than cores; without it, a peer that has
/// not answered for long may need this core.
void ProgressSet::yield() noexcept
{
    const bool found = found_.load(std::memory_order_relaxed);
    const unsigned idle = found ? 0 : idle_.load(std::memory_order_relaxed) + interval_.load(std::memory_order_relaxed);
    idle_.store(idle, std::memory_order_relaxed);
    found_.store(false, std::memory_order_relaxed);
    // Programs that yield between two polls, as Open MPI does, need no more of it.
    if (idle < 2 * interval_if_oversubscribed)
        return;
    const auto query = domain_.backend().functions().yield;
    const bool oversubscribed = query != nullptr && query(idle / interval_if_oversubscribed) != 0;
    interval_.store(oversubscribed ? interval_if_oversubscribed : interval, std::memory_order_relaxed);
    if (!oversubscribed && idle >= spin_limit && idle % yield_every < interval)
        sched_yield();
}

std::size_t ProgressSet::vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept
{
    ProgressSet& everything = domain_.auto_progress().everything();
    if (domain_.deferred().any() && this != &everything)
        return everything.vcqs(handles, most);
    std::size_t count = domain_.target_vcqs(handles, most);
    std::lock_guard guard(lock_);
    for (const Pollable* endpoint : endpoints_)
        count += vcqs_of(*endpoint, handles + count, most - count);
    return count;
}

std::size_t vcqs_of(const Pollable& endpoint, utofu_vcq_hdl_t* handles, std::size_t most) noexcept
{
    std::size_t count = 0;
    for (const vcq::Vcq* each = &endpoint.polled(); each != nullptr; each = each->linked())
        if (count < most && each->is_open())
            handles[count++] = each->handle();
    return count;
}

} // namespace tofu
