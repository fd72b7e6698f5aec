// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Writes what this process does into its trace. See recorder.h.
#include "trace/recorder.h"

#include "clock/clock.h"
#include "job/descriptors.h"
#include "job/report.h"

#include <utofu.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim::trace {
namespace {

constexpr size_t path_room = 4096;

struct File {
    std::byte* base = nullptr;
    uint64_t limit_chunks = 0;
    dev_t device = 0;
    ino_t inode = 0;
    char path[path_room] = {};
    bool full = false; ///< of the disk, or of what was allowed
    std::mutex growing;
};

File file;
/// Counts forks and files: what a thread remembers of another one is void.
SharedWord<uint32_t> epoch{1};

/// The chunk of a thread.
struct Lane {
    Record* next = nullptr;
    Record* end = nullptr;
    uint32_t epoch = 0;
    bool waiting = false; ///< *next is the record of a wait that goes on
};
thread_local Lane own_lane;
Lane one_lane;          ///< exact mode: whichever thread has the turn
uint64_t last_time = 0; ///< exact mode: of a record. How the program ends is a matter of its launcher

Lane& lane() noexcept
{
    return is_exact() ? one_lane : own_lane;
}

FileHeader& header() noexcept
{
    return *reinterpret_cast<FileHeader*>(file.base);
}

/// Appends text to `path`; false: no room.
bool append(char (&path)[path_room], std::string_view text) noexcept
{
    const size_t length = std::strlen(path);
    if (length + text.size() >= path_room)
        return false;
    std::memcpy(path + length, text.data(), text.size());
    path[length + text.size()] = '\0';
    return true;
}

template <typename Number>
bool append_number(char (&path)[path_room], Number number) noexcept
{
    char text[24];
    std::snprintf(text, sizeof text, "%lld", static_cast<long long>(number));
    return append(path, text);
}

/// From the user's pattern to the name of this process's file: absolute, for the program may go elsewhere.
bool make_path(const Owner& owner, char (&path)[path_room]) noexcept
{
    path[0] = '\0';
    if (owner.pattern[0] != '/' && (::getcwd(path, path_room) == nullptr || !append(path, "/")))
        return false;
    bool told_apart = false;
    for (const char* c = owner.pattern; *c != '\0'; c++) {
        bool fits = false;
        if (*c == '%' && c[1] == 'r') {
            fits = append_number(path, owner.rank);
        } else if (*c == '%' && c[1] == 'p') {
            fits = append_number(path, ::getpid());
        } else if (*c == '%' && c[1] == 'j') {
            fits = append(path, owner.job);
        } else {
            if (!append(path, {c, 1}))
                return false;
            continue;
        }
        told_apart = told_apart || c[1] != 'j';
        c++;
        if (!fits)
            return false;
    }
    struct stat status {};
    const size_t length = std::strlen(path);
    if (path[length - 1] == '/' || (::stat(path, &status) == 0 && S_ISDIR(status.st_mode))) {
        return (path[length - 1] == '/' || append(path, "/")) && append(path, owner.job) && append(path, ".") &&
               append_number(path, owner.rank) && append(path, ".trace");
    }
    return told_apart || (append(path, ".") && append_number(path, owner.rank));
}

enum class Found : uint8_t { nothing, old_trace, of_this_job, something_else };

Found look_at(const char* path, const Owner& owner) noexcept
{
    const BriefFile old(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (!old.is_open())
        return errno == ENOENT ? Found::nothing : Found::something_else;
    FileHeader there{};
    struct stat status {};
    if (::fstat(old.get(), &status) != 0 || !S_ISREG(status.st_mode))
        return Found::something_else;
    if (::pread(old.get(), &there, sizeof there, 0) != ssize_t{sizeof there} || there.magic != file_magic)
        return Found::something_else;
    return there.born == owner.born && there.pid != ::getpid() ? Found::of_this_job : Found::old_trace;
}

/// An unnamed file in the directory of `path`. -1: errno says why.
int create_draft(const char* path, char (&draft)[path_room]) noexcept
{
    const std::string_view whole = path;
    const std::string_view directory = whole.substr(0, whole.rfind('/') + 1);
    for (unsigned attempt = 0; attempt < 16; attempt++) {
        draft[0] = '\0';
        if (!append(draft, directory) || !append(draft, ".tofu-sim-trace.") || !append_number(draft, ::getpid()) ||
            !append(draft, ".") || !append_number(draft, attempt)) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const int fd = ::open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/// False, EEXIST: something has that name.
bool rename_to_free_name(const char* from, const char* to) noexcept
{
    if (::link(from, to) == 0) {
        (void)::unlink(from);
        return true;
    }
    const bool has_links = errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS;
    return !has_links && ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0;
}

/// Gives the draft, whose header is complete, a name that no other process of the job has: one that joined with a rank
/// that was there before gets its number added. What an earlier run has left makes room. False: errno says why; EEXIST:
/// it is no trace, be it empty.
bool take_name(const Owner& owner, const char* draft, char (&path)[path_room]) noexcept
{
    for (unsigned attempt = 0; attempt < 4; attempt++) {
        if (rename_to_free_name(draft, path))
            return true;
        if (errno != EEXIST)
            return false;
        switch (look_at(path, owner)) {
        case Found::nothing: break;
        case Found::old_trace: (void)::unlink(path); break;
        case Found::of_this_job:
            if (!append(path, ".") || !append_number(path, ::getpid())) {
                errno = ENAMETOOLONG;
                return false;
            }
            break;
        case Found::something_else: errno = EEXIST; return false;
        }
    }
    errno = EEXIST;
    return false;
}

/// Real blocks, for a store into a file without room on its disk ends the process. So does a file beyond the limit.
int back(int fd, uint64_t from, uint64_t bytes) noexcept
{
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < from + bytes)
        return EFBIG;
    return ::posix_fallocate(fd, static_cast<off_t>(from), static_cast<off_t>(bytes));
}

void fill_header(FileHeader& to, const Owner& owner) noexcept
{
    to.version = format_version;
    to.header_bytes = header_bytes;
    to.chunk_bytes = chunk_bytes;
    to.record_bytes = sizeof(Record);
    to.born = owner.born;
    to.started = now();
    to.clock = has_clock() ? ClockKind::virtual_tofud : ClockKind::real;
    to.pid = ::getpid();
    to.rank = owner.rank;
    to.node = owner.node;
    to.size = owner.size;
    to.ppn = owner.ppn;
    std::memcpy(to.shape, owner.shape, sizeof to.shape);
    to.wraps = owner.wraps;
    to.cpu_permille = owner.cpu_permille;
    std::snprintf(to.job, sizeof to.job, "%s", owner.job);
    std::snprintf(to.name, sizeof to.name, "%s", program_invocation_short_name);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&to.magic, file_magic, __ATOMIC_RELEASE); // partner: trace/reader
}

/// Room for chunk number `number`; under `growing`. The file is opened by its name: a program closes descriptors that
/// it does not know, and few are left in others.
int back_chunk(uint64_t number) noexcept
{
    const BriefFile again(file.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (!again.is_open())
        return errno;
    struct stat status {};
    if (::fstat(again.get(), &status) != 0 || status.st_dev != file.device || status.st_ino != file.inode)
        return ENOENT; // it was removed
    return back(again.get(), header_bytes + number * chunk_bytes, chunk_bytes);
}

/// A chunk for this thread; false: there is no more room.
[[gnu::noinline]] bool take_chunk() noexcept
{
    const std::lock_guard guard(file.growing);
    lane().epoch = epoch.load_acquire();
    lane().next = lane().end = nullptr;
    lane().waiting = false;
    if (file.base == nullptr || file.full)
        return false;
    const uint64_t number = header().chunks.load_relaxed();
    if (number >= file.limit_chunks) {
        file.full = true;
        report("the trace %.300s is full after %llu MiB, and later events are not recorded: raise TOFU_SIM_TRACE_MIB",
               file.path, static_cast<unsigned long long>((number * chunk_bytes) >> 20));
        return false;
    }
    if (const int error = back_chunk(number); error != 0) {
        file.full = true;
        report("cannot extend the trace %.300s: %s; later events are not recorded", file.path, std::strerror(error));
        return false;
    }
    auto* const chunk = reinterpret_cast<ChunkHeader*>(file.base + header_bytes + number * chunk_bytes);
    chunk->thread = is_exact() ? 1 : static_cast<uint32_t>(::syscall(SYS_gettid));
    __atomic_store_n(&chunk->magic, chunk_magic, __ATOMIC_RELEASE);
    header().chunks.store_release(number + 1);
    lane().next = reinterpret_cast<Record*>(chunk + 1);
    lane().end = lane().next + records_per_chunk;
    return true;
}

/// Whether there is room for a record at lane().next.
bool has_room() noexcept
{
    if (lane().epoch == epoch.load_relaxed() && lane().next != lane().end) [[likely]]
        return true;
    if (take_chunk())
        return true;
    if (file.base != nullptr)
        (void)header().lost.fetch_add(1);
    return false;
}

/// All words of a record but the last, then that. Readers may be at it: atomic, and in this order.
void store(Record* to, const Record& record) noexcept
{
    uint64_t words[sizeof(Record) / 8];
    std::memcpy(words, &record, sizeof words);
    auto* const at = reinterpret_cast<uint64_t*>(to);
    for (unsigned i = 0; i < 3; i++)
        __atomic_store_n(&at[i], words[i], __ATOMIC_RELAXED);
    __atomic_store_n(&at[3], words[3], __ATOMIC_RELEASE); // partner: trace/reader
}

uint64_t length_of(const Record& wait) noexcept
{
    return uint64_t{wait.arrival} << 32 | wait.duration;
}

void set_length(Record& wait, uint64_t length) noexcept
{
    wait.duration = static_cast<uint32_t>(length);
    wait.arrival = static_cast<uint32_t>(length >> 32);
}

/// The cause of the end of a wait, and its origin.
struct Ending {
    End end;
    uint64_t peer;
};

Ending ending_of(const Record& record) noexcept
{
    switch (record.type) {
    case Type::notice: return {End::notice, record.peer};
    case Type::tcq: return {End::tcq, 0};
    case Type::barrier_done: return {End::barrier, record.peer};
    case Type::post:
    case Type::barrier: return {End::post, 0};
    default: return {End::other, 0};
    }
}

/// What the simulator does for others meanwhile is not the program's doing.
bool ends_wait(Type type) noexcept
{
    return type != Type::arrival && type != Type::relay;
}

/// What was found at `time` ends the wait there; anything else where the last poll was.
void end_wait(const Ending& ending, uint64_t time) noexcept
{
    Record wait = *lane().next;
    lane().waiting = false;
    const bool found = ending.end != End::post && ending.end != End::other;
    if (found && time > wait.time)
        set_length(wait, time - wait.time);
    if (length_of(wait) == 0) { // a single look: its place is the next record's
        __atomic_store_n(reinterpret_cast<uint64_t*>(lane().next) + 3, 0, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        return;
    }
    wait.peer = ending.peer;
    wait.what = static_cast<uint8_t>(ending.end);
    store(lane().next++, wait);
}

/// Why there is no trace.
int explain(const char* path, int error) noexcept
{
    if (error == EEXIST) {
        report("TOFU_SIM_TRACE: %.300s exists and is not a trace; remove it or use another name", path);
    } else {
        report("TOFU_SIM_TRACE: cannot create %.300s: %s; use an existing directory, or a file in one", path,
               std::strerror(error));
    }
    return UTOFU_ERR_INVALID_ARG;
}

} // namespace

uint64_t now() noexcept
{
    if (has_clock())
        return clock_now() / 1000;
    timespec time{};
    (void)::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

int open(const Owner& owner) noexcept
{
    // A rank behind the name of a device would make a file among the devices.
    struct stat named {};
    if (::stat(owner.pattern, &named) == 0 && !S_ISREG(named.st_mode) && !S_ISDIR(named.st_mode)) {
        report("TOFU_SIM_TRACE=%.80s is a device, a pipe or a socket; use a directory, or the name of a file",
               owner.pattern);
        return UTOFU_ERR_INVALID_ARG;
    }
    char path[path_room];
    if (!make_path(owner, path)) {
        report("TOFU_SIM_TRACE=%.80s: the name is too long; use a shorter one", owner.pattern);
        return UTOFU_ERR_INVALID_ARG;
    }
    char draft[path_room];
    const int fd = create_draft(path, draft);
    if (fd < 0)
        return explain(path, errno);
    const uint64_t chunks = std::max<uint64_t>(owner.limit_bytes / chunk_bytes, 1);
    const uint64_t bytes = header_bytes + chunks * chunk_bytes;
    struct stat status {};
    int error = back(fd, 0, header_bytes);
    void* base = MAP_FAILED;
    if (error == 0 && ::fstat(fd, &status) == 0) {
        // As large as it may become: what lies behind the end of the file is not touched before it exists.
        base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        error = base == MAP_FAILED ? errno : 0;
    }
    ::close(fd);
    if (base == MAP_FAILED) {
        (void)::unlink(draft);
        report("TOFU_SIM_TRACE: cannot map %.300s: %s; %s", path, std::strerror(error),
               error == EFBIG ? "raise the limit of file sizes (ulimit -f)"
                              : "use a file on another disk, or a smaller TOFU_SIM_TRACE_MIB");
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    (void)::madvise(base, bytes, MADV_DONTFORK);
    fill_header(*static_cast<FileHeader*>(base), owner);
    if (!take_name(owner, draft, path)) {
        error = errno;
        (void)::unlink(draft);
        (void)::munmap(base, bytes);
        return explain(path, error);
    }
    const std::lock_guard guard(file.growing);
    file.base = static_cast<std::byte*>(base);
    file.limit_chunks = chunks;
    file.device = status.st_dev;
    file.inode = status.st_ino;
    file.full = false;
    std::memcpy(file.path, path, sizeof path);
    return UTOFU_SUCCESS;
}

/// Two runs in exact mode leave the same bytes: the distinguishing fields are not needed any more.
void forget_this_run() noexcept
{
    FileHeader& h = header();
    h.born = 1;
    h.pid = static_cast<int32_t>(h.rank + 1);
    std::memset(h.job, 0, sizeof h.job);
    std::snprintf(h.job, sizeof h.job, "exact");
}

bool is_open() noexcept
{
    return file.base != nullptr;
}

void leave() noexcept
{
    if (file.base == nullptr)
        return;
    if (lane().waiting && lane().epoch == epoch.load_relaxed())
        end_wait({End::other, 0}, 0);
    header().ended.store_release(is_exact() ? last_time : now());
    if (is_exact())
        forget_this_run();
}

void forget_in_child() noexcept
{
    // The mapping is not there (MADV_DONTFORK).
    epoch.store_release(epoch.load_relaxed() + 1);
    file.base = nullptr;
    new (&file.growing) std::mutex;
}

void add(const Record& record) noexcept
{
    if (!has_room()) [[unlikely]]
        return;
    if (lane().waiting && !ends_wait(record.type) && lane().next + 1 != lane().end) {
        store(lane().next + 1, *lane().next); // goes on behind it
    } else if (lane().waiting) {
        end_wait(ending_of(record), record.time);
        if (!has_room())
            return;
    }
    store(lane().next++, record);
    last_time = std::max(last_time, record.time);
}

void poll_in_vain() noexcept
{
    if (!has_room()) [[unlikely]]
        return;
    const uint64_t time = now();
    if (lane().waiting) {
        __atomic_store_n(reinterpret_cast<uint64_t*>(lane().next) + 2, time - lane().next->time, __ATOMIC_RELAXED);
        return;
    }
    begin_wait(time);
}

void begin_wait(uint64_t since) noexcept
{
    if (!has_room() || lane().waiting)
        return;
    Record wait{};
    wait.time = since;
    wait.type = Type::wait;
    store(lane().next, wait);
    lane().waiting = true;
}

void add_wait(uint64_t since, uint64_t until) noexcept
{
    begin_wait(since);
    if (lane().waiting) {
        __atomic_store_n(reinterpret_cast<uint64_t*>(lane().next) + 2, until - std::min(until, lane().next->time),
                         __ATOMIC_RELAXED);
        end_wait({End::other, 0}, until);
    }
}

} // namespace tofu::sim::trace
