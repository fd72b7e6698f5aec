// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: finds out whether anything is under way outside uTofu. See quiet.h. Uses: /proc.
#include "clock/quiet.h"

#include "job/real_time.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <initializer_list>
#include <unistd.h>
#include <utility>

namespace tofu::sim {
namespace {

constexpr uint64_t between_looks_ns = 500'000;

const Actor& seen_actor(const std::byte* actors, uint32_t process) noexcept
{
    return *reinterpret_cast<const Actor*>(actors + size_t{process} * schedule_actor_bytes);
}

/// The number of bytes read; 0: there is no such file.
template <size_t bytes>
size_t read_text(const char* path, char (&text)[bytes]) noexcept
{
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd >= 0 ? ::read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        ::close(fd);
    const auto length = static_cast<size_t>(std::max<ssize_t>(size, 0));
    text[length] = '\0';
    return length;
}

class Sum {
  public:
    [[nodiscard]] uint64_t value() const noexcept { return value_; }
    void add(uint64_t value) noexcept { value_ = (value_ ^ value) * 0x9e3779b97f4a7c15u + (value_ >> 29); }

  private:
    uint64_t value_ = 1;
};

/// Adds the kernel's counts of a thread's runs to the sum. False: the thread can run.
bool add_thread(Sum& sum, int pid, uint32_t tid) noexcept
{
    const char letter = see_thread(pid, tid).letter;
    if (letter != 'S')
        return letter == 0 || letter == 'Z' || letter == 'X' || letter == 'I';
    char path[64];
    char text[256];
    std::snprintf(path, sizeof path, "/proc/%d/task/%u/schedstat", pid, tid);
    const size_t size = read_text(path, text);
    for (size_t i = 0; i < size; i++)
        sum.add(static_cast<unsigned char>(text[i]));
    return true;
}

/// Adds all threads of a process except some.
Outside add_threads(Sum& sum, int pid, std::initializer_list<uint32_t> except) noexcept
{
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR* const tasks = ::opendir(path);
    if (tasks == nullptr)
        return errno == ENOENT ? Outside::quiet : Outside::unknown;
    Outside found = Outside::quiet;
    while (const dirent* const entry = ::readdir(tasks)) {
        const auto tid = static_cast<uint32_t>(std::strtoul(entry->d_name, nullptr, 10));
        if (tid != 0 && std::find(except.begin(), except.end(), tid) == except.end() && !add_thread(sum, pid, tid)) {
            found = Outside::busy;
            break;
        }
    }
    ::closedir(tasks);
    return found;
}

/// Adds the thread that calls uTofu. False: it can run. In the library it waits for its turn.
bool add_caller(Sum& sum, const Actor& a) noexcept
{
    const auto s = static_cast<ActorState>(a.state.load_acquire());
    if (s == ActorState::ready || s == ActorState::idle || a.sending.load_acquire() != 0)
        return true;
    if (s == ActorState::inside)
        return false;
    const uint32_t tid = a.tid.load_relaxed();
    const ThreadSeen seen = see_thread(a.pid, tid);
    if (seen.letter != 'R' || a.excuse.load_relaxed() != static_cast<uint32_t>(Excuse::looks))
        return add_thread(sum, a.pid, tid);
    sum.add(seen.faults); // it polls memory, as a guess
    return true;
}

/// True if it has got the turn, but perhaps not a processor yet.
bool is_about_to_go_on(const ScheduleHead& head, const Actor& a, uint32_t process) noexcept
{
    return head.running.load_acquire() == process + 1 &&
           static_cast<ActorState>(a.state.load_acquire()) != ActorState::running;
}

/// Threads of the kernel that deliver what loopback connections carry, where a sender could not do so itself: on a
/// machine with much to do, a message may wait for them while its sender and its receiver sleep.
class Deliverers {
  public:
    /// Each of them has had nothing to do at some time after the sample of time `sample`: it sleeps, or has slept. On a
    /// busy machine they wait for a processor most of the time. In a container's own PID namespace they are not
    /// visible, and nothing is known.
    [[nodiscard]] bool have_rested_since(uint64_t sample) noexcept
    {
        if (!known_)
            find();
        const bool anew = std::exchange(sample_, sample) != sample;
        bool all = true;
        for (unsigned i = 0; i < count_; i++)
            all = has_rested(all_[i], anew) && all;
        return all;
    }

  private:
    static constexpr unsigned most = 1024; ///< processors

    struct Deliverer {
        int pid = 0;
        bool has_rested = false;
        uint64_t sleeps = 0; ///< at the first look after the sample
    };

