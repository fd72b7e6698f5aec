// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Finding, loading and checking the uTofu library. See backend.h.
#include "vcq/backend.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include <dlfcn.h>
#include <rdma/fi_errno.h>
#include <strings.h>

#include "provider/log.h"
#include "provider/param.h"

namespace tofu::vcq {
namespace {

constexpr const char* library_name = "libtofucom.so";
constexpr const char* simulator_mark = "tofu_sim_version"; ///< exported by our library only

/// A library while it is being looked at; closed again unless it is kept.
class Library {
  public:
    Library() = default;
    explicit Library(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {}
    Library(const Library&) = delete;
    Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Library& operator=(Library&& other) noexcept
    {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Library()
    {
        if (handle_ != nullptr)
            dlclose(handle_);
    }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    [[nodiscard]] void* symbol(const char* name) const noexcept { return dlsym(handle_, name); }
    [[nodiscard]] bool is_simulator() const noexcept { return symbol(simulator_mark) != nullptr; }
    void keep() noexcept { handle_ = nullptr; }

  private:
    void* handle_ = nullptr;
};

/// Our simulator: beside this module or above it (the build tree and an installation with
/// $libdir/libfabric/libtofu-fi.so), else where `make install` puts it, else the loader's path.
Library find_simulator(char* path, std::size_t size)
{
    Dl_info self{};
    if (dladdr(reinterpret_cast<void*>(&find_simulator), &self) != 0 && self.dli_fname != nullptr) {
        const char* slash = std::strrchr(self.dli_fname, '/');
        const int length = slash != nullptr ? static_cast<int>(slash - self.dli_fname) : 0;
        for (const char* up : {"", "/.."}) {
            std::snprintf(path, size, "%.*s%s/%s", length, self.dli_fname, up, library_name);
            Library library(path);
            if (library && library.is_simulator())
                return library;
        }
    }
    for (const char* place : {TOFU_LIBDIR "/libtofucom.so", library_name}) {
        std::snprintf(path, size, "%s", place);
        Library library(path);
        if (library && library.is_simulator())
            return library;
    }
    path[0] = '\0';
    return {};
}

/// The machine's own library: found by the loader, and not ours.
Library find_real()
{
    Library library(library_name);
    if (library && library.is_simulator())
        return {};
    return library;
}

template <class F>
bool resolve(const Library& library, F& function, const char* name, const char*& missing)
{
    function = reinterpret_cast<F>(library.symbol(name));
    if (function == nullptr && missing == nullptr)
        missing = name;
    return function != nullptr;
}

/// Fills the table; names the first symbol that is not there.
const char* fill(const Library& library, Functions& f)
{
    const char* missing = nullptr;
#define TOFU_RESOLVE(name) resolve(library, f.name, "utofu_" #name, missing)
    TOFU_RESOLVE(get_onesided_tnis);
    TOFU_RESOLVE(query_onesided_caps);
    TOFU_RESOLVE(create_vcq);
    TOFU_RESOLVE(free_vcq);
    TOFU_RESOLVE(query_vcq_id);
    TOFU_RESOLVE(query_vcq_info);
    TOFU_RESOLVE(reg_mem);
    TOFU_RESOLVE(reg_mem_with_stag);
    TOFU_RESOLVE(query_stadd);
    TOFU_RESOLVE(dereg_mem);
    TOFU_RESOLVE(put);
    TOFU_RESOLVE(put_piggyback);
    TOFU_RESOLVE(put_piggyback8);
    TOFU_RESOLVE(get);
    TOFU_RESOLVE(armw4);
    TOFU_RESOLVE(armw8);
    TOFU_RESOLVE(cswap4);
    TOFU_RESOLVE(cswap8);
    TOFU_RESOLVE(post_toq);
    TOFU_RESOLVE(poll_tcq);
    TOFU_RESOLVE(poll_mrq);
    TOFU_RESOLVE(query_my_coords);
#undef TOFU_RESOLVE
    const char* ignored = nullptr;
#define TOFU_RESOLVE(name) resolve(library, f.name, "utofu_" #name, ignored)
    TOFU_RESOLVE(get_barrier_tnis);
    TOFU_RESOLVE(query_barrier_caps);
    TOFU_RESOLVE(alloc_vbg);
    TOFU_RESOLVE(free_vbg);
    TOFU_RESOLVE(set_vbg);
    TOFU_RESOLVE(query_vbg_info);
    TOFU_RESOLVE(barrier);
    TOFU_RESOLVE(poll_barrier);
    TOFU_RESOLVE(reduce_uint64);
    TOFU_RESOLVE(poll_reduce_uint64);
    TOFU_RESOLVE(reduce_double);
    TOFU_RESOLVE(poll_reduce_double);
#undef TOFU_RESOLVE
    f.wait = reinterpret_cast<decltype(f.wait)>(library.symbol("tofu_sim_wait"));
    f.give_way = reinterpret_cast<decltype(f.give_way)>(library.symbol("tofu_sim_give_way"));
    f.job = reinterpret_cast<decltype(f.job)>(library.symbol("tofu_sim_job"));
    f.wake = reinterpret_cast<decltype(f.wake)>(library.symbol("tofu_sim_wake"));
    f.seen = reinterpret_cast<decltype(f.seen)>(library.symbol("tofu_sim_seen"));
    return missing;
}

/// What all TNIs of the process offer. 0 or -FI_ENODATA where there is none.
int query_tnis(const Functions& f, utofu_tni_id_t* tnis, std::size_t& count,
               utofu_onesided_caps& least)
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

/// FI_PROVIDER names us: whoever set it wants to know why we do not come.
bool provider_asked_for() noexcept
{
    const char* wanted = std::getenv("FI_PROVIDER");
    return wanted != nullptr && std::strstr(wanted, "tofu") != nullptr;
}
/// And nobody else: without the simulator the program would have no provider at all.
bool provider_alone_asked_for() noexcept
{
    const char* wanted = std::getenv("FI_PROVIDER");
    return wanted != nullptr && strcasecmp(wanted, provider.name) == 0; // as libfabric compares
}

} // namespace

int Backend::load()
{
    const char* wanted = param_string("backend", "auto");
    const bool automatic = std::strcmp(wanted, "auto") == 0;
    Library library;
    if (automatic || std::strcmp(wanted, "utofu") == 0) {
        library = find_real();
        if (library) {
            std::snprintf(path_, sizeof(path_), "%s", library_name);
            if (automatic && (fill(library, functions_) != nullptr ||
                              query_tnis(functions_, tnis_, tni_count_, caps_) != 0))
                library = Library(); // installed, but there is no Tofu interface on this machine
        } else if (!automatic) {
            complain("FI_TOFU_BACKEND=utofu, but the loader finds no libtofucom.so of a Tofu "
                      "machine: set LD_LIBRARY_PATH, or FI_TOFU_BACKEND=sim for the simulator");
            return -FI_ENODATA;
        }
    }
    if (!library && automatic && !provider_alone_asked_for()) {
        // A job of a cluster without Tofu is not to run on a simulator because it is installed there.
        static constexpr const char* text =
            "no Tofu interface here: run on a compute node that has one, or set FI_TOFU_BACKEND=sim for the simulator";
        if (provider_asked_for())
            complain("%s", text);
        else
            TOFU_INFO(FI_LOG_CORE, "%s\n", text);
        return -FI_ENODATA;
    }
    if (!library && (automatic || std::strcmp(wanted, "sim") == 0)) {
        library = find_simulator(path_, sizeof(path_));
        if (!library) {
            complain("no uTofu library: neither a Tofu interface nor the simulator's libtofucom.so is here; install it "
                     "or give its path in FI_TOFU_BACKEND");
            return -FI_ENODATA;
        }
        if (automatic)
            complain("FI_PROVIDER=tofu without a Tofu interface: this is the simulator, %s; FI_TOFU_BACKEND=sim says "
                     "that it is meant",
                     path_);
    }
    if (!library) {
        if (std::strchr(wanted, '/') == nullptr) {
            complain("FI_TOFU_BACKEND=%s is no backend: use auto, utofu, sim or a path with a "
                      "slash",
                      wanted);
            return -FI_EINVAL;
        }
        std::snprintf(path_, sizeof(path_), "%s", wanted);
        library = Library(wanted);
        if (!library) {
            complain("FI_TOFU_BACKEND: %s: give the path of a uTofu library", dlerror());
            return -FI_ENODATA;
        }
    }
    if (const char* missing = fill(library, functions_)) {
        complain("%s lacks %s: use a uTofu library of version 1", path_, missing);
        return -FI_ENOSYS;
    }
    if (query_tnis(functions_, tnis_, tni_count_, caps_) != 0) {
        if (!automatic || provider_asked_for())
            complain("%s offers no TNI for one-sided communication to this process: run it on a compute node, or set "
                     "FI_TOFU_BACKEND=sim for the simulator",
                     path_);
        return -FI_ENODATA;
    }
    if (functions_.seen != nullptr && functions_.seen(nullptr, 0) == 0)
        functions_.seen = nullptr;
    library.keep();
    TOFU_INFO(FI_LOG_CORE, "backend %s, %zu TNIs\n", path_, tni_count_);
    return 0;
}

const Backend* Backend::get(int& error)
{
    // Constant-initialised storage without a destructor: fi_fini closes the module in any order.
    static std::once_flag once;
    alignas(Backend) static unsigned char storage[sizeof(Backend)];
    static int result;
    std::call_once(once, [] { result = (new (storage) Backend)->load(); });
    error = result;
    return result == 0 ? std::launder(reinterpret_cast<Backend*>(storage)) : nullptr;
}

} // namespace tofu::vcq
