// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Another process as seen from here: its files mapped by windows, copies through the kernel, requests. Uses:
// /proc/<pid>/fd, mmap, futex.
#include "memory/peer.h"

#include "job/allocate.h"
#include "job/descriptors.h"
#include "job/liveness.h"
#include "job/real_time.h"
#include "job/segment.h"
#include "memory/service.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr int move_patience_ms = 20; ///< for an owner that may be stopped, where there is another way
constexpr int wait_step_ms = 20;     ///< and look whether it lives in between
constexpr uint64_t unheard_mark = uint64_t{1} << 32;

SharedWord<uint32_t> num_windows{0}; ///< of all peers

uint32_t most_windows() noexcept
{
    static const auto most = uint32_t(std::min<size_t>(max_peer_windows, mapping_limit() / 4));
    return most;
}

int64_t now_ms() noexcept
{
    return static_cast<int64_t>(real_time_ns() / 1'000'000);
}

/// The kernel's own file of shared anonymous and System V memory, which cannot be truncated: it has no name that
/// a memfd could have, and lies on the same device as every memfd.
bool cannot_shrink(int fd, uint64_t device) noexcept
{
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0)
        return true;
    struct stat status;
    char path[40];
    char name[64];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(path, name, sizeof name);
    if (length <= 0 || ::fstat(fd, &status) != 0 || device == 0 || status.st_dev != device)
        return false;
    const auto begins = [&](const char* text) {
        return size_t(length) >= std::strlen(text) && std::memcmp(name, text, std::strlen(text)) == 0;
    };
    return begins("/dev/zero") || begins("/SYSV");
}

struct BackingCopy {
    uint32_t kind;
    int32_t fd;
    uint64_t device;
    uint64_t inode;
};

bool read_backing(const Backing& from, BackingCopy* to) noexcept
{
    for (int i = 0; i < 1000; ++i) {
        // Acquire, then the fields, then the same number again (partner: enter_backing).
        const uint32_t before = from.sequence.load_acquire();
        to->kind = __atomic_load_n(&from.kind, __ATOMIC_RELAXED);
        to->fd = __atomic_load_n(&from.fd, __ATOMIC_RELAXED);
        to->device = __atomic_load_n(&from.device, __ATOMIC_RELAXED);
        to->inode = __atomic_load_n(&from.inode, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (before != 0 && (before & 1) == 0 && from.sequence.load_relaxed() == before)
            return true;
        ::sched_yield();
    }
    return false;
}

} // namespace

std::unique_ptr<PeerProcess> PeerProcess::open(std::byte* segment, int pid, uint32_t alive_tid) noexcept
{
    std::unique_ptr<Impl> impl = make_or_null<Impl>();
    if (impl == nullptr)
        return nullptr;
    impl->segment = segment;
    impl->pid = pid;
    impl->alive_tid = alive_tid;
    return std::unique_ptr<PeerProcess>(new (std::nothrow) PeerProcess(std::move(impl)));
}

PeerProcess::PeerProcess(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
PeerProcess::~PeerProcess() = default;

PeerProcess::Impl::~Impl()
{
    for (const auto& [key, window] : windows_)
        (void)::munmap(window.address, window.bytes);
    num_windows.fetch_add(-uint32_t(windows_.size()));
}

bool PeerProcess::Impl::alive() const noexcept
{
    return is_alive(segment_header(segment).alive, alive_tid);
}

std::byte* PeerProcess::Impl::map_object(uint32_t backing, uint64_t start, uint64_t* bytes,
                                         bool* for_good) const noexcept
{
    BackingCopy entry;
    *for_good = true;
    if (backing >= max_backings || !read_backing(area().backings[backing], &entry) || entry.fd < 0)
        return nullptr;
    const uint64_t device = memfd_device();
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, entry.fd);
    const BriefFile file(path, O_RDWR | O_NOCTTY | O_NONBLOCK);
    *for_good = file.is_open() || !is_scarcity(errno);
    struct stat status;
    if (!file.is_open() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_dev != entry.device || status.st_ino != entry.inode || !cannot_shrink(file.get(), device))
        return nullptr;
    *for_good = false;
    if (start >= uint64_t(status.st_size))
        return nullptr;
    *bytes = std::min(peer_window_bytes, uint64_t(status.st_size) - start); // the last page may be partial
    std::byte* const address = map_sparse(file.get(), *bytes, off_t(start));
    if (address != nullptr && !open_sparse(address, *bytes)) {
        (void)::munmap(address, *bytes);
        return nullptr;
    }
    return address;
}

