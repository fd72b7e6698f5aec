// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: who is alive, without a system call on the path that asks.
// Called by: memory/service.cc (the service thread adopts itself), job/, tni/. Calls: set_robust_list, /proc.
//
// The kernel walks the robust list of a thread when the thread ends, for whatever reason, and sets
// FUTEX_OWNER_DIED in each futex word that holds the thread's id. The words lie in shared memory; the nodes of
// the list must not, being pointers that a peer could bend. The kernel finds a word at a fixed distance from
// its node, so the nodes are kept in a private image of the segment header, each where its word is.
#include "job/liveness.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

alignas(4096) std::byte node_image[4096];
robust_list_head list_head;

robust_list* node_of(const SegmentHeader& segment, const AliveWord& word) noexcept
{
    const auto offset = reinterpret_cast<const std::byte*>(&word) -
                        reinterpret_cast<const std::byte*>(&segment);
    return reinterpret_cast<robust_list*>(node_image + offset);
}

// The fields of /proc/<pid>/stat behind the program's name, which may hold anything.
const char* read_stat(int pid, char (&buffer)[1024]) noexcept
{
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return nullptr;
    }
    const ssize_t size = ::read(fd, buffer, sizeof buffer - 1);
    ::close(fd);
    if (size <= 0) {
        return nullptr;
    }
    buffer[size] = '\0';
    const char* const end_of_name = std::strrchr(buffer, ')');
    return end_of_name != nullptr && end_of_name[1] == ' ' ? end_of_name + 2 : nullptr;
}

} // namespace

uint32_t adopt_service_thread(SegmentHeader& segment) noexcept
{
    const auto tid = static_cast<uint32_t>(::syscall(SYS_gettid));
    robust_list* previous = &list_head.list;
    const auto append = [&](const AliveWord& word) {
        robust_list* const node = node_of(segment, word);
        previous->next = node;
        previous = node;
    };
    append(segment.alive);
    for (const AliveWord& word : segment.vcq_alive) {
        append(word);
    }
    previous->next = &list_head.list;
    list_head.futex_offset = reinterpret_cast<std::byte*>(&segment) - node_image;
    list_head.list_op_pending = nullptr;
    (void)::syscall(SYS_set_robust_list, &list_head, sizeof list_head);
    // Release: whoever sees the id sees the finished header (partner: is_alive).
    segment.alive.owner.store_release(tid);
    return tid;
}

uint64_t process_start_time(int pid) noexcept
{
    char buffer[1024];
    const char* field = read_stat(pid, buffer);
    if (field == nullptr) {
        return 0;
    }
    const char state = *field;
    long threads = 0;
    uint64_t start_time = 0;
    for (int number = 3; number < 22 && field != nullptr; number++) {
        if (number == 20) {
            threads = std::strtol(field, nullptr, 10);
        }
        field = std::strchr(field, ' ');
        field = field != nullptr ? field + 1 : nullptr;
    }
    if (field != nullptr) {
        start_time = std::strtoull(field, nullptr, 10);
    }
    // A zombie with other threads is a process whose first thread ended early: it runs.
    const bool dead = state == 'X' || (state == 'Z' && threads <= 1);
    return dead ? 0 : start_time;
}

uint64_t own_pid_namespace() noexcept
{
    struct stat status{};
    // A /proc of another namespace, as a chroot or a container may have, does not know this process.
    const bool good = process_start_time(::getpid()) != 0 && ::stat("/proc/self/ns/pid", &status) == 0;
    return good ? static_cast<uint64_t>(status.st_ino) : 0;
}

bool process_runs(int pid, uint64_t start_time) noexcept
{
    return pid > 0 && start_time != 0 && process_start_time(pid) == start_time;
}

} // namespace tofu::sim
