// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See library.h.
#include "library.h"

#include <dlfcn.h>

namespace tofu::check {

bool Library::load(const char* path, std::string& why)
{
    void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL); // never closed: it may have threads
    if (handle == nullptr) {
        why = dlerror();
        return false;
    }
#define X(name)                                                                                                        \
    this->name = reinterpret_cast<decltype(this->name)>(dlsym(handle, "utofu_" #name));                                \
    if (this->name == nullptr)                                                                                         \
        missing += " utofu_" #name;
    TOFU_CHECK_FUNCTIONS(X)
#undef X
#define X(name) this->name = reinterpret_cast<decltype(this->name)>(dlsym(handle, "utofu_" #name));
    TOFU_CHECK_GATE_FUNCTIONS(X)
#undef X
    query_utofu_version = reinterpret_cast<decltype(query_utofu_version)>(dlsym(handle, "utofu_query_utofu_version"));
    query_tofu_version = reinterpret_cast<decltype(query_tofu_version)>(dlsym(handle, "utofu_query_tofu_version"));
    simulator_version = reinterpret_cast<decltype(simulator_version)>(dlsym(handle, "tofu_sim_version"));
    return true;
}

} // namespace tofu::check
