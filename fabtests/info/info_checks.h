// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The parts of the program for fi_getinfo(3), fi_fabric(3) and fi_domain(3), and how they ask.
#pragma once

#include <cstdlib>
#include <cstring>

#include "../common/world.h"

namespace fabtests {

inline constexpr std::uint32_t version = FI_VERSION(1, 17);

/// One question to the provider.
struct Ask {
    World& w;
    fi_info* hints = fi_allocinfo();
    fi_info* info = nullptr;
    explicit Ask(World& world) : w(world)
    {
        hints->fabric_attr->prov_name = strdup(w.info().fabric_attr->prov_name);
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->mr_mode = w.info().domain_attr->mr_mode;
    }
    Ask(const Ask&) = delete;
    ~Ask()
    {
        hints->fabric_attr->fabric = nullptr;
        hints->domain_attr->domain = nullptr;
        fi_freeinfo(hints);
        if (info != nullptr)
            fi_freeinfo(info);
    }
    int operator()(std::uint64_t flags = 0, std::uint32_t api = version, const char* node = nullptr,
                   const char* service = nullptr)
    {
        if (info != nullptr)
            fi_freeinfo(info);
        info = nullptr;
        return fi_getinfo(api, node, service, flags, hints, &info);
    }
};

void info_addresses(World& world);      ///< node, service, FI_SOURCE, src_addr, dest_addr
void info_text_addresses(World& world); ///< FI_ADDR_STR
void info_instances(World& world);      ///< fabric_attr.fabric, domain_attr.domain
void info_fabric(World& world);         ///< fi_fabric, fi_close
void info_domain(World& world);         ///< fi_domain, fi_domain_bind, fi_open_ops, fi_set_ops
void info_domain_busy(World& world);    ///< fi_close

} // namespace fabtests
