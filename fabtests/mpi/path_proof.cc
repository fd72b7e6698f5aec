// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an MPI process can prove about the way its messages take, from the inside.
#include "path_proof.h"

#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <vector>

namespace mpidemo {
namespace {

constexpr uint16_t max_tnis = 16; // more than any node has; the library refuses those it lacks

int look_at_library(dl_phdr_info* info, size_t, void* data)
{
    auto& parts = *static_cast<LoadedParts*>(data);
    const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
    const std::string_view name = path.substr(path.rfind('/') + 1);
    if (name.starts_with("mca_pml_")) {
        parts.built_in = false;
        parts.pml_cm = parts.pml_cm || name == "mca_pml_cm.so";
        parts.other_pml = parts.other_pml || name == "mca_pml_ob1.so" || name == "mca_pml_ucx.so";
    } else if (name == "mca_mtl_ofi.so") {
        parts.mtl_ofi = true;
    } else if (name == "libtofu-fi.so") {
        parts.provider = true;
        parts.provider_path = path;
    } else if (name.starts_with("libtofucom.so")) {
        parts.backend_path = path;
    }
    return 0;
}

} // namespace

LoadedParts find_loaded_parts()
{
    LoadedParts parts;
    ::dl_iterate_phdr(look_at_library, &parts);
    return parts;
}

std::string control_variable(std::string_view name)
{
    std::string result;
    int provided = 0;
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
        return result;
    int index = 0;
    if (MPI_T_cvar_get_index(std::string(name).c_str(), &index) == MPI_SUCCESS) {
        MPI_T_cvar_handle handle;
        int count = 0;
        if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS) {
            std::vector<char> text(static_cast<size_t>(count) + 1, '\0');
            if (MPI_T_cvar_read(handle, text.data()) == MPI_SUCCESS)
                result = text.data();
            MPI_T_cvar_handle_free(&handle);
        }
    }
    MPI_T_finalize();
    return result;
}

Backend::Backend(const std::string& path)
{
    if (path.empty())
        return;
    library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library_ != nullptr) {
        coords_ = reinterpret_cast<CoordsFunction>(::dlsym(library_, "utofu_query_my_coords"));
        statistics_ = reinterpret_cast<StatisticsFunction>(::dlsym(library_, "tofu_sim_query_statistics"));
    }
}

Backend::~Backend()
{
    if (library_ != nullptr)
        ::dlclose(library_);
}

bool Backend::coordinates(std::array<uint8_t, 6>& coords) const
{
    return coords_ != nullptr && coords_(coords.data()) == 0;
}

Backend::Counts Backend::counts() const
{
    Counts total;
    for (uint16_t tni = 0; statistics_ != nullptr && tni < max_tnis; tni++) {
        Counts of_tni;
        if (statistics_(tni, &of_tni) == 0) {
            total.operations += of_tni.operations;
            total.bytes += of_tni.bytes;
        }
    }
    return total;
}

} // namespace mpidemo
