// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The arena (a memfd that peers map) and the move of private anonymous pages into it, at their place. Under the lock of
// memory/registry. Uses: userfaultfd, memfd, mmap.
#include "memory/mover.h"

#include "memory/layout.h"
#include "memory/vm_copy.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <utility>
#include <vector>

// Headers may be older than the kernel.
#ifndef MADV_POPULATE_READ // glibc 2.35
#define MADV_POPULATE_READ 22
#endif
#ifndef UFFDIO_WRITEPROTECT // Linux 5.7
#define UFFDIO_WRITEPROTECT _IOWR(UFFDIO, 0x06, struct uffdio_writeprotect)
#define UFFDIO_WRITEPROTECT_MODE_WP (__u64{1} << 0)
struct uffdio_writeprotect {
    struct uffdio_range range;
    __u64 mode;
};
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

namespace tofu::sim {
namespace {

constexpr uint64_t window_bytes = uint64_t{1} << 38; ///< more than a mapping here can grow
constexpr size_t windows_at_rest = 64;               ///< free ones, before the first of them is used again
constexpr size_t mappings_per_run = 2;               ///< its own, and the other half of what it lies in

/// The raw system call: the sanitizers' interceptor of mmap would forget what it knows about the range.
void* raw_mmap(uint64_t address, uint64_t length, int rights, int flags, int fd, uint64_t offset) noexcept
{
    const long result = ::syscall(SYS_mmap, address, length, rights, flags, fd, offset);
    return result == -1 ? MAP_FAILED : reinterpret_cast<void*>(result);
}

__attribute__((no_sanitize("address", "thread"))) bool all_zero(const void* bytes) noexcept
{
    const auto* words = static_cast<const uint64_t*>(bytes);
    uint64_t any = 0;
    for (size_t i = 0; i < page_bytes / sizeof(uint64_t) && any == 0; i += 8)
        for (size_t j = 0; j < 8; ++j)
            any |= words[i + j];
    return any == 0;
}

} // namespace

void UniqueFd::reset(int fd) noexcept
{
    if (fd_ >= 0)
        ::close(fd_);
    fd_ = fd;
}

Arena::Arena() : most_runs_(mapping_limit() / mappings_per_run / 4) {}

bool Arena::has_room(const VmaQuery& vmas)
{
    if (full_ ? ++questions_ >= most_runs_ : runs_ >= most_runs_) {
        collect(vmas);
        full_ = runs_ > most_runs_ / 4 * 3; // a look is dear: there must be room for a while
        questions_ = 0;
    }
    return !full_;
}

bool Arena::open() noexcept
{
    // The limit of file sizes holds for memory files too, and going beyond it is a deadly signal.
    struct rlimit limit;
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < arena_bytes)
        return false;
    UniqueFd fd(::memfd_create("tofu-sim-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    struct stat status;
    if (!fd || ::ftruncate(fd.get(), off_t(arena_bytes)) != 0 ||
        ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        ::fstat(fd.get(), &status) != 0)
        return false;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    file_.keep(fd.release());
    return true;
}

bool Arena::is_file_of(const Vma& vma) const noexcept
{
    return vma.inode == inode_ && makedev(vma.device_major, vma.device_minor) == device_;
}

bool Arena::place(uint64_t address, uint64_t length, uint64_t whole_start, uint64_t whole_end, uint64_t* offset)
{
    const uint64_t end = address + length;
    auto at = windows_.upper_bound(address);
    if (at != windows_.begin()) {
        --at;
        Window& window = at->second;
        auto used = window.used.lower_bound(end); // first one at or above the end
        const bool taken = used != window.used.begin() && std::prev(used)->second > address;
        if (end > window.end || taken)
            at = windows_.end();
    } else {
        at = windows_.end();
    }
    if (at == windows_.end()) {
        uint64_t fresh = 0;
        if (whole_end - whole_start > window_bytes / 4 || !take_window(&fresh))
            return false;
        // The former mapping is gone; its windows must not be used for the present one.
        auto old = windows_.lower_bound(whole_start);
        if (old != windows_.begin() && std::prev(old)->second.end > whole_start)
            --old;
        while (old != windows_.end() && old->first < whole_end)
            old = windows_.erase(old);
        at = windows_.emplace(whole_start, Window{whole_end, fresh, {}}).first;
    }
    Window& window = at->second;
    const auto next = window.used.emplace(address, end).first;
    // Neighbours of one window are one mapping.
    if (next == window.used.begin() || std::prev(next)->second != address)
        ++runs_;
    *offset = window.offset + (address - at->first);
    placed_ += length;
    return true;
}

bool Arena::take_window(uint64_t* offset)
{
    if (free_windows_.size() >= windows_at_rest ||
        (next_window_ + window_bytes > arena_bytes && !free_windows_.empty())) {
        *offset = free_windows_.front();
        free_windows_.pop_front();
    } else if (next_window_ + window_bytes <= arena_bytes) {
        *offset = next_window_;
        next_window_ += window_bytes;
    } else {
        return false;
    }
    used_windows_.insert(*offset);
    return true;
}

void Arena::punch(uint64_t start, uint64_t end) const noexcept
{
    if (start < end)
        (void)::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(start), off_t(end - start));
}

/// False: a page is in it twice, as if it had been seen at two places of its way.
bool Arena::take_shown(const std::vector<Vma>& all, Shown* shown) const
{
    *shown = {};
    for (const Vma& vma : all)
        if (is_file_of(vma)) { // those that fork has made private still show what they have not written
            const uint64_t end = vma.file_offset + (vma.end - vma.start);
            const auto next = shown->ranges.lower_bound(vma.file_offset);
            if ((next != shown->ranges.end() && next->first < end) ||
                (next != shown->ranges.begin() && std::prev(next)->second > vma.file_offset))
                return false;
            shown->ranges.emplace_hint(next, vma.file_offset, end);
            shown->bytes += vma.end - vma.start;
            ++shown->runs;
        }
    return true;
}

/// The program may move mappings meanwhile (mremap): one that comes from ahead of a look to behind it would be missed,
/// and its bytes lost. So the kernel says before and after where mappings of files are, each time of one instant. If
/// that is the same, and each of them has been looked at, none has been missed.
bool Arena::find_shown(const VmaQuery& vmas, Shown* shown) const
{
    constexpr int tries = 4;
    std::vector<Vma> all;
    std::vector<Vma> again;
    std::vector<AddressRange> before;
    std::vector<AddressRange> after;
    const auto by_address = [](const auto& a, const auto& b) {
        return std::pair(a.start, a.end) < std::pair(b.start, b.end);
    };
    for (int i = 0; i < tries; ++i) {
        const bool listed = vmas.of_files(&before);
        vmas.all(&all);
        bool same = false;
        if (listed) {
            same = vmas.of_files(&after) && before == after &&
                   std::includes(all.begin(), all.end(), before.begin(), before.end(), by_address);
        } else { // an old kernel, or a /proc that hides it: two looks have to agree
            vmas.all(&again);
            same = std::equal(all.begin(), all.end(), again.begin(), again.end(), [](const Vma& a, const Vma& b) {
                return a.start == b.start && a.end == b.end && a.inode == b.inode && a.file_offset == b.file_offset;
            });
        }
        if (same && take_shown(all, shown))
            return true;
    }
    return false;
}

void Arena::collect(const VmaQuery& vmas)
{
    constexpr uint64_t least_bytes = uint64_t{64} << 20;
    constexpr size_t least_windows = 256;
    Shown shown;
    if (!find_shown(vmas, &shown)) { // later
        collect_at_ = placed_ + least_bytes;
        collect_windows_ = used_windows_.size() + least_windows;
        return;
    }
    placed_ = shown.bytes;
    runs_ = shown.runs;
    for (auto window = used_windows_.begin(); window != used_windows_.end();) {
        const uint64_t end = *window + window_bytes;
        uint64_t at = *window;
        const auto first = shown.ranges.lower_bound(at);
        for (auto range = first; range != shown.ranges.end() && range->first < end; ++range) {
            punch(at, range->first);
            at = std::max(at, range->second);
        }
        punch(at, end);
        if (at != *window) {
            ++window;
            continue;
        }
        std::erase_if(windows_, [&](const auto& entry) { return entry.second.offset == *window; });
        free_windows_.push_back(*window);
        window = used_windows_.erase(window);
    }
    collect_at_ = std::max(least_bytes, 2 * placed_);
    collect_windows_ = std::max(least_windows, 2 * used_windows_.size());
}

bool Mover::try_open(int flags, uint64_t features) noexcept
{
    UniqueFd fd(int(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags)));
    if (!fd && flags == 0) {
        UniqueFd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
        if (device)
            fd.reset(::ioctl(device.get(), USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK));
    }
    struct uffdio_api api = {};
    api.api = UFFD_API;
    api.features = features;
    if (!fd || ::ioctl(fd.get(), UFFDIO_API, &api) != 0)
        return false;
    uffd_.keep(fd.release());
    user_mode_only_ = flags != 0;
    protects_unpopulated_ = (features & UFFD_FEATURE_WP_UNPOPULATED) != 0;
    return true;
}

