// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The owner's side: what kind of memory a range is, the files peers may map, and moving pages on request. Uses:
// /proc/self/fd.
#include "memory/registry.h"

#include "job/descriptors.h"
#include "memory/announce.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <new>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace tofu::sim {

/// Private anonymous memory that only the program writes. The first thread's stack also grows by itself, which a
/// shared mapping cannot, and code cannot move its own stack.
bool ProcessMemory::Impl::is_movable(const Vma& vma, uint64_t at, uint64_t* stop)
{
    const uint64_t here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
    const auto is_stack = [&](uint64_t pointer) { return vma.start <= pointer && pointer < vma.end; };
    return mover.available() && !vma.shared && vma.anonymous() && vma.readable && vma.writable && !vma.executable &&
           vma.page_bytes == page_bytes && !is_stack(main_stack) &&
           !(::pthread_equal(::pthread_self(), service) != 0 && is_stack(here)) && !threads.holds(at, stop) &&
           arena.has_room(vmas);
}

void ProcessMemory::Impl::append(std::vector<Extent>* extents, const Extent& extent, uint64_t start) const
{
    if (!extents->empty()) {
        Extent& last = extents->back();
        const uint64_t last_start = extents->size() > 1 ? (*extents)[extents->size() - 2].end : 0;
        if (last.reach == extent.reach && last.backing == extent.backing &&
            (extent.reach != uint32_t(Reach::mapped) ||
             last.file_offset + (start - last_start) == extent.file_offset)) {
            last.end = extent.end;
            return;
        }
        if (extents->size() == max_extents) { // too ragged to describe: the rest goes by copy
            last = Extent{extent.end, 0, 0, uint32_t(Reach::fixed), 0};
            return;
        }
    }
    extents->push_back(extent);
}

bool ProcessMemory::Impl::classify(uint64_t first_page, uint64_t end, bool read_only, std::vector<Extent>* extents)
{
    extents->clear();
    for (uint64_t at = first_page; at < end;) {
        Vma vma;
        if (!vmas.find(at, &vma) || vma.start > at || !vma.readable || (!read_only && !vma.writable))
            return false;
        uint64_t stop = std::min(vma.end, end);
        Extent extent{0, 0, 0, uint32_t(Reach::fixed), 0};
        if (arena.is_mapped_by(vma)) {
            extent.reach = uint32_t(Reach::mapped);
            extent.file_offset = vma.file_offset + (at - vma.start);
        } else if (vma.shared) {
            extent.backing = backing_of(vma);
            if (extent.backing != 0) {
                extent.reach = uint32_t(Reach::mapped);
                extent.file_offset = vma.file_offset + (at - vma.start);
            }
        } else if (is_movable(vma, at, &stop)) {
            extent.reach = uint32_t(Reach::movable);
        }
        extent.end = stop - first_page;
        append(extents, extent, at - first_page);
        at = stop;
    }
    return true;
}

uint32_t ProcessMemory::Impl::backing_of(const Vma& vma)
{
    const std::pair<uint64_t, uint64_t> key{makedev(vma.device_major, vma.device_minor), vma.inode};
    const auto known = backings.find(key);
    if (known != backings.end())
        return known->second;
    if (backings.size() > 4 * max_backings)
        backings.clear(); // forgets what had no backing; what has one is entered again below
    uint32_t& index = backings[key];
    try {
        index = enter_backing(vma);
    } catch (const std::bad_alloc&) {
        backings.erase(key);
        throw;
    }
    return index;
}

/// Only memory that cannot shrink under a peer's mapping is offered: a fault there would kill the peer.
uint32_t ProcessMemory::Impl::enter_backing(const Vma& vma)
{
    UniqueFd fd = find_file(vma);
    struct stat status;
    if (!fd || num_backings == max_backings || ::fstat(fd.get(), &status) != 0)
        return 0;
    const int seals = ::fcntl(fd.get(), F_GET_SEALS);
    const std::string name = vmas.name(vma.start);
    const bool no_file = name.rfind("/dev/zero", 0) == 0 || name.rfind("/SYSV", 0) == 0;
    const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
    if (!sealed && !no_file)
        return 0;
    Backing& entry = area().backings[num_backings];
    entry.sequence.store_relaxed(1);
    __atomic_thread_fence(__ATOMIC_RELEASE); // partner: PeerProcess, read_backing
    const auto put = [](auto& word, auto value) { __atomic_store_n(&word, value, __ATOMIC_RELAXED); };
    put(entry.kind, uint32_t(sealed ? BackingKind::sealed : BackingKind::unsealed));
    put(entry.fd, fd.release()); // kept for the life of the process: peers open it when they first need it
    put(entry.device, status.st_dev);
    put(entry.inode, status.st_ino);
    put(entry.bytes, uint64_t(status.st_size));
    entry.sequence.store_release(2);
    return num_backings++;
}