    static bool has_rested(Deliverer& one, bool anew) noexcept
    {
        if (!anew && one.has_rested)
            return true;
        const auto tid = static_cast<uint32_t>(one.pid);
        const char letter = see_thread(one.pid, tid).letter;
        const uint64_t sleeps = count_sleeps(one.pid, tid);
        if (anew)
            one.sleeps = sleeps;
        one.has_rested = (letter != 'R' && letter != 'D') || sleeps != one.sleeps;
        return one.has_rested;
    }

    void find() noexcept
    {
        known_ = true;
        DIR* const processes = ::opendir("/proc");
        while (const dirent* const entry = processes != nullptr ? ::readdir(processes) : nullptr) {
            const int pid = static_cast<int>(std::strtol(entry->d_name, nullptr, 10));
            char path[64];
            char name[64];
            std::snprintf(path, sizeof path, "/proc/%d/comm", pid);
            if (pid > 0 && count_ < most && read_text(path, name) != 0 && std::strncmp(name, "ksoftirqd/", 10) == 0 &&
                see_thread(pid, static_cast<uint32_t>(pid)).parent == 2)
                all_[count_++].pid = pid;
        }
        if (processes != nullptr)
            ::closedir(processes);
    }

    Deliverer all_[most];
    unsigned count_ = 0;
    bool known_ = false;
    uint64_t sample_ = 0;
};
Deliverers deliverers; ///< used by one thread at a time (ScheduleHead::looker)

bool is_member(const ScheduleHead& head, const std::byte* actors, int pid) noexcept
{
    const uint32_t used = head.used.load_relaxed();
    for (uint32_t process = 0; process < used; process++)
        if (seen_actor(actors, process).pid == pid)
            return true;
    return false;
}

/// True for a program that communicates with the processes that it has started. Other parents (a shell, tofu-sim) only
/// wait for their end.
bool is_launcher(int pid) noexcept
{
    char path[64];
    char name[256];
    std::snprintf(path, sizeof path, "/proc/%d/comm", pid);
    (void)read_text(path, name);
    name[std::strcspn(name, "\n")] = '\0';
    for (const char* const launcher : {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prte", "prted",
                                       "mpiexec.hydra", "hydra_pmi_proxy", "srun", "slurmstepd"})
        if (std::strcmp(name, launcher) == 0)
            return true;
    return false;
}

/// The processes that have started those of the job: their ancestors, up to the last launcher among them; and further
/// children of these, which may be processes of the job that have not joined yet.
class Launchers {
  public:
    void add_parents(int pid) noexcept
    {
        int line[longest_line];
        unsigned length = 0;
        unsigned kept = 0;
        while (pid > 1 && length < longest_line) {
            line[length++] = pid;
            kept = is_launcher(pid) ? length : kept;
            pid = see_thread(pid, static_cast<uint32_t>(pid)).parent;
        }
        for (unsigned i = 0; i < std::min(kept, length); i++)
            add(line[i]);
    }
    void add(int pid) noexcept
    {
        if (count_ < most_launchers && std::find(pids_, pids_ + count_, pid) == pids_ + count_)
            pids_[count_++] = pid;
    }
    void add_children_of(int pid) noexcept
    {
        char path[64];
        char text[4096];
        std::snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
        (void)read_text(path, text);
        char* end = text;
        for (long child = std::strtol(text, &end, 10); child > 0; child = std::strtol(end, &end, 10))
            add(static_cast<int>(child));
    }
    [[nodiscard]] unsigned count() const noexcept { return count_; }
    [[nodiscard]] int at(unsigned i) const noexcept { return pids_[i]; }

  private:
    static constexpr unsigned longest_line = 5;
    static constexpr unsigned most_launchers = 512;