void Mover::open(Arena& arena, bool lock_pages) noexcept
{
    arena_ = &arena;
    lock_pages_ = lock_pages;
    const uint64_t basic = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    const uint64_t best = basic | UFFD_FEATURE_WP_UNPOPULATED;
    // Full mode first: without it a system call of another thread that writes into pages being moved fails.
    (void)(try_open(0, best) || try_open(0, basic) || try_open(UFFD_USER_MODE_ONLY, best) ||
           try_open(UFFD_USER_MODE_ONLY, basic));
}

/// Only the kernel reads the pages: the program may protect or unmap them meanwhile.
bool Mover::copy_pages(int file, uint64_t address, uint64_t length, uint64_t offset) noexcept
{
    // The largest pages of any system, or several. Not on the stack, which may be small (ulimit -s), and not on the
    // heap, whose pages may be those that move and are protected.
    alignas(uint64_t) static std::byte pages[64 << 10];
    for (uint64_t done = 0; done < length; done += sizeof pages) {
        const uint64_t bytes = std::min<uint64_t>(length - done, sizeof pages);
        if (!copy_self(pages, address + done, bytes, Towards::here, CopyOrder::relaxed))
            return false;
        for (uint64_t at = 0; at < bytes;) {
            if (all_zero(pages + at)) {
                at += page_bytes; // a hole reads as zero
                continue;
            }
            uint64_t end = at + page_bytes;
            while (end < bytes && !all_zero(pages + end))
                end += page_bytes;
            while (at < end) {
                const ssize_t wrote = ::pwrite(file, pages + at, end - at, off_t(offset + done + at));
                if (wrote <= 0)
                    return false;
                at += uint64_t(wrote);
            }
        }
    }
    return true;
}

