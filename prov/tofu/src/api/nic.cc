// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See nic.h.
#include "api/nic.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include "mem/numa.h"
#include "utofu/library.h"

namespace tofu {
namespace {

// Ajima et al., "The Tofu Interconnect D", CLUSTER 2018: 6.8 GB/s each way.
constexpr std::size_t link_bits_per_s = 54'400'000'000;

template <class T>
T* allocate_zeroed() noexcept
{
    return static_cast<T*>(std::calloc(1, sizeof(T)));
}

int close_nic(struct fid* fid) noexcept
{
    auto* const nic = reinterpret_cast<fid_nic*>(fid);
    if (const fi_device_attr* device = nic->device_attr)
        for (char* text : {device->name, device->device_id, device->device_version, device->vendor_id, device->driver,
                           device->firmware})
            std::free(text);
    if (const fi_link_attr* link = nic->link_attr)
        for (char* text : {link->address, link->network_type})
            std::free(text);
    for (void* part : {static_cast<void*>(nic->device_attr), static_cast<void*>(nic->bus_attr),
                       static_cast<void*>(nic->link_attr), static_cast<void*>(nic)})
        std::free(part);
    return 0;
}

char* copy_of(const char* text) noexcept
{
    return text != nullptr ? strdup(text) : nullptr;
}

/// All but the strings. Null: no memory.
fid_nic* make_empty() noexcept;

/// fi_dupinfo(3) asks for a copy by FI_DUP.
int control_nic(struct fid* fid, int command, void* argument) noexcept
{
    if (command != FI_DUP)
        return -FI_ENOSYS;
    const auto* const nic = reinterpret_cast<const fid_nic*>(fid);
    fid_nic* const copy = make_empty();
    *static_cast<fid_nic**>(argument) = copy; // also a null: libfabric closes what it finds there
    if (copy == nullptr)
        return -FI_ENOMEM;
    copy->device_attr->name = copy_of(nic->device_attr->name);
    copy->device_attr->driver = copy_of(nic->device_attr->driver);
    *copy->bus_attr = *nic->bus_attr;
    *copy->link_attr = *nic->link_attr;
    copy->link_attr->address = copy_of(nic->link_attr->address);
    copy->link_attr->network_type = copy_of(nic->link_attr->network_type);
    return 0;
}

/// fi_tostr(3) of an info: appends what libfabric's own interfaces show.
int show_nic(const struct fid* fid, char* text, std::size_t size) noexcept
{
    const auto* const nic = reinterpret_cast<const fid_nic*>(fid);
    const auto shown = [](const char* part) { return part != nullptr ? part : "-"; };
    const std::size_t used = strnlen(text, size);
    char placement[512];
    describe_placement(placement, sizeof placement);
    std::snprintf(text + used, size - used,
                  "    nic:\n"
                  "        fi_device_attr:\n            name: %s\n            driver: %s\n"
                  "        fi_bus_attr:\n            bus_type: FI_BUS_UNKNOWN\n"
                  "        fi_link_attr:\n            address: %s\n            mtu: %zu\n            speed: %zu\n"
                  "            state: FI_LINK_UP\n            network_type: %s\n"
                  "        placement:\n            %s\n",
                  shown(nic->device_attr->name), shown(nic->device_attr->driver), shown(nic->link_attr->address),
                  nic->link_attr->mtu, nic->link_attr->speed, shown(nic->link_attr->network_type), placement);
    return 0;
}

fi_ops nic_ops = {.size = sizeof(fi_ops), .close = close_nic, .bind = nullptr, .control = control_nic, .ops_open = nullptr,
                  .tostr = show_nic, .ops_set = nullptr};

fid_nic* make_empty() noexcept
{
    auto* const nic = allocate_zeroed<fid_nic>();
    if (nic == nullptr)
        return nullptr;
    nic->fid.fclass = FI_CLASS_NIC;
    nic->fid.ops = &nic_ops;
    nic->device_attr = allocate_zeroed<fi_device_attr>();
    nic->bus_attr = allocate_zeroed<fi_bus_attr>();
    nic->link_attr = allocate_zeroed<fi_link_attr>();
    if (nic->device_attr != nullptr && nic->bus_attr != nullptr && nic->link_attr != nullptr)
        return nic;
    close_nic(&nic->fid);
    return nullptr;
}

/// The node's coordinates, x.y.z.a.b.c; null where they can't be told, or asking makes a process part of the simulator's
/// job, which somebody who only looks around shall not become.
char* address_of_node(const vcq::Backend& backend) noexcept
{
    std::uint8_t c[6] = {};
    const vcq::Functions& f = backend.functions();
    if (f.job != nullptr || f.query_my_coords == nullptr || f.query_my_coords(c) != UTOFU_SUCCESS)
        return nullptr;
    char text[6 * 4];
    std::snprintf(text, sizeof(text), "%u.%u.%u.%u.%u.%u", c[0], c[1], c[2], c[3], c[4], c[5]);
    return strdup(text);
}

} // namespace

fid_nic* make_nic(const vcq::Backend& backend) noexcept
{
    fid_nic* const nic = make_empty();
    if (nic == nullptr)
        return nullptr;
    nic->device_attr->name = strdup("tofu");
    nic->device_attr->driver = strdup(backend.functions().job != nullptr ? "tofu_sim" : "libtofucom");
    nic->bus_attr->bus_type = FI_BUS_UNKNOWN; // on the processor's chip
    nic->link_attr->address = address_of_node(backend);
    nic->link_attr->mtu = backend.caps().max_mtu;
    nic->link_attr->speed = link_bits_per_s;
    nic->link_attr->state = FI_LINK_UP;
    nic->link_attr->network_type = strdup("Tofu-D");
    return nic;
}

} // namespace tofu