/// Other threads open and close descriptors meanwhile: what was found may be another file when it is duplicated, so the
/// duplicate is looked at too.
UniqueFd ProcessMemory::Impl::find_file(const Vma& vma) const
{
    const auto is_it = [&](int fd) {
        struct stat status;
        // Not fstat: ThreadSanitizer takes a look at another thread's descriptor for a race.
        return ::fstatat(fd, "", &status, AT_EMPTY_PATH) == 0 && status.st_ino == vma.inode &&
               status.st_dev == makedev(vma.device_major, vma.device_minor);
    };
    UniqueFd result;
    if (const BriefFile fds("/proc/self/fd", O_RDONLY | O_DIRECTORY); fds.is_open()) {
        (void)visit_entries(fds, [&](const char* name) {
            const int fd = std::atoi(name);
            const int flags = result || name[0] == '.' ? -1 : ::fcntl(fd, F_GETFL);
            if (flags < 0 || (flags & O_ACCMODE) != O_RDWR || !is_it(fd))
                return;
            result.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
            if (result && !is_it(result.get()))
                result.reset();
        });
    }
    if (!result) { // mapped and closed, or shared anonymous memory: granted to privileged processes only
        char path[80];
        std::snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (unsigned long)vma.start,
                      (unsigned long)vma.end);
        result.reset(::open(path, O_RDWR | O_CLOEXEC));
        if (result && !is_it(result.get()))
            result.reset();
    }
    return result;
}

bool ProcessMemory::Impl::move(uint64_t address, uint64_t length, uint64_t start, uint64_t end)
{
    if (!mover.available())
        return false;
    uint64_t at = page_floor(address);
    const uint64_t stop = page_ceil(std::min(address + length, end));
    start = page_floor(start);
    end = page_ceil(end);
    int tries = looks_for_copies;
    // The service thread's list is not in its descriptor (job/liveness).
    if (!threads.look(vmas, static_cast<pid_t>(::syscall(SYS_gettid))))
        return false;
    while (at < stop) {
        Vma vma;
        if (!vmas.find(at, &vma) || vma.start > at)
            return false;
        if (arena.is_mapped_by(vma)) {
            at = vma.end;
            continue;
        }
        // Neighbours of the threads' pages are moved up to these, on either side.
        uint64_t limit = std::min(end, vma.end);
        if (!is_movable(vma, at, &limit))
            return false;
        // The whole chunk, as far as it is registered and of this kind, so that neighbours need no move of
        // their own; a chunk is the time that a writer may have to wait.
        const uint64_t chunk = mover.user_mode_only() ? short_chunk_bytes : move_chunk_bytes;
        uint64_t chunk_start = std::max({at & ~(chunk - 1), start, vma.start});
        for (uint64_t until = at; !is_movable(vma, chunk_start, &until) || until != at; until = at)
            chunk_start = until;
        const uint64_t chunk_end = std::min((at & ~(chunk - 1)) + chunk, limit);
        const Advice advice = advice_of(vmas, vma, chunk_start);
        if (advice.wipe_on_fork)
            return false; // a shared mapping cannot be wiped
        const AnnouncedMove announced(area(), chunk_start, chunk_end, &tries);
        uint64_t offset = 0;
        if (!announced.may_begin() ||
            !arena.place(chunk_start, chunk_end - chunk_start, std::max(start, vma.start), std::min(end, vma.end),
                         &offset) ||
            mover.move(chunk_start, chunk_end - chunk_start, offset, advice) != MoveStatus::moved)
            return false;
        at = chunk_end;
    }
    if (arena.wants_collection())
        arena.collect(vmas);
    return true;
}

void ProcessMemory::Impl::republish(uint64_t start, uint64_t end) noexcept
{
    for (auto& [index, vcq] : vcqs)
        for (uint32_t i = 0; i < vcq->slots.size(); ++i) {
            const VcqMemory::Impl::Slot& slot = vcq->slots[i];
            if (slot.hw_stag != 0 && slot.page_base < end && slot.page_base + slot.extents.back().end > start)
                vcq->refresh(i);
        }
}

} // namespace tofu::sim
