// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See auto_progress.h.
#include "progress/auto_progress.h"

#include <new>

#include <rdma/fi_errno.h>

#include "progress/domain_base.h"
#include "progress/progress.h"

namespace tofu {

AutoProgress::AutoProgress() noexcept = default;
AutoProgress::~AutoProgress() = default;

void AutoProgress::choose(bool serialised, bool wanted) noexcept
{
    locks_are_on_ = !serialised;
    thread_is_due_.store(wanted, std::memory_order_relaxed); // here and below: the mutex orders all else
}

int AutoProgress::open(DomainBase& domain) noexcept
{
    domain_ = &domain;
    everything_.reset(new (std::nothrow) ProgressSet(domain));
    return everything_ != nullptr ? 0 : -FI_ENOMEM;
}

int AutoProgress::need_thread(WakeSignal* signal) noexcept
{
    std::lock_guard guard(mutex_);
    if (thread_users_ == 0) {
        // From here on the thread meets the application's calls.
        if (!locks_are_on_) {
            locks_are_on_ = true;
            locks_.enable();
        }
        if (int error = thread_.start(*everything_, domain_->backend().functions()); error != 0)
            return error;
    }
    const int error = signal != nullptr ? thread_.attend(*signal) : 0;
    if (error == 0)
        thread_users_++;
    else if (thread_users_ == 0)
        thread_.stop();
    return error;
}

int AutoProgress::go_on_alone() noexcept
{
    if (!thread_is_due_.exchange(false, std::memory_order_relaxed))
        return 0;
    const int error = need_thread(nullptr);
    if (error != 0)
        thread_is_due_.store(true, std::memory_order_relaxed);
    return error;
}

void AutoProgress::dismiss_thread(WakeSignal* signal) noexcept
{
    std::lock_guard guard(mutex_);
    if (signal != nullptr)
        thread_.leave(*signal);
    if (--thread_users_ == 0)
        thread_.stop();
}

void AutoProgress::adopt(Lock& lock) noexcept
{
    std::lock_guard guard(mutex_);
    lock.set_enabled(locks_are_on_);
    locks_.add(lock);
}

void AutoProgress::drop(Lock& lock) noexcept
{
    std::lock_guard guard(mutex_);
    locks_.remove(lock);
}

} // namespace tofu
