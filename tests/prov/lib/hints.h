// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_getinfo answers to hints.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace tofu::test {

// FI_MR_BASIC, FI_MR_SCALABLE and FI_ORDER_STRICT, whose names libfabric 2 deprecates.
inline constexpr int mr_basic = 1 << 0;
inline constexpr int mr_scalable = 1 << 1;
inline constexpr std::uint64_t order_strict = 0x1ff;
inline constexpr int provider_keys = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
inline constexpr std::uint64_t remote_access = FI_REMOTE_READ | FI_REMOTE_WRITE;
inline constexpr unsigned tags_of_a_vcq = 6144;
inline constexpr std::uint64_t atomic_orders =
    FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;

struct Free {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, Free>;

inline Info new_hints()
{
    Info hints(fi_allocinfo());
    hints->fabric_attr->prov_name = strdup("tofu");
    hints->ep_attr->type = FI_EP_RDM;
    return hints;
}

/// The answer to hints that `fill` completes; `error` is what fi_getinfo returned.
inline Info ask(const std::function<void(fi_info&)>& fill, std::uint32_t version = FI_VERSION(1, 17),
                int* error = nullptr, const char* node = nullptr, const char* service = nullptr,
                std::uint64_t flags = 0)
{
    Info hints = new_hints();
    fill(*hints);
    fi_info* found = nullptr;
    const int result = fi_getinfo(version, node, service, flags, hints.get(), &found);
    if (error != nullptr)
        *error = result;
    return Info(result == 0 ? found : nullptr);
}

/// The first answer, without which there is no test. The caller frees it.
inline fi_info* must_find(const std::function<void(fi_info&)>& fill, std::uint32_t version = FI_VERSION(1, 17),
                          const char* service = nullptr, std::uint64_t flags = 0)
{
    int error = 0;
    Info found = ask(fill, version, &error, nullptr, service, flags);
    if (found == nullptr) {
        std::fprintf(stderr, "fi_getinfo: %s\n", fi_strerror(-error));
        std::_Exit(1);
    }
    return found.release();
}

inline bool refused(const std::function<void(fi_info&)>& fill)
{
    int error = 0;
    ask(fill, FI_VERSION(1, 17), &error);
    return error == -FI_ENODATA;
}

inline unsigned count(const Info& info)
{
    unsigned n = 0;
    for (const fi_info* i = info.get(); i != nullptr; i = i->next)
        n++;
    return n;
}

} // namespace tofu::test
