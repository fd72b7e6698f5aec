// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See fabric.h.
#include "api/fabric.h"

#include <cstring>
#include <new>

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "api/domain.h"
#include "api/getinfo.h"
#include "core/object.h"
#include "cq/eq.h"
#include "cq/poll_set.h"
#include "cq/wait_set.h"

namespace tofu {
namespace {

int close_fabric(struct fid* fid) noexcept
{
    auto& fabric = FabricBase::of(fid);
    if (fabric.in_use())
        return -FI_EBUSY;
    FabricBase::all().remove(fabric);
    delete &fabric;
    return 0;
}

fi_ops fabric_fid_ops = object_ops({.close = close_fabric});

fi_ops_fabric fabric_ops = {
    .size = sizeof(fi_ops_fabric),
    .domain = Domain::open,
    .passive_ep = refuses<-FI_ENOSYS>, // reliable datagrams need no connection
    .eq_open = EventQueue::open,
    .wait_open = WaitSet::open,
    .trywait = try_wait,
    .domain2 = nullptr,
};

} // namespace

int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) noexcept
{
    if (attr->name != nullptr && std::strcmp(attr->name, fabric_name) != 0)
        return -FI_EINVAL;
    auto* made = new (std::nothrow) FabricBase;
    if (made == nullptr)
        return -FI_ENOMEM;
    made->fid.context = context;
    made->fid.ops = &fabric_fid_ops;
    made->ops = &fabric_ops;
    made->api_version = attr->api_version;
    FabricBase::all().add(*made);
    *fabric = made;
    return 0;
}

} // namespace tofu