std::byte* PeerProcess::Impl::window(uint32_t backing, uint64_t file_offset, uint64_t* window_offset,
                                     uint64_t* window_bytes) noexcept
{
    if (backing >= max_backings || file_offset >= arena_bytes)
        return nullptr;
    const std::lock_guard lock(mutex_);
    const uint64_t number = file_offset / peer_window_bytes;
    const uint64_t key = uint64_t{backing} << 32 | number;
    auto at = windows_.find(key);
    if (at == windows_.end()) {
        if (refused_.contains(backing) || num_windows.load_relaxed() >= most_windows())
            return nullptr;
        uint64_t bytes = 0;
        bool for_good = false;
        std::byte* const address = map_object(backing, number * peer_window_bytes, &bytes, &for_good);
        if (for_good)
            (void)or_without_memory(false, [&] { return refused_.insert(backing).second; });
        if (address == nullptr)
            return nullptr;
        (void)::madvise(address, bytes, MADV_DONTFORK);
        at = or_without_memory(at, [&] { return windows_.emplace(key, Window{address, bytes}).first; });
        if (at == windows_.end()) {
            (void)::munmap(address, bytes);
            return nullptr;
        }
        num_windows.fetch_add(1);
    }
    if (file_offset - number * peer_window_bytes >= at->second.bytes)
        return nullptr; // behind the end of the file
    *window_offset = number * peer_window_bytes;
    *window_bytes = at->second.bytes;
    return at->second.address;
}

PeerProcess::Impl::CopyResult PeerProcess::Impl::copy(uint64_t there, void* here, size_t bytes, Towards towards,
                                                      CopyOrder order, size_t* done) noexcept
{
    *done = 0;
    if (copy_forbidden.load_relaxed() != 0)
        return CopyResult::forbidden;
    while (*done < bytes) {
        if (!alive()) // its pid may be another's by now
            return CopyResult::gone;
        const ssize_t count =
            vm_copy(pid, there + *done, static_cast<std::byte*>(here) + *done, bytes - *done, towards, order);
        if (count > 0) {
            *done += size_t(count);
        } else if (errno == ESRCH) {
            return CopyResult::gone;
        } else if (errno == EPERM || errno == ENOSYS) {
            copy_forbidden.store_relaxed(1);
            return CopyResult::forbidden;
        } else if (errno != EINTR) {
            return CopyResult::fault;
        }
    }
    return CopyResult::ok;
}

/// A dead requester's slot is taken back when it has been seen dead with the same claim twice, a pause apart: a
/// thread of a process that is being killed may still run for a moment on another CPU. What it then stores into
/// the slot's state fails, because all changes of state are compare-and-swap with its own claim.
MailboxSlot* PeerProcess::Impl::claim_slot(uint64_t* state, int64_t deadline) noexcept
{
    uint64_t suspects[mailbox_slots] = {};
    for (;;) {
        for (uint32_t i = 0; i < mailbox_slots; ++i) {
            MailboxSlot& slot = area().slots[i];
            uint64_t found = slot.state.load_acquire();
            if (phase_of(found) != SlotPhase::free && (found != suspects[i] || found == 0))
                continue;
            *state = claim_by_this_process(found);
            if (slot.state.compare_exchange(found, *state))
                return &slot;
        }
        if (!alive() || now_ms() > deadline)
            return nullptr;
        for (uint32_t i = 0; i < mailbox_slots; ++i) {
            const uint64_t found = area().slots[i].state.load_acquire();
            const SlotPhase phase = phase_of(found);
            const bool dead = claimant_is_gone(found);
            suspects[i] = dead && (phase == SlotPhase::claimed || phase == SlotPhase::done) ? found : 0;
        }
        ring_service(area()); // a requester may have been killed between posting and ringing
        const timespec pause{0, 1000000};
        ::nanosleep(&pause, nullptr);
    }
}