MoveStatus Mover::move(uint64_t address, uint64_t length, uint64_t offset, const Advice& advice) noexcept
{
    struct uffdio_register registration = {};
    registration.range = {address, length};
    registration.mode = UFFDIO_REGISTER_MODE_WP;
    const int uffd = uffd_.get();
    const int file = arena_->fd();
    if (uffd < 0 || file < 0 || ::ioctl(uffd, UFFDIO_REGISTER, &registration) != 0)
        return MoveStatus::refused;

    MoveStatus status = MoveStatus::moved;
    struct uffdio_writeprotect protect = {};
    protect.range = {address, length};
    protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
    // Without the feature a page that does not exist cannot be protected: make every page exist first. One
    // that a madvise of another thread drops in between would be missed; only kernels before 6.4 do this.
    const bool ready =
        protects_unpopulated_ || ::madvise(reinterpret_cast<void*>(address), length, MADV_POPULATE_READ) == 0;
    if (!ready || ::ioctl(uffd, UFFDIO_WRITEPROTECT, &protect) != 0)
        status = MoveStatus::refused;
    // From here on no store reaches the old pages.
    else if (!copy_pages(file, address, length, offset) ||
             raw_mmap(address, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, offset) ==
                 MAP_FAILED)
        status = MoveStatus::no_memory;

    if (status != MoveStatus::moved) {
        protect.mode = 0; // also wakes waiters
        (void)::ioctl(uffd, UFFDIO_WRITEPROTECT, &protect);
        (void)::ioctl(uffd, UFFDIO_UNREGISTER, &registration.range);
    } else {
        Advice said = advice;
        said.locked |= lock_pages_;
        repeat(said, address, length);
    }
    // The new mapping is not registered, but a waiter on the old one is still found by address.
    struct uffdio_range range = {address, length};
    (void)::ioctl(uffd, UFFDIO_WAKE, &range);
    return status;
}

} // namespace tofu::sim
