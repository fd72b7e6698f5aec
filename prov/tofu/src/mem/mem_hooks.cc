// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See mem_hooks.h.
#include "mem/mem_hooks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"

namespace tofu {

namespace {

/// As a MappedFile has it; of memory without a file `device` and `inode` are 0.
struct Mapping : MappedFile {
    bool shared = false;
};

struct CloseFile {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

/// Reads on in /proc/self/maps to the mapping of the address or the first one above it. Addresses may not go down.
/// False: there is none.
bool find_mapping(std::FILE* maps, std::uint64_t address, Mapping& found)
{
    char line[sizeof found.name + 128];
    while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
        // All but one or two of some hundreds of lines are of mappings below the address, and are not taken apart.
        char* behind = line;
        const std::uint64_t begin = std::strtoull(line, &behind, 16);
        const std::uint64_t end = *behind == '-' ? std::strtoull(behind + 1, &behind, 16) : 0;
        unsigned long long inode = 0;
        unsigned major = 0, minor = 0;
        char rights[5] = "";
        int name = 0;
        if (end > address && std::sscanf(behind, " %4s %*s %x:%x %llu %n", rights, &major, &minor, &inode, &name) < 4)
            return false;
        std::size_t length = std::strcspn(line, "\n");
        bool whole = line[length] == '\n';
        for (int c = 0; !whole && c != '\n' && c != EOF;)
            c = std::fgetc(maps);
        if (end <= address)
            continue;
        found = {{makedev(major, minor), inode, begin, end}, rights[3] != 'p'};
        line[length] = '\0';
        behind += name;
        whole = whole && name > 0 && static_cast<std::size_t>(line + length - behind) < sizeof found.name;
        std::strcpy(found.name, whole ? behind : "");
        return true;
    }
    return false;
}

/// Huge pages belong to an internal file of the kernel, which no other process has.
bool is_own(const Mapping& mapping) noexcept
{
    return !mapping.shared && (mapping.inode == 0 || std::strncmp(mapping.name, "/anon_hugepage", 14) == 0);
}

} // namespace

Pages pages_of(std::uint64_t begin, std::uint64_t end, IsPrivate is_private, MappedFile& file) noexcept
{
    // Opened anew each time: it is of the process that has opened it, and not of a child that inherits it.
    const std::unique_ptr<std::FILE, CloseFile> maps(std::fopen("/proc/self/maps", "re"));
    Pages pages = begin < end ? Pages::own : Pages::unknown;
    Mapping at;
    for (; begin < end; begin = at.end) {
        if (!find_mapping(maps.get(), begin, at) || at.begin > begin)
            return Pages::unknown;
        const std::uint64_t stop = std::min(at.end, end);
        if (is_own(at) ||
            (is_private != nullptr && at.shared && is_private(reinterpret_cast<const void*>(begin), stop - begin) == 1))
            continue;
        if (!at.shared || (pages == Pages::file && (at.device != file.device || at.inode != file.inode)))
            return Pages::unknown;
        pages = Pages::file;
        file = at;
    }
    return pages;
}

constexpr unsigned long tmpfs = 0x01021994; // linux/magic.h

static ChangeTime nanoseconds(const timespec& time) noexcept
{
    return static_cast<ChangeTime>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

/// Also finds out whether the number is the file's still: a program may close what it does not know.
bool MemoryFile::look(int fd, ChangeTime& changed) const noexcept
{
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_dev != device_ || status.st_ino != inode_)
        return false;
    changed = nanoseconds(status.st_ctim);
    return true;
}

/// Closes the descriptor unless it is of the file.
bool MemoryFile::adopt(int fd) noexcept
{
    ChangeTime changed = 0;
    struct statfs system;
    if (fd < 0)
        return false;
    if (!look(fd, changed) || fstatfs(fd, &system) != 0 || static_cast<unsigned long>(system.f_type) != tmpfs) {
        ::close(fd);
        return false;
    }
    fd_ = fd;
    return true;
}

/// A duplicate of a descriptor of the program's. Another thread may close that meanwhile: adopt() looks again.
int MemoryFile::find_descriptor() const noexcept
{
    DIR* const all = opendir("/proc/self/fd");
    int found = -1;
    if (all == nullptr)
        return -1;
    while (const dirent* const one = found < 0 ? readdir(all) : nullptr) {
        ChangeTime changed = 0;
        const int fd = std::atoi(one->d_name);
        if (one->d_name[0] != '.' && fd != dirfd(all) && look(fd, changed))
            found = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    }
    closedir(all);
    return found;
}

bool MemoryFile::open(const MappedFile& mapped) noexcept
{
    device_ = mapped.device;
    inode_ = mapped.inode;
    constexpr int how = O_PATH | O_CLOEXEC;
    char mapping[64];
    std::snprintf(mapping, sizeof mapping, "/proc/self/map_files/%llx-%llx",
                  static_cast<unsigned long long>(mapped.begin), static_cast<unsigned long long>(mapped.end));
    return (mapped.name[0] == '/' && adopt(::open(mapped.name, how))) || adopt(::open(mapping, how)) ||
           adopt(find_descriptor());
}

void MemoryFile::close() noexcept
{
    ChangeTime changed = 0;
    if (is_open() && look(fd_, changed))
        ::close(fd_);
    fd_ = -1;
}

/// The clock first: what changes the file from here on gives it this time or a later one.
bool MemoryFile::begin(ChangeTime& since) const noexcept
{
    timespec now{};
    return clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0 && look(fd_, since) && since < nanoseconds(now);
}

bool MemoryFile::unchanged(ChangeTime since) const noexcept
{
    ChangeTime changed = 0;
    return look(fd_, changed) && changed == since;
}

// The interface of libucm is declared here by its numbers (ucm/api/ucm.h of UCX 1.8 to 1.18), so that building needs
// no UCX.

namespace {

namespace ucm {
constexpr int mremap = 1 << 2;
constexpr int madvise = 1 << 6;
constexpr int vm_unmapped = 1 << 17;
constexpr int before = -1000; // the call itself has priority 0
constexpr int after = 1000;

struct VmUnmapped {
    void* address;
    std::size_t size;
};
struct Mremap {
    void* result;
    void* address;
    std::size_t old_size;
    std::size_t new_size;
    int flags;
    void* new_address; ///< of versions that have it: in others anything
};
struct Madvise {
    int result;
    void* address;
    std::size_t size;
    int advice;
};
using Callback = void (*)(int type, void* event, void* argument);
using SetEventHandler = signed char (*)(int events, int priority, Callback callback, void* argument);
using TestEvents = signed char (*)(int events);
} // namespace ucm

/// libucs takes signals for itself when it is loaded, to print where a program crashed, but they belong to the program.
/// A thread that changes one meanwhile may find the old handler again.
class KeptSignals {
  public:
    KeptSignals() noexcept
    {
        for (std::size_t i = 0; i < std::size(taken); i++)
            sigaction(taken[i], nullptr, &before_[i]);
    }
    KeptSignals(const KeptSignals&) = delete;
    KeptSignals& operator=(const KeptSignals&) = delete;
    ~KeptSignals()
    {
        for (std::size_t i = 0; i < std::size(taken); i++)
            sigaction(taken[i], &before_[i], nullptr);
    }

