// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Finding, loading and checking the uTofu library. See library.h.
#include "utofu/library.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <dlfcn.h>
#include <rdma/fi_errno.h>
#include <strings.h>

#include "core/log.h"
#include "core/params.h"

namespace tofu::vcq {

namespace {

constexpr const char* library_name = "libtofucom.so";
constexpr const char* simulator_mark = "tofu_sim_version"; ///< exported by our library only

struct Close {
    void operator()(void* handle) const noexcept { dlclose(handle); }
};
/// A library that is being examined; it is closed again unless it is kept.
using Library = std::unique_ptr<void, Close>;

Library open(const char* path)
{
    return Library(dlopen(path, RTLD_NOW | RTLD_LOCAL));
}

bool is_simulator(const Library& library) noexcept
{
    return dlsym(library.get(), simulator_mark) != nullptr;
}

/// Our simulator: beside this module or above it (the build tree and an installation with
/// $libdir/libfabric/libtofu-fi.so), else where `make install` puts it, else the loader's path.
Library find_simulator(char* path, std::size_t size)
{
    Library library;
    const auto is_there = [&] {
        library = open(path);
        return library && is_simulator(library);
    };
    Dl_info self{};
    if (dladdr(reinterpret_cast<void*>(&find_simulator), &self) != 0 && self.dli_fname != nullptr) {
        const char* slash = std::strrchr(self.dli_fname, '/');
        const int length = slash != nullptr ? static_cast<int>(slash - self.dli_fname) : 0;
        for (const char* up : {"", "/.."}) {
            std::snprintf(path, size, "%.*s%s/%s", length, self.dli_fname, up, library_name);
            if (is_there())
                return library;
        }
    }
    for (const char* place : {TOFU_LIBDIR "/libtofucom.so", library_name}) {
        std::snprintf(path, size, "%s", place);
        if (is_there())
            return library;
    }
    path[0] = '\0';
    return {};
}

/// The machine's own library: found by the loader, and not ours.
Library find_real()
{
    Library library = open(library_name);
    return library && !is_simulator(library) ? std::move(library) : Library();
}

template <class F>
void resolve(const Library& library, F& function, const char* name, const char*& missing)
{
    function = reinterpret_cast<F>(dlsym(library.get(), name));
    if (function == nullptr && missing == nullptr)
        missing = name;
}

/// Fills the table, or names the first missing symbol.
const char* fill(const Library& library, Functions& f)
{
    const char* missing = nullptr;
#define TOFU_RESOLVE(name) resolve(library, f.name, "utofu_" #name, missing);
    TOFU_FUNCTIONS(TOFU_RESOLVE)
#undef TOFU_RESOLVE
    const char* optional = nullptr;
#define TOFU_RESOLVE(name) resolve(library, f.name, "utofu_" #name, optional);
    TOFU_GATE_FUNCTIONS(TOFU_RESOLVE)
#undef TOFU_RESOLVE
    resolve(library, f.wait, "tofu_sim_wait", optional);
    resolve(library, f.give_way, "tofu_sim_give_way", optional);
    resolve(library, f.job, "tofu_sim_job", optional);
    resolve(library, f.wake, "tofu_sim_wake", optional);
    resolve(library, f.seen, "tofu_sim_seen", optional);
    resolve(library, f.moved, "tofu_sim_moved", optional);
    return missing;
}

/// Finds the common capabilities of all TNIs of the process. 0, or -FI_ENODATA if there is none.
int query_tnis(const Functions& f, utofu_tni_id_t* tnis, std::size_t& count, utofu_onesided_caps& least)
{
    utofu_tni_id_t* list = nullptr;
    std::size_t found = 0;
    if (f.get_onesided_tnis(&list, &found) != UTOFU_SUCCESS)
        return -FI_ENODATA;
    count = 0;
    for (std::size_t i = 0; i < found && count < 16; i++) {
        utofu_onesided_caps* caps = nullptr;
        if (f.query_onesided_caps(list[i], &caps) != UTOFU_SUCCESS || caps == nullptr ||
            (caps->flags & UTOFU_ONESIDED_CAP_FLAG_ARMW) == 0)
            continue;
        if (count == 0)
            least = *caps;
        least.armw_ops &= caps->armw_ops;
        least.num_reserved_stags = std::min(least.num_reserved_stags, caps->num_reserved_stags);
        least.max_putget_size = std::min(least.max_putget_size, caps->max_putget_size);
        least.max_piggyback_size = std::min(least.max_piggyback_size, caps->max_piggyback_size);
        tnis[count++] = list[i];
    }
    std::free(list);
    return count > 0 ? 0 : -FI_ENODATA;
}

/// Does FI_PROVIDER name us? Then the user wants to know why the provider is not available.
bool provider_asked_for() noexcept
{
    const char* wanted = std::getenv("FI_PROVIDER");
    return wanted != nullptr && std::strstr(wanted, "tofu") != nullptr;
}
/// Does it name only us? Then the program would have no provider without the simulator.
bool provider_alone_asked_for() noexcept
{
    const char* wanted = std::getenv("FI_PROVIDER");
    return wanted != nullptr && strcasecmp(wanted, provider.name) == 0; // as libfabric compares
}

template <int answer, class... Args>
int answering(Args...) noexcept
{
    return answer;
}
template <int answer, class... Args>
void set_answer(int (*&function)(Args...)) noexcept
{
    function = answering<answer, Args...>;
}

} // namespace

const Functions& functions_of_child() noexcept
{
    static const Functions all = [] {
        Functions f{};
#define TOFU_REFUSE(name) set_answer<UTOFU_ERR_NOT_AVAILABLE>(f.name);
        TOFU_FUNCTIONS(TOFU_REFUSE)
        TOFU_GATE_FUNCTIONS(TOFU_REFUSE)
#undef TOFU_REFUSE
        set_answer<UTOFU_SUCCESS>(f.free_vcq);
        set_answer<UTOFU_SUCCESS>(f.dereg_mem);
        set_answer<UTOFU_SUCCESS>(f.free_vbg);
        set_answer<UTOFU_ERR_NOT_FOUND>(f.poll_tcq);
        set_answer<UTOFU_ERR_NOT_FOUND>(f.poll_mrq);
        return f;
    }();
    return all;
}

int Backend::load()
{
    const char* wanted = param_string("backend", "auto");
    const bool automatic = std::strcmp(wanted, "auto") == 0;
    Library library;
    if (automatic || std::strcmp(wanted, "utofu") == 0) {
        library = find_real();
        if (library) {
            std::snprintf(path_, sizeof(path_), "%s", library_name);
            if (automatic &&
                (fill(library, functions_) != nullptr || query_tnis(functions_, tnis_, tni_count_, caps_) != 0))
                library.reset(); // installed, but there is no Tofu interface on this machine
        } else if (!automatic) {
            warn_user("FI_TOFU_BACKEND=utofu, but the loader finds no libtofucom.so of a Tofu "
                      "machine: set LD_LIBRARY_PATH, or FI_TOFU_BACKEND=sim for the simulator");
            return -FI_ENODATA;
        }
    }
    if (!library && automatic && !provider_alone_asked_for()) {
        // A job on a cluster without Tofu must not run over a simulator just because that is installed there.
        static constexpr const char* text = "no Tofu interface on this machine: run on a compute node that has one, or "
                                            "set FI_TOFU_BACKEND=sim for the simulator";
        if (provider_asked_for())
            warn_user("%s", text);
        else
            TOFU_INFO(FI_LOG_CORE, "%s\n", text);
        return -FI_ENODATA;
    }
    if (!library && (automatic || std::strcmp(wanted, "sim") == 0)) {
        library = find_simulator(path_, sizeof(path_));
        if (!library) {
            warn_user("no uTofu library: this machine has neither a Tofu interface nor the simulator's libtofucom.so: "
                      "install it or set its path in FI_TOFU_BACKEND");
            return -FI_ENODATA;
        }
        if (automatic)
            warn_user("FI_PROVIDER=tofu without a Tofu interface: using the simulator, %s; FI_TOFU_BACKEND=sim "
                      "suppresses this line",
                      path_);
    }
    if (!library) {
        if (std::strchr(wanted, '/') == nullptr) {
            warn_user("FI_TOFU_BACKEND=%s is invalid: use auto, utofu, sim or a path with a slash", wanted);
            return -FI_EINVAL;
        }
        std::snprintf(path_, sizeof(path_), "%s", wanted);
        library = open(wanted);
        if (!library) {
            warn_user("FI_TOFU_BACKEND: %s: set the path of a uTofu library", dlerror());
            return -FI_ENODATA;
        }
    }
    if (const char* missing = fill(library, functions_)) {
        warn_user("%s lacks %s: use a uTofu library of version 1", path_, missing);
        return -FI_ENOSYS;
    }
    if (query_tnis(functions_, tnis_, tni_count_, caps_) != 0) {
        if (!automatic || provider_asked_for())
            warn_user("%s has no TNI for one-sided communication for this process: run it on a compute node, or set "
                      "FI_TOFU_BACKEND=sim for the simulator",
                      path_);
        return -FI_ENODATA;
    }
    if (functions_.seen != nullptr && functions_.seen(nullptr, 0) == 0)
        functions_.seen = nullptr;
    (void)library.release(); // kept: peers may still reach our memory through its threads
    TOFU_INFO(FI_LOG_CORE, "backend %s, %zu TNIs\n", path_, tni_count_);
    return 0;
}

const Backend* Backend::get(int& error)
{
    if (backend_of_test != nullptr) {
        error = 0;
        return backend_of_test;
    }
    // Constant-initialised storage without a destructor: fi_fini closes the module in any order.
    static std::once_flag once;
    alignas(Backend) static unsigned char storage[sizeof(Backend)];
    static int result;
    std::call_once(once, [] { result = (new (storage) Backend)->load(); });
    error = result;
    return result == 0 ? std::launder(reinterpret_cast<Backend*>(storage)) : nullptr;
}

} // namespace tofu::vcq
