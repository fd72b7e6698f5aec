// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which processes are alive, without a system call on the querying path. Uses: set_robust_list, fcntl, /proc.
//
// The kernel walks the robust list of a thread when the thread ends, for whatever reason, and sets
// FUTEX_OWNER_DIED in each futex word that holds the thread's id. The words lie in shared memory; the nodes of
// the list must not, being pointers that a peer could bend. The kernel finds a word at a fixed distance from
// its node, so the nodes are kept in a private image of the segment header, each where its word is.
#include "job/liveness.h"

#include "job/descriptors.h"

#include <cerrno>
#include <csignal>
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

alignas(SegmentHeader) std::byte node_image[sizeof(SegmentHeader)];
robust_list_head list_head;

robust_list* node_of(const SegmentHeader& segment, const AliveWord& word) noexcept
{
    const auto offset = reinterpret_cast<const std::byte*>(&word) - reinterpret_cast<const std::byte*>(&segment);
    return reinterpret_cast<robust_list*>(node_image + offset);
}

/// One byte for each slot, far behind what the file holds; in every version of the layout from 6 on, so that other
/// versions see that the file is in use.
constexpr off_t slot_locks_offset = off_t{1} << 40;

struct flock lock_of(off_t first, off_t count) noexcept
{
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot_locks_offset + first;
    lock.l_len = count; // 0: to the end
    return lock;
}

Life life_of(int job_file, struct flock lock) noexcept
{
    if (::fcntl(job_file, F_OFD_GETLK, &lock) != 0)
        return Life::unknown;
    return lock.l_type == F_UNLCK ? Life::gone : Life::runs;
}

/// The fields of /proc/<pid>/stat behind the program's name, which may hold anything. By its first thread, of which
/// they are: QEMU's user mode shows a child of fork its parent's start time in the child's own file.
const char* read_stat(int pid, char (&buffer)[1024]) noexcept
{
    char path[48];
    std::snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, pid);
    const BriefFile file(path, O_RDONLY);
    const ssize_t size = file.is_open() ? ::read(file.get(), buffer, sizeof buffer - 1) : -1;
    if (size <= 0)
        return nullptr;
    buffer[size] = '\0';
    const char* const end_of_name = std::strrchr(buffer, ')');
    return end_of_name != nullptr && end_of_name[1] == ' ' ? end_of_name + 2 : nullptr;
}

bool is_in_process_table(int pid) noexcept
{
    return pid > 0 && (::kill(pid, 0) == 0 || errno != ESRCH);
}

/// A process that was killed takes a while to vanish, but the word that the kernel marks shows it at once. Where it is
/// 0 without that mark, the process joins or leaves, and still uses the job's file. The
/// descriptor with the number of its segment may be any file, and a failed read proves nothing: that process has closed
/// it, or denies access, or is about to vanish and has no files any more.
Life mark_life(uint32_t process, const ProcessSlot& slot) noexcept
{
    char path[48];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", slot.pid, slot.segment_fd);
    const BriefFile file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    SegmentHeader head{};
    if (!file.is_open() || ::pread(file.get(), &head, sizeof head, 0) != ssize_t{sizeof head} ||
        head.magic != segment_magic || head.process != process || head.incarnation != slot.incarnation.raw)
        return Life::unknown;
    return (head.alive.owner.raw & FUTEX_OWNER_DIED) != 0 ? Life::gone : Life::runs;
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
    for (const AliveWord& word : segment.vcq_alive)
        append(word);
    previous->next = &list_head.list;
    list_head.futex_offset = reinterpret_cast<std::byte*>(&segment) - node_image;
    list_head.list_op_pending = nullptr;
    (void)::syscall(SYS_set_robust_list, &list_head, sizeof list_head);
    // Release: a thread that sees the id sees the finished header (partner: is_alive).
    segment.alive.owner.store_release(tid);
    return tid;
}