    int pids_[most_launchers] = {};
    unsigned count_ = 0;
};

Outside look_at_all(const ScheduleHead& head, const std::byte* actors, Sum& sum, Sum& others,
                    Launchers& launchers) noexcept
{
    const uint32_t used = head.used.load_acquire();
    for (uint32_t process = 0; process < used; process++) {
        const Actor& a = seen_actor(actors, process);
        if (static_cast<ActorState>(a.state.load_acquire()) == ActorState::absent)
            continue;
        if (!add_caller(sum, a) || is_about_to_go_on(head, a, process))
            return Outside::busy;
        const uint32_t service = a.service.load_relaxed();
        const Outside found = add_threads(others, a.pid, {a.tid.load_relaxed(), a.helper.load_relaxed(), service});
        if (found != Outside::quiet || !add_thread(sum, a.pid, service))
            return found == Outside::quiet ? Outside::busy : found;
        launchers.add_parents(a.parent);
    }
    for (unsigned i = 0, parents = launchers.count(); head.open == 0 && i < parents; i++)
        launchers.add_children_of(launchers.at(i));
    for (unsigned i = 0; i < launchers.count(); i++) {
        const int pid = launchers.at(i);
        const Outside found = is_member(head, actors, pid) ? Outside::quiet : add_threads(others, pid, {});
        if (found != Outside::quiet)
            return found;
    }
    return Outside::quiet;
}

uint64_t sum_of_actors(const ScheduleHead& head, const std::byte* actors) noexcept
{
    Sum sum;
    const uint32_t used = head.used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        const Actor& a = seen_actor(actors, process);
        sum.add(a.state.load_acquire());
        sum.add(a.entries.load_relaxed());
        sum.add(a.calls.load_relaxed());
        sum.add(a.excuse.load_relaxed());
        sum.add(a.sending.load_relaxed());
    }
    sum.add(head.joined);
    sum.add(head.grants.load_relaxed());
    return sum.value();
}

} // namespace

ThreadSeen see_thread(int pid, uint32_t tid) noexcept
{
    char path[64];
    char text[256];
    std::snprintf(path, sizeof path, "/proc/%d/task/%u/stat", pid, tid);
    (void)read_text(path, text);
    const char* const name_end = std::strrchr(text, ')');
    ThreadSeen seen;
    unsigned long minor = 0;
    unsigned long major = 0;
    if (name_end == nullptr || std::sscanf(name_end + 1, " %c %d %*d %*d %*d %*d %*u %lu %*u %lu", &seen.letter,
                                           &seen.parent, &minor, &major) < 2)
        return {};
    seen.faults = minor + major;
    return seen;
}

bool sleeps_until_a_time(int pid, uint32_t tid) noexcept
{
    char path[64];
    char text[256];
    std::snprintf(path, sizeof path, "/proc/%d/task/%u/wchan", pid, tid);
    (void)read_text(path, text);
    return std::strstr(text, "nanosleep") != nullptr;
}

uint64_t thread_time_ns(int pid, uint32_t tid) noexcept
{
    char path[64];
    char text[256];
    std::snprintf(path, sizeof path, "/proc/%d/task/%u/schedstat", pid, tid);
    (void)read_text(path, text);
    return std::strtoull(text, nullptr, 10);
}

uint64_t count_sleeps(int pid, uint32_t tid) noexcept
{
    static constexpr const char* name = "\nvoluntary_ctxt_switches:";
    char path[64];
    char text[4096];
    std::snprintf(path, sizeof path, "/proc/%d/task/%u/status", pid, tid);
    (void)read_text(path, text);
    const char* const at = std::strstr(text, name);
    return at != nullptr ? std::strtoull(at + std::strlen(name), nullptr, 10) : 0;
}

Outside look_outside(ScheduleHead& head, std::byte* actors) noexcept
{
    const uint64_t now = real_time_ns();
    const uint64_t before = sum_of_actors(head, actors);
    Sum sum;
    Sum others;
    // First: what they had delivered by now has woken its receiver, which is seen to run, or to have run.
    const bool delivered = deliverers.have_rested_since(head.quiet_since);
    Launchers launchers;
    const Outside found = look_at_all(head, actors, sum, others, launchers);
    if (found != Outside::quiet) {
        head.quiet_sum = 0;
        return found;
    }
    sum.add(others.value());
    sum.add(before);
    const bool anew = std::exchange(head.quiet_sum, sum.value()) != sum.value();
    if (anew)
        head.quiet_since = now;
    head.quiet_actors = before;
    head.quiet_others = others.value();
    const bool has_sent = launchers.count() != 0 || head.unseen != 0 || head.sends.load_relaxed() != 0;
    const bool quiet = !anew && (delivered || !has_sent) && now - head.quiet_since >= between_looks_ns;
    return quiet ? Outside::quiet : Outside::busy;
}

bool is_as_seen(const ScheduleHead& head, const std::byte* actors) noexcept
{
    return head.quiet_actors == sum_of_actors(head, actors);
}

bool maps_file(const char* name) noexcept
{
    std::FILE* const maps = std::fopen("/proc/self/maps", "re");
    char line[512];
    bool found = false;
    while (maps != nullptr && !found && std::fgets(line, sizeof line, maps) != nullptr)
        found = std::strstr(line, name) != nullptr;
    if (maps != nullptr)
        (void)std::fclose(maps);
    return found;
}

} // namespace tofu::sim