  private:
    static constexpr int taken[] = {SIGHUP, SIGILL, SIGBUS, SIGFPE, SIGSEGV};
    struct sigaction before_[std::size(taken)];
};

std::uint64_t page_size() noexcept
{
    static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    return size;
}

/// Is the object that starts there the program itself, as in unit tests? It is never unloaded.
bool is_the_program(const void* base) noexcept
{
    return reinterpret_cast<std::uint64_t>(base) == (getauxval(AT_PHDR) & ~(page_size() - 1));
}

/// The runtime of a sanitizer, where the program has one: its allocator calls the kernel directly, and no hook reports
/// the memory that it unmaps. Null: none.
const char* unmaps_by_itself() noexcept
{
    for (const char* runtime : {"__asan_init", "__tsan_init", "__msan_init", "__hwasan_init"})
        if (dlsym(RTLD_DEFAULT, runtime) != nullptr)
            return runtime;
    return nullptr;
}

/// Open MPI's function that informs its users of memory that goes. Null: no Open MPI in this process. Its library stays
/// until the process ends.
OpenMpiRelease open_mpi_release() noexcept
{
    constexpr const char* name = "opal_mem_hooks_release_hook";
    void* found = dlsym(RTLD_DEFAULT, name);
    for (const char* file : {"libopen-pal.so.40", "libopen-pal.so.80"}) // of 4 and 5; not global in Python
        if (void* const library = dlopen(file, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE); library != nullptr)
            found = dlsym(library, name);
    return reinterpret_cast<OpenMpiRelease>(found);
}

/// Does this advice leave the pages? Programs and libraries give it of memory in use. What is not known may replace
/// them.
bool leaves_pages(int advice) noexcept
{
    switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
    case 18: // MADV_WIPEONFORK, Linux 4.14
    case 19: // MADV_KEEPONFORK
    case 20: // MADV_COLD, Linux 5.4
    case 22: // MADV_POPULATE_READ, Linux 5.14
    case 23: // MADV_POPULATE_WRITE
        return true;
    default: return false;
    }
}

} // namespace

