// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Finding, loading and checking the uTofu library. See library.h.
#include "utofu/library.h"

#include <algorithm>
#include <cstdarg>
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
#include "core/system.h"

namespace tofu::vcq {

namespace {

constexpr const char* library_name = "libtofucom.so";
constexpr const char* simulator_mark = "tofu_sim_version"; ///< exported by our library only

struct Close {
    void operator()(void* handle) const noexcept { dlclose(handle); }
};
/// A library that is being examined; it is closed again unless it is kept.
using Library = std::unique_ptr<void, Close>;

/// How it ended to open a library. A failure for want of descriptors or memory says nothing about the library.
struct Attempt {
    int scarcity = 0; ///< the positive FI_E* of such a failure, else 0
    char text[256] = "";
};

Library open(const char* path, Attempt& attempt)
{
    attempt.scarcity = 0;
    Library library(dlopen(path, RTLD_NOW | RTLD_LOCAL));
    const char* const text = library ? nullptr : dlerror();
    if (text == nullptr)
        return library;
    std::snprintf(attempt.text, sizeof attempt.text, "%s", text);
    for (const int error : {EMFILE, ENFILE, ENOMEM})
        if (std::strstr(text, std::strerror(error)) != nullptr)
            attempt.scarcity = error == ENOMEM ? FI_ENOMEM : FI_EMFILE;
    return library;
}

/// warn_user() for why there is no backend, under the mutex of Backend::get(). The line that was printed last is not
/// printed again, since programs call fi_getinfo several times.
[[gnu::format(printf, 1, 2)]] void explain(const char* format, ...) noexcept
{
    static char last[512];
    char text[sizeof last];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (std::strcmp(text, last) != 0)
        warn_user("%s", text);
    std::memcpy(last, text, sizeof last);
}

int explain_scarcity(const char* path, const Attempt& attempt) noexcept
{
    explain("cannot load %s: %s: raise the limit (ulimit %s)", path, attempt.text,
            attempt.scarcity == FI_EMFILE ? "-n" : "-v");
    return -attempt.scarcity;
}

bool is_simulator(const Library& library) noexcept
{
    return dlsym(library.get(), simulator_mark) != nullptr;
}

/// Our simulator: beside this module or above it (the build tree and an installation with
/// $libdir/libfabric/libtofu-fi.so), else where `make install` puts it, else the loader's path.
Library find_simulator(char* path, std::size_t size, Attempt& attempt)
{
    Library library;
    const auto is_there = [&] { // or would be
        library = open(path, attempt);
        return attempt.scarcity != 0 || (library && is_simulator(library));
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
Library find_real(Attempt& attempt)
{
    Library library = open(library_name, attempt);
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
    resolve(library, f.yield, "tofu_sim_give_way", optional);
    resolve(library, f.job, "tofu_sim_job", optional);
    resolve(library, f.wake, "tofu_sim_wake", optional);
    resolve(library, f.seen, "tofu_sim_seen", optional);
    resolve(library, f.moved, "tofu_sim_moved", optional);
    return missing;
}

/// Finds the common capabilities of all TNIs of the process. 0; -FI_ENODATA if there is none; or -FI_ENOMEM: the
/// library has run out of something. `code`: what the library has answered.
int query_tnis(const Functions& f, utofu_tni_id_t* tnis, std::size_t& count, utofu_onesided_caps& least, int& code)
{
    utofu_tni_id_t* list = nullptr;
    std::size_t found = 0;
    if (code = f.get_onesided_tnis(&list, &found); code != UTOFU_SUCCESS)
        return fi_error_of(code) == FI_ENOMEM ? -FI_ENOMEM : -FI_ENODATA;
    count = 0;
    for (std::size_t i = 0; i < found && count < most_tnis; i++) {
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

/// Does the machine's own library find a Tofu interface? It may be installed where there is none.
bool has_interface(const Library& library)
{
    Functions functions{};
    utofu_tni_id_t tnis[most_tnis];
    std::size_t count = 0;
    utofu_onesided_caps least{};
    int code = UTOFU_SUCCESS;
    return fill(library, functions) == nullptr && query_tnis(functions, tnis, count, least, code) != -FI_ENODATA;
}

/// The machine's own library, which FI_TOFU_BACKEND names (utofu) or does not exclude (auto). Then `library` may be
/// empty.
int find_of_machine(bool automatic, char* path, std::size_t size, Library& library)
{
    Attempt attempt;
    std::snprintf(path, size, "%s", library_name);
    library = find_real(attempt);
    if (attempt.scarcity != 0)
        return explain_scarcity(library_name, attempt);
    if (!library && !automatic) {
        explain("FI_TOFU_BACKEND=utofu, but the loader finds no libtofucom.so of a Tofu "
                "machine: set LD_LIBRARY_PATH, or FI_TOFU_BACKEND=sim for the simulator");
        return -FI_ENODATA;
    }
    if (library && automatic && !has_interface(library))
        library.reset();
    return 0;
}

/// The simulator, which FI_TOFU_BACKEND names (sim) or does not exclude (auto).
int find_of_simulator(bool automatic, char* path, std::size_t size, Library& library)
{
    if (automatic && !provider_alone_asked_for()) {
        // A job on a cluster without Tofu must not run over a simulator just because that is installed there.
        static constexpr const char* text = "no Tofu interface on this machine: run on a compute node that has one, or "
                                            "set FI_TOFU_BACKEND=sim for the simulator";
        if (provider_asked_for())
            explain("%s", text);
        else
            TOFU_INFO(FI_LOG_CORE, "%s\n", text);
        return -FI_ENODATA;
    }
    Attempt attempt;
    library = find_simulator(path, size, attempt);
    if (attempt.scarcity != 0)
        return explain_scarcity(path, attempt);
    if (!library) {
        explain("no uTofu library: this machine has neither a Tofu interface nor the simulator's libtofucom.so: "
                "install it or set its path in FI_TOFU_BACKEND");
        return -FI_ENODATA;
    }
    if (automatic)
        explain("FI_PROVIDER=tofu without a Tofu interface: using the simulator, %s; FI_TOFU_BACKEND=sim "
                "suppresses this line",
                path);
    return 0;
}

/// The library at a path that FI_TOFU_BACKEND gives.
int find_at(const char* wanted, char* path, std::size_t size, Library& library)
{
    if (std::strchr(wanted, '/') == nullptr) {
        explain("FI_TOFU_BACKEND=%s is invalid: use auto, utofu, sim or a path with a slash", wanted);
        return -FI_EINVAL;
    }
    Attempt attempt;
    std::snprintf(path, size, "%s", wanted);
    library = open(wanted, attempt);
    if (attempt.scarcity != 0)
        return explain_scarcity(wanted, attempt);
    if (!library) {
        explain("FI_TOFU_BACKEND: %s: set the path of a uTofu library", attempt.text);
        return -FI_ENODATA;
    }
    return 0;
}

/// Finds the library that FI_TOFU_BACKEND asks for, and its path. 0, or the error of fi_getinfo.
int find(const char* wanted, char* path, std::size_t size, Library& library)
{
    const bool automatic = std::strcmp(wanted, "auto") == 0;
    if (automatic || std::strcmp(wanted, "utofu") == 0) {
        if (const int ret = find_of_machine(automatic, path, size, library); ret != 0 || library)
            return ret;
    }
    if (automatic || std::strcmp(wanted, "sim") == 0)
        return find_of_simulator(automatic, path, size, library);
    return find_at(wanted, path, size, library);
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
    const char* const wanted = param_string("backend", "auto");
    const bool automatic = std::strcmp(wanted, "auto") == 0;
    Library library;
    if (const int ret = find(wanted, path_, sizeof path_, library); ret != 0)
        return ret;
    if (const char* missing = fill(library, functions_)) {
        explain("%s lacks %s: use a uTofu library of version 1", path_, missing);
        return -FI_ENOSYS;
    }
    int code = UTOFU_SUCCESS;
    const int answer = query_tnis(functions_, tnis_, tni_count_, caps_, code);
    if (answer == -FI_ENOMEM) {
        explain("%s has run out of something (%s): its own message says of what; check the limits (ulimit -n, -v) and "
                "the space in /dev/shm",
                path_, utofu_text(code));
        (void)library.release(); // it has begun, and will be asked again
        return answer;
    }
    if (answer != 0) {
        if (code != UTOFU_SUCCESS && (!automatic || provider_asked_for()))
            explain("%s refuses this process (%s): its own message says why; without one, run the program on a compute "
                    "node, or set FI_TOFU_BACKEND=sim for the simulator",
                    path_, utofu_text(code));
        else if (!automatic || provider_asked_for())
            explain("%s has no TNI for one-sided communication for this process: run it on a compute node, or set "
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
    // Only a success is kept: a process that has run out of descriptors or memory may have more when it tries again.
    // Constant-initialised storage without a destructor: fi_fini closes the module in any order.
    static constinit Mutex mutex;
    alignas(Backend) static unsigned char storage[sizeof(Backend)];
    static bool loaded = false;
    std::lock_guard guard(mutex);
    error = loaded ? 0 : (new (storage) Backend)->load();
    loaded = error == 0;
    return loaded ? std::launder(reinterpret_cast<Backend*>(storage)) : nullptr;
}

} // namespace tofu::vcq
