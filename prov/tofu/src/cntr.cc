// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See cntr.h. fi_cntr(3).
#include "cntr.h"

#include <new>

#include <rdma/fi_errno.h>

#include "domain.h"
#include "log.h"
#include "wait.h"

namespace tofu {
namespace {

Counter& of_fid(struct fid* fid) noexcept
{
    return Counter::of(reinterpret_cast<fid_cntr*>(fid));
}
int close_cntr(struct fid* fid)
{
    return of_fid(fid).close();
}
int bind_cntr(struct fid*, struct fid*, std::uint64_t)
{
    return -FI_ENOSYS;
}
int control_cntr(struct fid* fid, int command, void* argument)
{
    if (command == FI_GETWAITOBJ) {
        *static_cast<fi_wait_obj*>(argument) = of_fid(fid).wait_object();
        return 0;
    }
    return command == FI_GETWAIT ? -FI_ENODATA : -FI_ENOSYS;
}
int open_cntr_ops(struct fid*, const char*, std::uint64_t, void**, void*)
{
    return -FI_ENOSYS;
}
std::uint64_t read(fid_cntr* cntr)
{
    return Counter::of(cntr).read();
}
std::uint64_t read_errors(fid_cntr* cntr)
{
    return Counter::of(cntr).read_errors();
}
int add(fid_cntr* cntr, std::uint64_t value)
{
    Counter::of(cntr).count(value);
    return 0;
}
int set(fid_cntr* cntr, std::uint64_t value)
{
    Counter::of(cntr).set(value);
    return 0;
}
int add_errors(fid_cntr* cntr, std::uint64_t value)
{
    Counter::of(cntr).count_error(value);
    return 0;
}
int set_errors(fid_cntr* cntr, std::uint64_t value)
{
    Counter::of(cntr).set_errors(value);
    return 0;
}
int wait(fid_cntr* cntr, std::uint64_t threshold, int timeout)
{
    return Counter::of(cntr).wait(threshold, timeout);
}

fi_ops fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_cntr,
    .bind = bind_cntr,
    .control = control_cntr,
    .ops_open = open_cntr_ops,
    .tostr = nullptr,
    .ops_set = nullptr,
};

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

Counter::Counter(Domain& domain, fi_wait_obj object) noexcept
    : domain_(domain), wait_object_(object), progress_(domain)
{
}

int Counter::open(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context)
{
    static constexpr fi_cntr_attr defaults{};
    const fi_cntr_attr& wish = attr != nullptr ? *attr : defaults;
    if (wish.events != FI_CNTR_EVENTS_COMP)
        return -FI_ENOSYS;
    if (wish.flags != 0)
        return -FI_EINVAL;
    if (!wait_object_offered(wish.wait_obj)) {
        TOFU_INFO(FI_LOG_CNTR, "wait object %d is not offered\n", wish.wait_obj);
        return -FI_ENOSYS;
    }
    Domain& owner = Domain::of(domain);
    auto* made = new (std::nothrow) Counter(owner, wish.wait_obj);
    if (made == nullptr)
        return -FI_ENOMEM;
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
    if (users_.load(std::memory_order_relaxed) != 0)
        return -FI_EBUSY;
    domain_.release();
    delete this;
    return 0;
}

std::uint64_t Counter::read() noexcept
{
    progress_.run();
    return value_.load(std::memory_order_acquire);
}

std::uint64_t Counter::read_errors() noexcept
{
    progress_.run();
    return errors_.load(std::memory_order_acquire);
}

int Counter::wait(std::uint64_t threshold, int timeout_ms) noexcept
{
    const std::uint64_t errors = errors_.load(std::memory_order_acquire);
    const Deadline deadline(timeout_ms);
    Sleeper sleeper(domain_, progress_, deadline);
    for (;;) {
        if (read() >= threshold)
            return 0;
        // fi_cntr(3): an error while waiting ends the wait
        if (errors_.load(std::memory_order_acquire) != errors)
            return -FI_EAVAIL;
        if (!sleeper.sleep())
            return -FI_ETIMEDOUT;
    }
}

} // namespace tofu
