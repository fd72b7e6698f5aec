// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_mr(3): the calls of the application on regions, by the domain's table and each region's. The domain's RegionTable
// (mem/mr.h) does the work.
#include <cstring>
#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "api/domain.h"
#include "api/endpoint.h"
#include "core/log.h"
#include "core/object.h"
#include "cq/counter.h"
#include "cq/eq.h"
#include "mem/mr.h"

namespace tofu {

namespace {

constexpr std::uint64_t remote_rights = FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr std::uint64_t all_rights = remote_rights | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_COLLECTIVE;
/// Flags that name kinds of operations are no access rights, but programs pass them with the rights (LCI: FI_RMA).
constexpr std::uint64_t kinds = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;

/// The raw key of a region is its key, and its base address (fi_mr_raw_attr).
int raw_attr(const MemoryRegion& region, struct fi_mr_raw_attr* attr) noexcept
{
    if (attr == nullptr || attr->key_size == nullptr)
        return -FI_EINVAL;
    const std::size_t room = *attr->key_size;
    *attr->key_size = sizeof(region.key);
    if (room < sizeof(region.key))
        return -FI_ETOOSMALL;
    if (attr->raw_key == nullptr || attr->base_addr == nullptr)
        return -FI_EINVAL;
    std::memcpy(attr->raw_key, &region.key, sizeof(region.key));
    *attr->base_addr = region.base();
    return 0;
}

int bind_counter(MemoryRegion& region, Counter& counter, std::uint64_t flags) noexcept
{
    if ((flags & ~remote_rights) || flags == 0)
        return -FI_EBADFLAGS;
    if (&counter.owner() != &region.owner())
        return -FI_EDOMAIN;
    return region.owner().regions().bind(region, counter, flags);
}

int bind_endpoint(MemoryRegion& region, Endpoint& endpoint, std::uint64_t flags) noexcept
{
    if (&endpoint.owner() != &region.owner())
        return -FI_EINVAL;
    if (flags != 0) // fi_mr(3) has flags for counters only
        return -FI_EBADFLAGS;
    region.owner().regions().bind(region, endpoint.tx_context().config().number);
    return 0;
}

int close_region(struct fid* f) noexcept
{
    MemoryRegion& region = MemoryRegion::of(f);
    region.owner().regions().remove(region);
    if (EventQueue* const events = static_cast<Domain&>(region.owner()).registration_events(); events != nullptr)
        events->forget(*f);
    delete &region;
    return 0;
}

int bind_region(struct fid* f, struct fid* object, uint64_t flags) noexcept
{
    if (is_ours(object, FI_CLASS_CNTR))
        return bind_counter(MemoryRegion::of(f), Counter::of(object), flags);
    return is_ours(object, FI_CLASS_EP) ? bind_endpoint(MemoryRegion::of(f), Endpoint::of(object), flags) : -FI_EINVAL;
}

int control_region(struct fid* f, int command, void* argument) noexcept
{
    switch (command) {
    case FI_ENABLE:  // regions can be used from their registration on
    case FI_REFRESH: // the pages behind a region follow the address space by themselves
        return 0;
    case FI_GET_RAW_MR: return raw_attr(MemoryRegion::of(f), static_cast<struct fi_mr_raw_attr*>(argument));
    default: return -FI_ENOSYS;
    }
}

fi_ops region_fid_ops = object_ops({.close = close_region, .bind = bind_region, .control = control_region});

int reg_attr(struct fid* f, const struct fi_mr_attr* attr, uint64_t flags, struct fid_mr** mr) noexcept
{
    if (f == nullptr || f->fclass != FI_CLASS_DOMAIN || attr == nullptr || mr == nullptr || attr->iov_count != 1 ||
        attr->mr_iov == nullptr || attr->offset != 0)
        return -FI_EINVAL;
    const auto base = reinterpret_cast<std::uintptr_t>(attr->mr_iov->iov_base);
    const std::size_t length = attr->mr_iov->iov_len;
    // The whole address space (0, SIZE_MAX) does not fit one registration of a TNI, and a range that wraps is invalid.
    if (length > SIZE_MAX / 2 || base + length < base || (attr->access & ~(all_rights | kinds)))
        return -FI_EINVAL;
    if (flags & ~FI_RMA_EVENT) // neither persistent memory nor that of devices is offered
        return -FI_EBADFLAGS;
    Domain& domain = Domain::of(reinterpret_cast<fid_domain*>(f));
    // fi_mr(3): from version 1.5 on the structure has a key of authorization, which nothing here would check.
    if (FI_VERSION_GE(domain.model().api_version, FI_VERSION(1, 5)) && attr->auth_key_size != 0) {
        TOFU_WARN(FI_LOG_MR, "fi_mr_regattr: authorization keys are not supported: set auth_key_size to 0\n");
        return -FI_EINVAL;
    }
    std::unique_ptr<MemoryRegion> region(new (std::nothrow) MemoryRegion(domain, region_fid_ops));
    if (region == nullptr)
        return -FI_ENOMEM;
    region->fid.context = attr->context;
    if (int ret = domain.regions().add(*region, *attr); ret != 0)
        return ret;
    *mr = region.release(); // before the event can be read (fi_mr(3))
    if (EventQueue* const events = domain.registration_events(); events != nullptr)
        events->post(FI_MR_COMPLETE, {&(*mr)->fid, attr->context, 0});
    return 0;
}

int reg_segments(struct fid* f, const struct iovec* iov, size_t count, uint64_t access, uint64_t offset,
                 uint64_t requested_key, uint64_t flags, struct fid_mr** mr, void* context) noexcept
{
    fi_mr_attr attr{};
    attr.mr_iov = iov;
    attr.iov_count = count;
    attr.access = access;
    attr.offset = offset;
    attr.requested_key = requested_key;
    attr.context = context;
    return reg_attr(f, &attr, flags, mr);
}

int reg_buffer(struct fid* f, const void* buf, size_t len, uint64_t access, uint64_t offset, uint64_t requested_key,
               uint64_t flags, struct fid_mr** mr, void* context) noexcept
{
    const iovec iov{const_cast<void*>(buf), len};
    return reg_segments(f, &iov, 1, access, offset, requested_key, flags, mr, context);
}

} // namespace

fi_ops_mr region_ops = {sizeof(fi_ops_mr), reg_buffer, reg_segments, reg_attr};

} // namespace tofu
