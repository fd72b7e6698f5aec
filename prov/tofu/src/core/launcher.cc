// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See launcher.h.
#include "core/launcher.h"

#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace tofu::node {
namespace {

template <class Function>
bool find(const char* name, Function& function) noexcept
{
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
}

/// pmix_topology_t of PMIx 4 and later.
struct PmixTopology {
    char* source;
    void* topology;
};

/// PMIx's, which it keeps. PMIx 4 discovers it itself, with devices, so its answer is not worth having.
hwloc_topology_t of_pmix() noexcept
{
    int (*initialized)() = nullptr;
    const char* (*version)() = nullptr;
    int (*load)(PmixTopology*) = nullptr;
    if (!find("PMIx_Initialized", initialized) || !find("PMIx_Get_version", version) ||
        !find("PMIx_Load_topology", load) || initialized() == 0)
        return nullptr;
    const char* const text = version();
    const char* const digit = text != nullptr ? std::strpbrk(text, "0123456789") : nullptr;
    PmixTopology answer{nullptr, nullptr};
    if (digit == nullptr || std::atoi(digit) < 5 || load(&answer) != 0 || answer.source == nullptr)
        return nullptr;
    return std::strncmp(answer.source, "hwloc", 5) == 0 ? static_cast<hwloc_topology_t>(answer.topology) : nullptr;
}

/// Open MPI 4's own, once it has read it.
hwloc_topology_t of_open_mpi() noexcept
{
    const auto* const kept = static_cast<const hwloc_topology_t*>(dlsym(RTLD_DEFAULT, "opal_hwloc_topology"));
    return kept != nullptr ? *kept : nullptr;
}

} // namespace

hwloc_topology_t copy_of_launchers(const Hwloc& library) noexcept
{
    // A topology can be read by the library that made it, and by no other.
    if (dlsym(RTLD_DEFAULT, "hwloc_topology_init") != reinterpret_cast<void*>(library.topology_init))
        return nullptr;
    hwloc_topology_t shared = of_pmix();
    if (shared == nullptr)
        shared = of_open_mpi();
    hwloc_topology_t copy = nullptr;
    if (shared == nullptr || library.topology_abi_check(shared) != 0 || library.topology_dup(&copy, shared) != 0)
        return nullptr;
    return copy;
}

} // namespace tofu::node