MemoryHooks* MemoryHooks::get() noexcept
{
    // Never freed: a hook may be under way in any thread when the provider's last object goes, and libucm may know of
    // it where the start has failed.
    static MemoryHooks* const only = new (std::nothrow) MemoryHooks;
    static const bool started = only != nullptr && only->start();
    return started ? only : nullptr;
}

bool MemoryHooks::start() noexcept
{
    if (const char* who = unmaps_by_itself(); who != nullptr) {
        TOFU_INFO(FI_LOG_MR, "registration cache: off, since code with %s unmaps memory by its own system calls\n",
                  who);
        return false;
    }
    // libucm wants symbols of libucs without naming the library. Both stay until the process ends, and this module,
    // which the hook is part of, with them.
    constexpr int how = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE;
    Dl_info module{};
    void* library = nullptr;
    {
        const KeptSignals signals;
        if (dlopen("libucs.so.0", how) != nullptr)
            library = dlopen("libucm.so.0", how);
    }
    if (library == nullptr) {
        TOFU_INFO(FI_LOG_MR, "registration cache: off: %s; install libucx0 (UCX)\n", dlerror());
        return false;
    }
    auto set = reinterpret_cast<ucm::SetEventHandler>(dlsym(library, "ucm_set_event_handler"));
    auto test = reinterpret_cast<ucm::TestEvents>(dlsym(library, "ucm_test_events"));
    open_mpi_ = open_mpi_release();
    const bool stays = dladdr(reinterpret_cast<void*>(&MemoryHooks::on_event), &module) != 0 &&
                       (dlopen(module.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) != nullptr ||
                        is_the_program(module.dli_fbase));
    if (set == nullptr || test == nullptr || !stays || set(ucm::mremap, ucm::before, on_mremap, this) != 0 ||
        set(ucm::vm_unmapped, ucm::before, on_event, this) != 0 || test(ucm::vm_unmapped) != 0 ||
        set(ucm::madvise | ucm::mremap, ucm::after, on_event, this) != 0) {
        TOFU_WARN(FI_LOG_MR, "registration cache: off, since libucm cannot hook into this program\n");
        return false;
    }
    try_mremap();
    return true;
}

/// libucm 1.13 does not pass on the target address of mremap: the pages would move to a random address, over
/// other memory. So the call is changed into one that the kernel rejects by EINVAL.
void MemoryHooks::on_mremap(int, void* event, void* self) noexcept
{
    auto& call = *static_cast<ucm::Mremap*>(event);
    auto& hooks = *static_cast<MemoryHooks*>(self);
    if ((call.flags & MREMAP_FIXED) == 0 || call.result != MAP_FAILED)
        return;
    std::byte* const tried = hooks.tried_.load(std::memory_order_relaxed);
    if (tried != nullptr && call.address == tried)
        hooks.loses_address_.store(call.new_address != tried + page_size(), std::memory_order_relaxed);
    else if (!hooks.loses_address_.load(std::memory_order_relaxed))
        return;
    call.flags &= ~MREMAP_MAYMOVE;
}

