// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Virtual time for programs that were not changed: clock_gettime and gettimeofday, and what is made of them; in exact
// mode sched_yield, what sends, and the processors of threads, too. Programs that tofu-sim run --clock starts have it
// (LD_PRELOAD). It looks clock/clock up by name.
//
// Until the process has joined a job with a clock, for threads that do not call uTofu, for libraries of timers, and for
// clocks of processor time, nothing changes. From then on the wall clocks go on from where they stood.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <initializer_list>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

/// `quiet`: for a library's own purposes.
using Read = int (*)(uint64_t* picoseconds, int quiet) noexcept;
using Gettime = int (*)(clockid_t, timespec*);

constexpr time_t exact_start = 1'577'836'800; ///< the beginning of 2020
constexpr time_t exact_uptime = 1000;         ///< of monotonic clocks; Open MPI takes 0 seconds for a clock not read
                                              ///< yet
constexpr clockid_t clocks = 12;              ///< numbers of the kernel's own

using Look = int (*)() noexcept;

std::atomic<Read> read_clock{nullptr};
using Send = void (*)() noexcept;

using Mask = int (*)(cpu_set_t*) noexcept;

std::atomic<Look> look{nullptr};
std::atomic<Send> start_thread{nullptr};
std::atomic<Mask> tell_mask{nullptr};
std::atomic<Send> before_send{nullptr};
std::atomic<Send> after_send{nullptr};
timespec started[clocks]; ///< what the wall clocks said when the virtual one began

Gettime real_gettime() noexcept
{
    static const auto found = reinterpret_cast<Gettime>(::dlsym(RTLD_NEXT, "clock_gettime"));
    return found;
}

bool is_wall_clock(clockid_t clock) noexcept
{
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
    case CLOCK_TAI: return true;
    default: return false;
    }
}

enum class Caller : uintptr_t { program = 0, library = 1, timers = 2 };

bool begins_with(const char* file, std::initializer_list<const char*> names) noexcept
{
    const char* const slash = std::strrchr(file, '/');
    const char* const name = slash != nullptr ? slash + 1 : file;
    for (const char* const begin : names)
        if (std::strncmp(name, begin, std::strlen(begin)) == 0)
            return true;
    return false;
}

/// Libraries whose timers other threads and processes wait for, by this machine's time: an event added by a thread in
/// virtual time would be due at once. UCX compares its clocks with each other. Other libraries look at the clock for
/// themselves, except for MPI_Wtime.
Caller caller_in(const char* file) noexcept
{
    if (begins_with(file, {"libevent", "libpmix", "libprrte", "libopen-rte", "libopen-pal", "libucs", "libuv"}))
        return Caller::timers;
    return begins_with(file, {"libmpi"}) ? Caller::program : Caller::library;
}

/// Calls come from few places: the answer for each is kept in a word, its lowest bits.
Caller caller_at(const void* caller) noexcept
{
    static std::atomic<uintptr_t> known[256];
    const auto at = reinterpret_cast<uintptr_t>(caller);
    std::atomic<uintptr_t>& place = known[at / 2 % 256];
    const uintptr_t seen = place.load(std::memory_order_relaxed);
    if (seen / 4 == at)
        return static_cast<Caller>(seen & 3);
    Dl_info where{};
    const bool found = ::dladdr(caller, &where) != 0 && where.dli_fname != nullptr;
    Dl_info program{};
    (void)::dladdr(reinterpret_cast<void*>(::getauxval(AT_ENTRY)), &program);
    const Caller answer = !found || where.dli_fbase == program.dli_fbase ? Caller::program : caller_in(where.dli_fname);
    place.store(at * 4 | static_cast<uintptr_t>(answer), std::memory_order_relaxed);
    return answer;
}

