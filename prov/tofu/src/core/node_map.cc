// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See node_map.h. hwloc is the system's library (libhwloc.so.15), found by dlopen when it is first needed; the provider
// loads where there is none. It is not used beside another hwloc whose names would take the place of this one's. The
// topology that an MPI launcher has shared with this process saves the discovery: PMIx 5 (Open MPI 5) has it from the
// launcher, Open MPI 4 keeps its own. A copy takes 0.1 ms, discovery some 10 ms for 50 processors.
#include "core/node_map.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dirent.h>
#include <dlfcn.h>
#include <hwloc.h>
#include <unistd.h>

#include "core/log.h"
#include "core/params.h"

namespace tofu::node {

namespace {

/// The functions that are called, by hwloc's names without "hwloc_".
#define TOFU_HWLOC(X)                                                                                                  \
    X(get_api_version)                                                                                                 \
    X(topology_init)                                                                                                   \
    X(topology_set_io_types_filter)                                                                                    \
    X(topology_set_cache_types_filter)                                                                                 \
    X(topology_set_components)                                                                                         \
    X(topology_set_flags)                                                                                              \
    X(topology_load)                                                                                                   \
    X(topology_abi_check)                                                                                              \
    X(topology_dup)                                                                                                    \
    X(topology_destroy)                                                                                                \
    X(topology_is_thissystem)                                                                                          \
    X(topology_get_allowed_cpuset)                                                                                     \
    X(get_nbobjs_by_depth)                                                                                             \
    X(get_obj_by_depth)                                                                                                \
    X(bitmap_next)                                                                                                     \
    X(bitmap_weight)                                                                                                   \
    X(set_area_membind)
#define TOFU_MEMBER(name) decltype(&hwloc_##name) name;
struct Hwloc {
    TOFU_HWLOC(TOFU_MEMBER)
};

constexpr const char* library_name = "libhwloc.so.15"; // of all versions 2

template <class Function>
bool find(void* library, const char* name, Function& function) noexcept
{
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

bool find_all(void* library, Hwloc& all) noexcept
{
    bool found = true;
#define TOFU_FIND(name) found = found && find(library, "hwloc_" #name, all.name);
    TOFU_HWLOC(TOFU_FIND)
    return found;
}

/// Where the program itself brings another hwloc along, calls inside of the library would reach that one.
bool is_replaced(const Hwloc& all) noexcept
{
    void* const seen = dlsym(RTLD_DEFAULT, "hwloc_topology_init");
    return seen != nullptr && seen != reinterpret_cast<void*>(all.topology_init);
}

const Hwloc* load() noexcept
{
    static Hwloc all;
    void* const library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL); // stays: it is asked again and again
    if (library == nullptr) {
        TOFU_INFO(FI_LOG_CORE, "memory, TNIs and threads are placed without a topology: %s; install hwloc 2\n",
                  dlerror());
        return nullptr;
    }
    if (!find_all(library, all) || all.get_api_version() >> 16 != 2 || is_replaced(all)) {
        TOFU_WARN(FI_LOG_CORE,
                  "%s cannot be used: it is not hwloc 2.1 or later, or the program contains another hwloc: memory, "
                  "TNIs and threads are placed without a topology\n",
                  library_name);
        dlclose(library);
        return nullptr;
    }
    return &all;
}

const Hwloc* hwloc() noexcept
{
    static const Hwloc* const all = load();
    return all;
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
    if (!find(RTLD_DEFAULT, "PMIx_Initialized", initialized) || !find(RTLD_DEFAULT, "PMIx_Get_version", version) ||
        !find(RTLD_DEFAULT, "PMIx_Load_topology", load) || initialized() == 0)
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

constexpr int numa_depth = HWLOC_TYPE_DEPTH_NUMANODE;
/// HWLOC_TOPOLOGY_FLAG_NO_DISTANCES, _NO_MEMATTRS and _NO_CPUKINDS of hwloc 2.8.
constexpr unsigned long needless = 1UL << 7 | 1UL << 8 | 1UL << 9;

bool is_set(const char* variable) noexcept
{
    const char* const text = std::getenv(variable);
    return text != nullptr && *text != '\0';
}

Processors processors_in(const Hwloc& library, hwloc_const_bitmap_t bitmap) noexcept
{
    Processors all;
    for (int i = library.bitmap_next(bitmap, -1); i >= 0 && i < CPU_SETSIZE; i = library.bitmap_next(bitmap, i))
        all.set(static_cast<std::size_t>(i));
    return all;
}

/// Linux alone lists them without asking for more. Unknown is several.
bool has_one_numa_node() noexcept
{
    if (is_set("HWLOC_XMLFILE") || is_set("HWLOC_SYNTHETIC"))
        return false;
    char text[16] = {};
    std::FILE* const file = std::fopen("/sys/devices/system/node/online", "re");
    if (file == nullptr)
        return errno == ENOENT; // a kernel without NUMA
    const std::size_t got = std::fread(text, 1, sizeof(text) - 1, file);
    std::fclose(file);
    return got != 0 && text[std::strspn(text, "0123456789\n")] == '\0';
}

const Map* load_once() noexcept
{
    // Never destroyed: programs close endpoints while their static objects are destroyed.
    alignas(Map) static std::byte place[sizeof(Map)];
    if (param_off("numa"))
        return nullptr;
    Map* const map = new (place) Map;
    return map->read() ? map : nullptr;
}

} // namespace

const Map* Map::of_process() noexcept
{
    static const Map* const map = load_once();
    return map;
}

const Map* Map::of_several_groups() noexcept
{
    static const bool one = has_one_numa_node();
    return one ? nullptr : of_process();
}

Map::~Map()
{
    if (topology_ != nullptr)
        hwloc()->topology_destroy(static_cast<hwloc_topology_t>(topology_));
}

bool Map::load(void*& topology) const noexcept
{
    const Hwloc* const library = hwloc();
    // A file is read in less than a millisecond. What a launcher made of it claims to be this machine's.
    const bool from_file = is_set("HWLOC_XMLFILE") || is_set("HWLOC_SYNTHETIC");
    if (library == nullptr)
        return false;
    hwloc_topology_t made = from_file ? nullptr : copy_of_launchers(*library);
    if (made != nullptr) {
        topology = made;
        TOFU_INFO(FI_LOG_CORE, "the topology was shared by the launcher\n");
        return true;
    }
    if (library->topology_init(&made) != 0)
        return false;
    // Component x86 would move the calling thread.
    (void)library->topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
    (void)library->topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    if (!from_file) {
        // A third of the files that discovery reads: hwloc makes groups for NUMA nodes without a cache of their own. An
        // older library refuses the flags.
        (void)library->topology_set_cache_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
        (void)library->topology_set_flags(made, needless);
    }
    if (library->topology_load(made) != 0) {
        TOFU_WARN(FI_LOG_CORE, "hwloc cannot read the topology: memory, TNIs and threads are placed without it; check "
                               "HWLOC_XMLFILE and HWLOC_SYNTHETIC\n");
        library->topology_destroy(made);
        return false;
    }
    topology = made;
    TOFU_INFO(FI_LOG_CORE, "the topology was read by hwloc\n");
    return true;
}

bool Map::read() noexcept
{
    if (!load(topology_))
        return false;
    const Hwloc& library = *hwloc();
    auto* const topology = static_cast<hwloc_topology_t>(topology_);
    here_ = library.topology_is_thissystem(topology) != 0;
    if (here_ && is_set("HWLOC_XMLFILE") && !is_set("HWLOC_THISSYSTEM"))
        TOFU_WARN(FI_LOG_CORE,
                  "HWLOC_XMLFILE=%.200s: hwloc cannot read this file and uses the topology of this machine: correct or "
                  "unset the variable\n",
                  std::getenv("HWLOC_XMLFILE"));
    allowed_ = processors_in(library, library.topology_get_allowed_cpuset(topology));
    const unsigned nodes = library.get_nbobjs_by_depth(topology, numa_depth);
    count_ = 0;
    for (unsigned i = 0; i < nodes && count_ < most_groups; i++) {
        const hwloc_obj_t node = library.get_obj_by_depth(topology, numa_depth, i);
        Group& group = groups_[count_];
        group.processors = processors_in(library, node->cpuset) & allowed_;
        if (group.processors.none())
            continue; // memory without processors, or none that we may use
        group.number = node->os_index;
        group.of_hardware = static_cast<unsigned>(std::max(library.bitmap_weight(node->complete_cpuset), 0));
        group.nodeset = node->nodeset;
        count_++;
    }
    if (count_ == 0)
        TOFU_WARN(FI_LOG_CORE, "hwloc allows no processor: memory, TNIs and threads are placed without it; unset "
                               "HWLOC_XMLFILE and HWLOC_SYNTHETIC, or allow processors in the cgroup\n");
    else
        compare_with_thread();
    return count_ != 0;
}

/// Says so where hwloc and the kernel have no processor in common. Nothing is placed then, as no group has the thread.
void Map::compare_with_thread() const noexcept
{
    const Processors own = processors_of_thread();
    if (!here_ || (own & allowed_).any())
        return;
    char of_thread[128], of_topology[128];
    write_list(own, of_thread, sizeof of_thread);
    write_list(allowed_, of_topology, sizeof of_topology);
    TOFU_WARN(FI_LOG_CORE,
              "none of the processors of this thread (%s) is one that hwloc allows (%s): memory, TNIs and threads are "
              "placed without it; unset HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_THISSYSTEM, or bind to allowed "
              "processors\n",
              of_thread, of_topology);
}

/// On Fugaku they are NUMA nodes of one or two processors, beside those of twelve.
bool Map::is_assistant(const Group& group) const noexcept
{
    unsigned most = 0;
    for (unsigned i = 0; i < count_; i++)
        most = std::max(most, groups_[i].of_hardware);
    return group.of_hardware * 4 <= most;
}

const Map::Group* Map::group_of(const Processors& processors) const noexcept
{
    const Group* found = nullptr;
    const Processors known = processors & allowed_;
    for (unsigned i = 0; i < count_; i++) {
        if ((known & groups_[i].processors).none())
            continue;
        if (found != nullptr || (known & ~groups_[i].processors).any())
            return nullptr;
        found = &groups_[i];
    }
    return found;
}

Seat Map::seat_of(const Processors& processors) const noexcept
{
    unsigned groups = 0, first = 0, covered = 0, before = 0, own = 0, most = 0;
    for (unsigned i = 0; i < count_; i++) {
        const Group& group = groups_[i];
        if (is_assistant(group))
            continue;
        const Processors both = group.processors & processors;
        most = std::max(most, static_cast<unsigned>(group.processors.count()));
        if (both.any() && covered++ == 0) {
            first = groups;
            own = static_cast<unsigned>(both.count());
            for (std::size_t cpu = 0; !both[cpu]; cpu++)
                before += group.processors[cpu];
        }
        groups++;
    }
    if (covered == 0 || groups < 2 || covered == groups)
        return {};                                             // its binding does not distinguish it from others
    const unsigned columns = (groups + covered - 1) / covered; // processes that lie side by side over the groups
    const unsigned rows = std::max(most / own, 1u);            // and within one
    return {first / covered + columns * std::min(before / own, rows - 1), columns * rows};
}

Processors Map::apart_from(const Processors& processors) const noexcept
{
    Processors assistants;
    for (unsigned i = 0; i < count_; i++)
        if (is_assistant(groups_[i]))
            assistants |= groups_[i].processors;
    const Group* const near = group_of(processors);
    for (const Processors& some : {assistants, near != nullptr ? near->processors : Processors{}})
        if (const Processors free = some & ~processors; free.any())
            return free;
    return allowed_ & ~processors;
}

int Map::prefer(void* base, std::size_t bytes, const Group& group) const noexcept
{
    const int ret = hwloc()->set_area_membind(static_cast<hwloc_topology_t>(topology_), base, bytes,
                                              static_cast<hwloc_const_bitmap_t>(group.nodeset), HWLOC_MEMBIND_BIND,
                                              HWLOC_MEMBIND_BYNODESET);
    return ret == 0 ? 0 : errno;
}

void Map::prefer_none(void* base, std::size_t bytes) const noexcept
{
    auto* const topology = static_cast<hwloc_topology_t>(topology_);
    (void)hwloc()->set_area_membind(topology, base, bytes, hwloc()->topology_get_allowed_cpuset(topology),
                                    HWLOC_MEMBIND_DEFAULT, 0);
}

Processors processors_of_thread(pid_t thread) noexcept
{
    cpu_set_t own;
    CPU_ZERO(&own);
    (void)sched_getaffinity(thread, sizeof own, &own);
    Processors all;
    for (std::size_t i = 0; i < all.size(); i++)
        all[i] = CPU_ISSET(i, &own);
    return all;
}

Processors bound_of_process(const Processors& allowed) noexcept
{
    Processors all;
    DIR* const tasks = opendir("/proc/self/task");
    if (tasks == nullptr)
        return processors_of_thread();
    while (const dirent* const task = readdir(tasks))
        if (const int id = std::atoi(task->d_name); id > 0)
            if (const Processors own = processors_of_thread(id); (allowed & ~own).any())
                all |= own;
    closedir(tasks);
    return all;
}

void write_list(const Processors& processors, char* text, std::size_t size) noexcept
{
    std::size_t used = 0;
    *text = '\0';
    for (std::size_t i = 0; i < processors.size() && used < size; i++) {
        if (!processors[i])
            continue;
        const std::size_t first = i;
        while (i + 1 < processors.size() && processors[i + 1])
            i++;
        const char* const comma = used != 0 ? "," : "";
        const int got = i == first ? std::snprintf(text + used, size - used, "%s%zu", comma, i)
                                   : std::snprintf(text + used, size - used, "%s%zu-%zu", comma, first, i);
        used += static_cast<std::size_t>(std::max(got, 0));
    }
}

} // namespace tofu::node
