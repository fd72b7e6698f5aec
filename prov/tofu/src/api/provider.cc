// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one symbol libfabric looks for, and the provider's description. libfabric calls it when it loads the module.
// Before the module is unloaded, it frees what endpoints have left (msg/rx_area). Everything else begins with getinfo.
#include <cstring>
#include <new>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "api/domain.h"
#include "api/getinfo.h"
#include "core/log.h"
#include "core/object.h"
#include "core/params.h"
#include "cq/eq.h"
#include "cq/poll_set.h"
#include "msg/rx_area.h"

namespace tofu {

static fi_ops fabric_fid_ops = object_ops({.close = close_object<FabricBase>});

static fi_ops_fabric fabric_ops = {
    .size = sizeof(fi_ops_fabric),
    .domain = Domain::open,
    .passive_ep = unsupported<-FI_ENOSYS>, // reliable datagrams need no connection
    .eq_open = EventQueue::open,
    .wait_open = WaitSet::open,
    .trywait = try_wait,
    .domain2 = nullptr,
};

/// fi_fabric(3). 0, -FI_EINVAL, -FI_ENOMEM.
static int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) noexcept
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

fi_provider provider = {
    .version = FI_VERSION(1, 0),
    .fi_version = 0, // filled in by fi_prov_ini
    .context = {},
    .name = "tofu",
    .getinfo = get_info,
    .fabric = open_fabric,
    .cleanup = proto::ReceiveArea::drop_spare, // no more: the backend stays, objects are the application's to close
};

} // namespace tofu

extern "C" [[gnu::visibility("default")]] fi_provider* fi_prov_ini(void)
{
    // libfabric skips a provider that names another version than its own, and one binary serves them all: so
    // it is the version of the library that loads us.
    tofu::provider.fi_version = fi_version();
    tofu::define_params();
    return &tofu::provider;
}