/// Finds out whether libucm hands it on, by a call that is refused.
void MemoryHooks::try_mremap() noexcept
{
    const std::size_t page = page_size();
    void* const pages = mmap(nullptr, 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return;
    auto* const first = static_cast<std::byte*>(pages);
    tried_.store(first, std::memory_order_relaxed);
    (void)mremap(first, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, first + page);
    tried_.store(nullptr, std::memory_order_relaxed);
    munmap(pages, 2 * page);
}

/// vm_unmapped comes before pages go. A call that discards pages but keeps the addresses (madvise) reports after the
/// call, too: another thread may have registered the range between. A call that replaces pages (mremap to a
/// fixed address) reports only afterwards.
void MemoryHooks::on_event(int type, void* event, void* self) noexcept
{
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    if (type == ucm::vm_unmapped) {
        begin = reinterpret_cast<std::uint64_t>(static_cast<ucm::VmUnmapped*>(event)->address);
        size = static_cast<ucm::VmUnmapped*>(event)->size;
    } else if (type == ucm::madvise) {
        if (leaves_pages(static_cast<ucm::Madvise*>(event)->advice))
            return;
        begin = reinterpret_cast<std::uint64_t>(static_cast<ucm::Madvise*>(event)->address);
        size = static_cast<ucm::Madvise*>(event)->size;
    } else if (static_cast<ucm::Mremap*>(event)->result != MAP_FAILED) {
        begin = reinterpret_cast<std::uint64_t>(static_cast<ucm::Mremap*>(event)->result);
        size = static_cast<ucm::Mremap*>(event)->new_size;
    }
    const std::uint64_t end = begin + size;
    auto& hooks = *static_cast<MemoryHooks*>(self);
    if (hooks.open_mpi_ != nullptr && size != 0)
        hooks.open_mpi_(reinterpret_cast<void*>(begin), size, true);
    hooks.invalidate(begin, end >= begin ? end : ~std::uint64_t{0});
}

void MemoryHooks::invalidate(std::uint64_t begin, std::uint64_t end) noexcept
{
    const unsigned used = used_.load(std::memory_order_acquire); // partner: watch()
    for (unsigned i = 0; i < used; i++) {
        Span& span = spans_[i];
        // relaxed: a span that is being watched at this moment is of memory that its user may not touch
        if (span.begin.load(std::memory_order_relaxed) < end && span.end.load(std::memory_order_relaxed) > begin)
            span.live.store(false, std::memory_order_release); // partner: valid()
    }
}

WatchTicket MemoryHooks::watch(std::uintptr_t begin, std::uintptr_t end, IsPrivate is_private) noexcept
{
    const std::uint64_t first = begin & ~(page_size() - 1);
    const std::uint64_t limit = (end + page_size() - 1) & ~(page_size() - 1);
    WatchTicket ticket{};
    {
        const std::lock_guard lock(lock_);
        const unsigned used = used_.load(std::memory_order_relaxed);
        unsigned i = 0;
        while (i < used && spans_[i].end.load(std::memory_order_relaxed) != 0)
            i++;
        if (i == span_count)
            return {};
        Span& span = spans_[i];
        if (++serials_ == 0)
            serials_ = 1;
        span.serial = serials_;
        span.begin.store(first, std::memory_order_relaxed);
        span.end.store(limit, std::memory_order_relaxed);
        span.live.store(true, std::memory_order_release);
        if (i == used)
            used_.store(used + 1, std::memory_order_release); // partner: invalidate()
        ticket = {i, span.serial};
    }
    // Read after the watch has begun: else it might be replaced in between.
    if (same_from_now_on(ticket, first, limit, is_private) && mapped(ticket))
        return ticket;
    unwatch(ticket);
    return {.later = ticket.later};
}

/// Whether the hooks or the file report all changes of the mapping.
bool MemoryHooks::same_from_now_on(WatchTicket& ticket, std::uint64_t begin, std::uint64_t end,
                                   IsPrivate is_private) noexcept
{
    MappedFile mapped;
    const Pages pages = pages_of(begin, end, is_private, mapped);
    if (pages != Pages::file)
        return pages == Pages::own;
    const std::lock_guard lock(lock_);
    Span& span = spans_[ticket.span];
    span.file = open_file(mapped);
    if (span.file == none)
        return false;
    files_[span.file].spans++;
    ticket.later = !files_[span.file].file.begin(span.since);
    return !ticket.later;
}

/// Under lock_. None: it cannot be opened, or there are too many.
std::uint32_t MemoryHooks::open_file(const MappedFile& mapped) noexcept
{
    std::uint32_t vacant = none;
    for (std::uint32_t i = 0; i < file_count; i++) {
        if (files_[i].file.is(mapped))
            return i;
        if (files_[i].spans == 0 && vacant == none)
            vacant = i;
    }
    return vacant != none && files_[vacant].file.open(mapped) ? vacant : none;
}

void MemoryHooks::unwatch(WatchTicket ticket) noexcept
{
    const std::lock_guard lock(lock_);
    Span& span = spans_[ticket.span];
    if (!ticket || span.serial != ticket.serial)
        return;
    if (span.file != none && --files_[span.file].spans == 0)
        files_[span.file].file.close();
    span.file = none;
    span.serial = 0;
    span.live.store(false, std::memory_order_relaxed);
    span.begin.store(0, std::memory_order_relaxed);
    span.end.store(0, std::memory_order_relaxed);
}

} // namespace tofu