int read_time(clockid_t clock, timespec* time, const void* caller) noexcept
{
    const Read read = read_clock.load(std::memory_order_acquire); // partner: tofu_sim_attach_clock
    uint64_t picoseconds = 0;
    if (read == nullptr || !is_wall_clock(clock))
        return real_gettime()(clock, time);
    const Caller who = caller_at(caller);
    if (who == Caller::timers || read(&picoseconds, who == Caller::library ? 1 : 0) == 0)
        return real_gettime()(clock, time);
    const uint64_t ns = picoseconds / 1000 + static_cast<uint64_t>(started[clock].tv_nsec);
    time->tv_sec = started[clock].tv_sec + static_cast<time_t>(ns / 1'000'000'000);
    time->tv_nsec = static_cast<long>(ns % 1'000'000'000);
    return 0;
}

template <typename Function>
Function next(const char* name) noexcept
{
    return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

/// Files and terminals start nothing; what is printed goes to the launcher, and nothing comes back.
bool is_outside(int fd) noexcept
{
    struct stat status;
    const Send before = before_send.load(std::memory_order_acquire); // partner: tofu_sim_attach_send
    if (before == nullptr || fd <= STDERR_FILENO)
        return false;
    const int error = errno;
    const mode_t type = ::fstat(fd, &status) == 0 ? status.st_mode & S_IFMT : mode_t{S_IFREG};
    errno = error;
    return type == S_IFSOCK || type == S_IFIFO || type == 0; // 0: an eventfd
}

bool looks() noexcept
{
    const Look now = look.load(std::memory_order_acquire); // partner: tofu_sim_attach_look
    return now != nullptr && now() != 0;
}

/// Of this thread: the mutexes that it holds, and whether it has sent something while it held them. The receiver of
/// that may need one of them.
struct Holds {
    unsigned mutexes = 0;
    bool has_sent = false;
};
thread_local Holds holds __attribute__((tls_model("initial-exec")));

void after_sending() noexcept
{
    if (holds.mutexes == 0 && holds.has_sent) {
        const int error = errno;
        holds.has_sent = false;
        after_send.load(std::memory_order_relaxed)();
        errno = error;
    }
}

template <typename Call>
ssize_t sent(int fd, Call call)
{
    if (!is_outside(fd)) [[likely]]
        return call();
    before_send.load(std::memory_order_relaxed)();
    const ssize_t result = call();
    holds.has_sent = true;
    after_sending();
    return result;
}

using OfMutex = int (*)(pthread_mutex_t*);
struct MutexCalls {
    OfMutex lock;
    OfMutex trylock;
    OfMutex unlock;
};
MutexCalls mutex_calls; ///< of the C library

__attribute__((constructor)) void find_mutex_calls() noexcept
{
    if (mutex_calls.unlock == nullptr) {
        mutex_calls = {next<OfMutex>("pthread_mutex_lock"), next<OfMutex>("pthread_mutex_trylock"),
                       next<OfMutex>("pthread_mutex_unlock")};
    }
}
const MutexCalls& real_mutex_calls() noexcept
{
    if (mutex_calls.unlock == nullptr) [[unlikely]] // a constructor of another library
        find_mutex_calls();
    return mutex_calls;
}

/// A new thread inherits the processor of exact mode from the thread that starts it.
struct NewThread {
    void* (*function)(void*);
    void* argument;
};

void* run_thread(void* thread)
{
    const NewThread own = *static_cast<NewThread*>(thread);
    delete static_cast<NewThread*>(thread);
    start_thread.load(std::memory_order_acquire)(); // partner: tofu_sim_attach_threads
    return own.function(own.argument);
}

/// Whether `set` got the processors that the calling thread had before exact mode.
bool tells_mask(size_t bytes, cpu_set_t* set) noexcept
{
    const Mask mask = tell_mask.load(std::memory_order_acquire); // partner: tofu_sim_attach_threads
    return mask != nullptr && bytes >= sizeof *set && mask(set) != 0;
}

} // namespace

extern "C" {

__attribute__((visibility("default"))) void tofu_sim_attach_clock(Read read)
{
    for (clockid_t clock = 0; clock < clocks; clock++) {
        if (is_wall_clock(clock)) {
            (void)real_gettime()(clock, &started[clock]);
            if (look.load(std::memory_order_relaxed) != nullptr) { // exact mode: the same digits in each run
                const bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
                started[clock] = {wall ? exact_start : exact_uptime, 0};
            }
        }
    }
    read_clock.store(read, std::memory_order_release); // partner: read_time
}

__attribute__((visibility("default"))) void tofu_sim_attach_look(Look function)
{
    look.store(function, std::memory_order_release); // partner: sched_yield
}

__attribute__((visibility("default"))) void tofu_sim_attach_send(Send before, Send after)
{
    after_send.store(after, std::memory_order_relaxed);
    before_send.store(before, std::memory_order_release); // partner: is_outside
}

__attribute__((visibility("default"))) void tofu_sim_attach_threads(Send started, Mask mask)
{
    start_thread.store(started, std::memory_order_release); // partner: pthread_create
    tell_mask.store(mask, std::memory_order_release);       // partner: tells_mask
}

/// In exact mode the thread that calls uTofu is bound to one processor (clock/processor.h). The program does not see
/// it: its other threads run on all processors, and it counts as many of them.
__attribute__((visibility("default"))) int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                          void* (*function)(void*), void* argument) noexcept
{
    using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static const auto real = next<Create>("pthread_create");
    auto* const own = start_thread.load(std::memory_order_acquire) != nullptr // partner: tofu_sim_attach_threads
                          ? new (std::nothrow) NewThread{function, argument}
                          : nullptr;
    if (own == nullptr)
        return real(thread, attributes, function, argument);
    const int rc = real(thread, attributes, run_thread, own);
    if (rc != 0)
        delete own;
    return rc;
}

__attribute__((visibility("default"))) int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t* set) noexcept
{
    static const auto real = next<int (*)(pid_t, size_t, cpu_set_t*)>("sched_getaffinity");
    const bool own = process == 0 || process == static_cast<pid_t>(::syscall(SYS_gettid));
    return own && tells_mask(bytes, set) ? 0 : real(process, bytes, set);
}

__attribute__((visibility("default"))) int pthread_getaffinity_np(pthread_t thread, size_t bytes,
                                                                  cpu_set_t* set) noexcept
{
    static const auto real = next<int (*)(pthread_t, size_t, cpu_set_t*)>("pthread_getaffinity_np");
    return ::pthread_equal(thread, ::pthread_self()) != 0 && tells_mask(bytes, set) ? 0 : real(thread, bytes, set);
}

/// In exact mode a thread that yields between polls of its memory waits for an arrival there.
__attribute__((visibility("default"))) int sched_yield(void) noexcept
{
    return looks() ? 0 : static_cast<int>(::syscall(SYS_sched_yield));
}

/// So does a thread that naps between them, or between looks at what is outside uTofu (Open MPI waits for its launcher
/// like that): how often it looks must not depend on this machine. The nap takes no time.
__attribute__((visibility("default"))) int usleep(useconds_t microseconds)
{
    static const auto real = next<int (*)(useconds_t)>("usleep");
    return looks() ? 0 : real(microseconds);
}

__attribute__((visibility("default"))) unsigned sleep(unsigned seconds)
{
    static const auto real = next<unsigned (*)(unsigned)>("sleep");
    return looks() ? 0 : real(seconds);
}

__attribute__((visibility("default"))) int nanosleep(const timespec* time, timespec* left)
{
    static const auto real = next<int (*)(const timespec*, timespec*)>("nanosleep");
    return looks() ? 0 : real(time, left);
}

__attribute__((visibility("default"))) int clock_nanosleep(clockid_t clock, int flags, const timespec* time,
                                                           timespec* left)
{
    static const auto real = next<int (*)(clockid_t, int, const timespec*, timespec*)>("clock_nanosleep");
    return looks() ? 0 : real(clock, flags, time, left);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* time) noexcept
{
    return read_time(clock, time, __builtin_return_address(0));
}

/// By another name, since the type of `zone` is not the same in all C libraries (glibc 2.31: void*).
__attribute__((visibility("default"))) int tofu_sim_gettimeofday(timeval* time, void* zone) noexcept
    __asm__("gettimeofday");

int tofu_sim_gettimeofday(timeval* time, void* zone) noexcept
{
    if (zone != nullptr)
        *static_cast<struct timezone*>(zone) = {};
    if (time == nullptr) // gettimeofday(2) permits that for both
        return 0;
    timespec now{};
    const int rc = read_time(CLOCK_REALTIME, &now, __builtin_return_address(0));
    *time = {now.tv_sec, now.tv_nsec / 1000};
    return rc;
}

/// In exact mode what is sent to another thread or process is over when all that it starts outside uTofu has come to
/// rest. The clock hears of it before it is sent, as the answer may be there at once.
__attribute__((visibility("default"))) ssize_t write(int fd, const void* bytes, size_t size)
{
    static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
    return sent(fd, [&] { return real(fd, bytes, size); });
}

__attribute__((visibility("default"))) ssize_t writev(int fd, const iovec* pieces, int count)
{
    static const auto real = next<ssize_t (*)(int, const iovec*, int)>("writev");
    return sent(fd, [&] { return real(fd, pieces, count); });
}

__attribute__((visibility("default"))) ssize_t send(int fd, const void* bytes, size_t size, int flags)
{
    static const auto real = next<ssize_t (*)(int, const void*, size_t, int)>("send");
    return sent(fd, [&] { return real(fd, bytes, size, flags); });
}

__attribute__((visibility("default"))) ssize_t sendto(int fd, const void* bytes, size_t size, int flags,
                                                      const sockaddr* address, socklen_t length)
{
    static const auto real = next<ssize_t (*)(int, const void*, size_t, int, const sockaddr*, socklen_t)>("sendto");
    return sent(fd, [&] { return real(fd, bytes, size, flags, address, length); });
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr* message, int flags)
{
    static const auto real = next<ssize_t (*)(int, const msghdr*, int)>("sendmsg");
    return sent(fd, [&] { return real(fd, message, flags); });
}

__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept
{
    const int rc = real_mutex_calls().lock(mutex);
    holds.mutexes += rc == 0 ? 1 : 0;
    return rc;
}

__attribute__((visibility("default"))) int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept
{
    const int rc = real_mutex_calls().trylock(mutex);
    holds.mutexes += rc == 0 ? 1 : 0;
    return rc;
}

__attribute__((visibility("default"))) int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept
{
    const int rc = real_mutex_calls().unlock(mutex);
    holds.mutexes -= rc == 0 && holds.mutexes != 0 ? 1 : 0;
    if (holds.has_sent) [[unlikely]]
        after_sending();
    return rc;
}

} // extern "C"