/// True: answered. False: the owner is dead or does not answer, and the slot has been given up.
bool PeerProcess::Impl::await_answer(MailboxSlot& slot, uint64_t posted, int64_t deadline) noexcept
{
    const uint64_t answered = with_phase(posted, SlotPhase::done);
    for (;;) {
        const uint32_t count = slot.answered.load_acquire();
        // Acquire: result and data (partner: serve, its release of `done`).
        const uint64_t found = slot.state.load_acquire();
        if (found == answered)
            return true;
        if (found != posted && found != with_phase(posted, SlotPhase::running))
            return false; // no longer held by this process: another one took it for dead
        if (alive() && now_ms() < deadline) {
            const timespec step{0, wait_step_ms * 1000000};
            futex_wait(slot.answered, count, &step);
            continue;
        }
        if (slot.state.load_acquire() == answered)
            return true;
        uint64_t expected = posted;
        if (slot.state.compare_exchange(expected, with_phase(posted, SlotPhase::free)))
            return false;
        expected = with_phase(posted, SlotPhase::running);
        if (slot.state.compare_exchange(expected, with_phase(posted, SlotPhase::abandoned)))
            return false;
        if (expected != posted && expected != answered)
            return false; // no longer held by this process: another one took it for dead
    }
}

bool PeerProcess::Impl::is_deaf() noexcept
{
    const uint64_t unheard = unheard_.load_relaxed();
    if (unheard != 0 && int32_t(area().heard.load_relaxed() - uint32_t(unheard)) >= 0)
        unheard_.store_relaxed(0);
    return unheard_.load_relaxed() != 0;
}

bool PeerProcess::Impl::is_stopped() const noexcept
{
    char path[32];
    char text[512] = {};
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const BriefFile file(path, O_RDONLY);
    if (!file.is_open() || ::read(file.get(), text, sizeof text - 1) <= 0)
        return false;
    const char* const name_end = std::strrchr(text, ')'); // the state follows: T, or t under a debugger
    return name_end != nullptr && (name_end[2] == 'T' || name_end[2] == 't') && alive();
}

MailboxSlot* PeerProcess::Impl::post(const PeerRequest& request, const void* data, int64_t deadline,
                                     uint64_t* posted) noexcept
{
    uint64_t state = 0;
    MailboxSlot* const slot = claim_slot(&state, deadline);
    if (slot == nullptr)
        return nullptr;
    slot->kind = uint32_t(request.kind);
    slot->vcq = request.vcq;
    slot->length = request.length;
    slot->stadd = request.stadd;
    slot->operand = request.operand;
    slot->compare = request.compare;
    slot->operation = uint32_t(request.operation);
    if (request.kind == RequestKind::write)
        std::memcpy(slot->data, data, request.length);
    *posted = with_phase(state, SlotPhase::posted);
    // Release: the request (partner: serve, its acquire).
    if (!slot->state.compare_exchange(state, *posted))
        return nullptr; // taken for dead meanwhile
    ring_service(area());
    return slot;
}

void PeerProcess::Impl::suggest_move(PeerRequest move) noexcept
{
    uint64_t posted = 0;
    move.kind = RequestKind::suggestion;
    if (!is_deaf())
        (void)post(move, nullptr, 0, &posted);
}

AccessStatus PeerProcess::Impl::ask(PeerRequest& request, void* data) noexcept
{
    const bool can_wait = request.kind != RequestKind::move;
    if (!can_wait && is_deaf())
        return alive() ? AccessStatus::unreachable : AccessStatus::peer_gone;
    const int64_t deadline = can_wait ? INT64_MAX : now_ms() + move_patience_ms;
    uint64_t posted = 0;
    MailboxSlot* const slot = post(request, data, deadline, &posted);
    if (slot == nullptr)
        return alive() ? AccessStatus::unreachable : AccessStatus::peer_gone;
    const uint32_t bell = area().bell.load_relaxed();
    if (!await_answer(*slot, posted, deadline)) {
        if (!alive())
            return AccessStatus::peer_gone;
        unheard_.store_relaxed(unheard_mark | bell);
        return AccessStatus::unreachable;
    }
    const uint32_t result = slot->result;
    request.old_value = slot->old_value;
    if (request.kind == RequestKind::read && result == 0)
        std::memcpy(data, slot->data, request.length);
    uint64_t done = with_phase(posted, SlotPhase::done);
    (void)slot->state.compare_exchange(done, with_phase(posted, SlotPhase::free));
    return result <= uint32_t(AccessStatus::peer_gone) ? AccessStatus(result) : AccessStatus::unreachable;
}

} // namespace tofu::sim
