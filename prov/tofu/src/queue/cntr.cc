// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See cntr.h. fi_cntr(3).
#include "queue/cntr.h"

#include <new>

#include <rdma/fi_errno.h>

#include "progress/domain_base.h"
#include "progress/wait.h"
#include "provider/log.h"
#include "provider/refusal.h"

namespace tofu {
namespace {

Counter& of_fid(struct fid* fid) noexcept
{
    return Counter::of(reinterpret_cast<fid_cntr*>(fid));
}
int close_cntr(struct fid* fid) noexcept
{
    return of_fid(fid).close();
}
int control_cntr(struct fid* fid, int command, void* argument) noexcept
{
    auto* const flags = static_cast<std::uint64_t*>(argument);
    switch (command) {
    case FI_GETOPSFLAG: // fi_cntr(3): attr.flags must be 0, so there are none
        if (flags == nullptr)
            return -FI_EINVAL;
        *flags = 0;
        return 0;
    case FI_SETOPSFLAG: return flags == nullptr || *flags != 0 ? -FI_EINVAL : 0;
    default: return of_fid(fid).wait_object().control(command, argument);
    }
}
std::uint64_t read(fid_cntr* cntr) noexcept
{
    return Counter::of(cntr).read();
}
std::uint64_t read_errors(fid_cntr* cntr) noexcept
{
    return Counter::of(cntr).read_errors();
}
int add(fid_cntr* cntr, std::uint64_t value) noexcept
{
    Counter::of(cntr).add(value);
    return 0;
}
int set(fid_cntr* cntr, std::uint64_t value) noexcept
{
    Counter::of(cntr).set(value);
    return 0;
}
int add_errors(fid_cntr* cntr, std::uint64_t value) noexcept
{
    Counter::of(cntr).count_error(value);
    return 0;
}
int set_errors(fid_cntr* cntr, std::uint64_t value) noexcept
{
    Counter::of(cntr).set_errors(value);
    return 0;
}
int wait(fid_cntr* cntr, std::uint64_t threshold, int timeout) noexcept
{
    return Counter::of(cntr).wait(threshold, timeout);
}

fi_ops fid_ops = object_ops({.close = close_cntr, .control = control_cntr});

fi_ops_cntr cntr_ops = {
    .size = sizeof(fi_ops_cntr),
    .read = read,
    .readerr = read_errors,
    .add = add,
    .set = set,
    .wait = wait,
    .adderr = add_errors,
    .seterr = set_errors,
};

} // namespace

Counter::Counter(DomainBase& domain) noexcept : domain_(domain), progress_(domain) {}

int Counter::open(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context) noexcept
{
    static constexpr fi_cntr_attr defaults{};
    const fi_cntr_attr& wish = attr != nullptr ? *attr : defaults;
    if (wish.events != FI_CNTR_EVENTS_COMP)
        return -FI_ENOSYS;
    if (wish.flags != 0)
        return -FI_EINVAL;
    DomainBase& owner = DomainBase::of(domain);
    auto* made = new (std::nothrow) Counter(owner);
    if (made == nullptr)
        return -FI_ENOMEM;
    const WaitObject::Owner self{made, ready, &made->progress_, &owner};
    if (int error = made->wait_.open(self, wish.wait_obj, wish.wait_set); error != 0) {
        delete made;
        return error;
    }
    made->fid.fclass = FI_CLASS_CNTR;
    made->fid.context = context;
    made->fid.ops = &fid_ops;
    made->ops = &cntr_ops;
    owner.hold();
    *cntr = made;
    return 0;
}

int Counter::close() noexcept
{
    if (in_use())
        return -FI_EBUSY;
    domain_.release();
    delete this;
    return 0;
}

std::uint64_t Counter::read() noexcept
{
    progress_.run() ? progress_.found() : progress_.found_nothing();
    const std::uint64_t value = value_.load(std::memory_order_acquire);
    if (wait_.watched()) [[unlikely]]
        seen_value_.store(value, std::memory_order_relaxed);
    return value;
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
}

void Counter::set(std::uint64_t value) noexcept
{
    value_.store(value, std::memory_order_release);
    polled_value_.store(value, std::memory_order_relaxed);
    wait_.signal();
}

void Counter::set_errors(std::uint64_t value) noexcept
{
    errors_.store(value, std::memory_order_release);
    wait_.signal();
}

int Counter::wait(std::uint64_t threshold, int timeout_ms) noexcept
{
    const std::uint64_t errors = errors_.load(std::memory_order_acquire);
    const Deadline deadline(timeout_ms);
    const WaitObject::Blocked blocked(wait_);
    Sleeper sleeper(&domain_.backend().functions(), deadline, wait_.yields());
    ProgressSet* const sets[] = {&progress_};
    for (;;) {
        progress_.run(true); // patient: see Sleeper
        if (value_.load(std::memory_order_acquire) >= threshold)
            return 0;
        // fi_cntr(3): an error while waiting ends the wait
        if (errors_.load(std::memory_order_acquire) != errors)
            return -FI_EAVAIL;
        if (!sleeper.sleep(sets, 1))
            return -FI_ETIMEDOUT;
    }
}

bool Counter::changed_since_poll() noexcept
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
    return cntr.value_.load(std::memory_order_acquire) !=
               cntr.seen_value_.load(std::memory_order_relaxed) ||
           cntr.errors_.load(std::memory_order_acquire) !=
               cntr.seen_errors_.load(std::memory_order_relaxed);
}

} // namespace tofu