ProcessEntry look_up_process(int pid) noexcept
{
    if (!is_in_process_table(pid))
        return {Life::gone};
    char buffer[1024];
    const char* field = read_stat(pid, buffer);
    if (field == nullptr) {
        // Without a descriptor; or a process that /proc hides from us; or it has just gone.
        const int error = errno;
        const Life life = is_in_process_table(pid) ? Life::unknown : Life::gone;
        errno = error;
        return {life};
    }
    const char state = *field;
    constexpr unsigned long on_its_way_out = 4; // PF_EXITING, proc(5)
    bool ending = false;
    long threads = 0;
    long parent = 0;
    uint64_t start_time = 0;
    for (int number = 3; number < 22 && field != nullptr; number++) {
        if (number == 4)
            parent = std::strtol(field, nullptr, 10);
        if (number == 9)
            ending = state != 'Z' && (std::strtoul(field, nullptr, 10) & on_its_way_out) != 0;
        if (number == 20)
            threads = std::strtol(field, nullptr, 10);
        field = std::strchr(field, ' ');
        field = field != nullptr ? field + 1 : nullptr;
    }
    if (field != nullptr)
        start_time = std::strtoull(field, nullptr, 10);
    // A zombie with other threads is a process whose first thread ended early: it runs.
    const bool dead = state == 'X' || (state == 'Z' && threads <= 1);
    return dead ? ProcessEntry{Life::gone} : ProcessEntry{Life::runs, start_time, ending, static_cast<int>(parent)};
}

uint64_t process_start_time(int pid) noexcept
{
    return look_up_process(pid).start_time;
}

Life process_life(int pid, uint64_t start_time) noexcept
{
    const ProcessEntry entry = look_up_process(pid);
    return entry.start_time == 0 || start_time == 0 || entry.start_time == start_time ? entry.life : Life::gone;
}

SlotLock lock_slot(int job_file, uint32_t process) noexcept
{
    struct flock lock = lock_of(process, 1);
    if (::fcntl(job_file, F_OFD_SETLK, &lock) == 0)
        return SlotLock::taken;
    return errno == EAGAIN || errno == EACCES ? SlotLock::in_use : SlotLock::not_supported;
}

void unlock_slot(int job_file, uint32_t process) noexcept
{
    struct flock lock = lock_of(process, 1);
    lock.l_type = F_UNLCK;
    (void)::fcntl(job_file, F_OFD_SETLK, &lock);
}

Life lock_life(int job_file, uint32_t process) noexcept
{
    return life_of(job_file, lock_of(process, 1));
}

Life lock_life_of_all(int job_file) noexcept
{
    return life_of(job_file, lock_of(0, 0));
}

Life member_life(int job_file, uint32_t process, const ProcessSlot& slot, bool same_namespace) noexcept
{
    const Life by_lock = slot.holds_lock != 0 ? lock_life(job_file, process) : Life::unknown;
    if (by_lock == Life::gone)
        return Life::gone;
    if (!same_namespace)
        return by_lock;
    // Held, perhaps by a child that was made without fork handlers (vfork), and has the file still open.
    const Life by_table = process_life(slot.pid, slot.start_time);
    if (by_table == Life::gone)
        return Life::gone;
    return mark_life(process, slot);
}

Life job_life(int job_file) noexcept
{
    const Life by_locks = lock_life_of_all(job_file);
    JobHeader header{};
    const ssize_t size = ::pread(job_file, &header, sizeof header, 0);
    if (by_locks == Life::unknown || size < 0)
        return Life::unknown;
    // No process joins before the header is complete. The slots are where they are in all versions that had no locks.
    if (size != ssize_t{sizeof header} || header.magic != job_magic || header.version > layout_version)
        return by_locks;
    const bool same_namespace = header.pid_namespace == own_pid_namespace();
    ProcessSlot block[64];
    Life found = Life::gone;
    for (uint32_t first = 0; first < max_processes; first += 64) {
        const auto offset = static_cast<off_t>(job_slots_offset + first * sizeof(ProcessSlot));
        const ssize_t got = ::pread(job_file, block, sizeof block, offset);
        if (got != ssize_t{sizeof block})
            return got < 0 ? Life::unknown : found == Life::gone ? by_locks : found; // truncated
        for (uint32_t i = 0; i < 64; i++) {
            if (block[i].used.raw != 0) {
                const Life life = member_life(job_file, first + i, block[i], same_namespace);
                if (life == Life::runs)
                    return life;
                found = life == Life::unknown ? life : found;
            }
        }
    }
    return found;
}

uint64_t own_pid_namespace() noexcept
{
    struct stat status {};
    // A /proc of another namespace, as a chroot or a container may have, does not know this process.
    const bool good = process_start_time(::getpid()) != 0 && ::stat("/proc/self/ns/pid", &status) == 0;
    return good ? static_cast<uint64_t>(status.st_ino) : 0;
}

} // namespace tofu::sim
