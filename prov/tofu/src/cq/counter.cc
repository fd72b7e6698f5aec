// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See counter.h. fi_cntr(3).
#include "cq/counter.h"

#include <mutex>

#include <rdma/fi_errno.h>

#include "cq/domain_base.h"

namespace tofu {

static fi_ops cntr_fid_ops =
    object_ops({.close = bind_member<&Counter::close>, .control = bind_member<&Counter::control>});

static fi_ops_cntr cntr_ops = {
    .size = sizeof(fi_ops_cntr),
    .read = bind_member<&Counter::read>,
    .readerr = bind_member<&Counter::read_errors>,
    .add = bind_member<&Counter::add>,
    .set = bind_member<&Counter::set>,
    .wait = bind_member<&Counter::wait>,
    .adderr = bind_member<&Counter::add_errors>,
    .seterr = bind_member<&Counter::set_errors>,
};

Counter::Counter(DomainBase& domain) noexcept : Object(&domain, FI_CLASS_CNTR), progress_(domain)
{
    fid.ops = &cntr_fid_ops;
    ops = &cntr_ops;
}

int Counter::set_up(const fi_cntr_attr* attr) noexcept
{
    const fi_cntr_attr& wish = attr_or_default(attr);
    if (wish.events != FI_CNTR_EVENTS_COMP)
        return -FI_ENOSYS;
    if (wish.flags != 0)
        return -FI_EINVAL;
    return wait_.open({this, ready, &progress_, &owner()}, wish.wait_obj, wish.wait_set);
}

int Counter::control(int command, void* argument) noexcept
{
    auto* const flags = static_cast<std::uint64_t*>(argument);
    switch (command) {
    case FI_GETOPSFLAG: // fi_cntr(3): attr.flags must be 0, so there are none
        if (flags == nullptr)
            return -FI_EINVAL;
        *flags = 0;
        return 0;
    case FI_SETOPSFLAG: return flags == nullptr || *flags != 0 ? -FI_EINVAL : 0;
    default: return wait_.control(command, argument);
    }
}

std::uint64_t Counter::read_errors() noexcept
{
    progress_.run();
    const std::uint64_t errors = errors_.load(std::memory_order_acquire);
    if (wait_.watched()) [[unlikely]]
        seen_errors_.store(errors, std::memory_order_relaxed);
    return errors;
}

void Counter::add(std::uint64_t value) noexcept
{
    count(value);
    polled_value_.store(value_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    changed();
}

void Counter::set(std::uint64_t value) noexcept
{
    will_change();
    assign(value);
    polled_value_.store(value, std::memory_order_relaxed);
    changed();
}

void Counter::add_errors(std::uint64_t value) noexcept
{
    count_error(value);
    changed();
}

void Counter::set_errors(std::uint64_t value) noexcept
{
    will_change();
    errors_.store(value, std::memory_order_release);
    wait_.signal();
    changed();
}

void Counter::will_change() noexcept
{
    if (owner().deferred().any()) [[unlikely]]
        owner().note_reached(*this);
}

/// The application has changed the counter: starts the operations that have waited for that.
void Counter::changed() noexcept
{
    if (owner().deferred().any()) [[unlikely]]
        (void)owner().progress_domain(false);
}

int Counter::close() noexcept
{
    if (in_use())
        owner().forget_counter(*this);
    {
        // A thread that has just counted the end of deferred work no longer uses the counter when the lock is free.
        std::lock_guard guard(owner().deferred().lock);
        if (in_use())
            return -FI_EBUSY;
    }
    delete this;
    return 0;
}

int Counter::wait(std::uint64_t threshold, int timeout_ms)
{
    const std::uint64_t errors = errors_.load(std::memory_order_acquire);
    int result = -FI_ETIMEDOUT;
    wait_.block(Deadline(timeout_ms), [&]() noexcept {
        progress_.run(true);
        if (value_.load(std::memory_order_acquire) >= threshold)
            result = 0;
        else if (errors_.load(std::memory_order_acquire) != errors)
            result = -FI_EAVAIL; // fi_cntr(3): an error while waiting ends the wait
        return result != -FI_ETIMEDOUT;
    });
    return result;
}

bool Counter::has_events() noexcept
{
    progress_.run();
    const std::uint64_t value = value_.load(std::memory_order_acquire);
    const std::uint64_t errors = errors_.load(std::memory_order_acquire);
    const bool same = polled_value_.exchange(value, std::memory_order_relaxed) == value;
    return !(polled_errors_.exchange(errors, std::memory_order_relaxed) == errors && same);
}

bool Counter::ready(void* self) noexcept
{
    auto& cntr = *static_cast<Counter*>(self);
    return cntr.value_.load(std::memory_order_acquire) != cntr.seen_value_.load(std::memory_order_relaxed) ||
           cntr.errors_.load(std::memory_order_acquire) != cntr.seen_errors_.load(std::memory_order_relaxed);
}

} // namespace tofu
