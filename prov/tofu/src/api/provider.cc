// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one symbol libfabric looks for, and the provider's description. Called by libfabric when it loads the
// module; calls param and, before it is unloaded, msg/rx_area. Everything else begins with getinfo.
#include <rdma/fabric.h>

#include "api/fabric.h"
#include "api/getinfo.h"
#include "core/log.h"
#include "core/params.h"
#include "msg/rx_area.h"

namespace tofu {

fi_provider provider = {
    .version = FI_VERSION(1, 0),
    .fi_version = 0, // filled in by fi_prov_ini
    .context = {},
    .name = "tofu",
    .getinfo = get_info,
    .fabric = open_fabric,
    .cleanup = proto::Area::drop_spare, // no more: the backend stays, objects are the application's to close
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
