// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider linked into a test, that looks inside or changes the library under it. Included by such a program;
// calls the provider.
#pragma once

#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

// Libfabric's two calls that lead to a provider lead to the one that is linked in.
extern "C" fi_provider* fi_prov_ini(void);
inline fi_provider& linked()
{
    static fi_provider& provider = *fi_prov_ini();
    return provider;
}
extern "C" inline int fi_getinfo(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
                                 const fi_info* hints, fi_info** info)
{
    return linked().getinfo(version, node, service, flags, hints, info);
}
extern "C" inline int fi_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context)
{
    return linked().fabric(attr, fabric, context);
}
