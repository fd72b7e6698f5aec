// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The segment of this process and the mapped segments of its peers. Uses: memfd, mmap, /proc.
#include "job/segment.h"

#include "job/report.h"

#include <utofu.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr int required_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool valid_mrq_entries(uint32_t entries) noexcept
{
    return std::has_single_bit(entries) && entries >= 2048 && entries <= max_mrq_entries;
}

/// With the counters of what it posts closed (job/flows), and its VCQs.
std::byte* map_segment(int fd, size_t bytes) noexcept
{
    std::byte* const base = map_sparse(fd, bytes, 0);
    if (base == nullptr)
        return nullptr;
    (void)::madvise(base, bytes, MADV_DONTDUMP);
    (void)::madvise(base, bytes, MADV_DONTFORK);
    if (!open_sparse(base, segment_flows_offset + offsetof(FlowTable, flows))) {
        const int error = errno;
        (void)::munmap(base, bytes);
        errno = error;
        return nullptr;
    }
    return base;
}

/// A peer's file must be its sealed memfd: it cannot shrink while it is mapped.
bool is_segment_file(int fd, struct stat& status) noexcept
{
    if (::fstat(fd, &status) != 0 || status.st_uid != ::geteuid() || !S_ISREG(status.st_mode))
        return false;
    const int seals = ::fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & required_seals) == required_seals;
}

} // namespace

std::byte* map_sparse(int fd, size_t bytes, off_t offset) noexcept
{
    void* const base = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, offset);
    if (base == MAP_FAILED)
        return nullptr;
    (void)::munlock(base, bytes);
    return static_cast<std::byte*>(base);
}

bool open_sparse(std::byte* start, size_t bytes) noexcept
{
    return ::mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0;
}

bool open_vcq_region(std::byte* segment, unsigned index, uint32_t mrq_entries) noexcept
{
    return open_sparse(segment + vcq_region_offset(index, mrq_entries), vcq_region_bytes(mrq_entries));
}

int OwnSegment::create(uint32_t mrq_free, uint32_t mrq_session) noexcept
{
    const uint32_t entries = std::max(mrq_free, mrq_session);
    const size_t bytes = segment_total_bytes(entries);
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
        report("the limit on file sizes (ulimit -f) is below the %zu bytes of a sparse segment: raise it", bytes);
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    const int fd = ::memfd_create("tofu-sim-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || ::fcntl(fd, F_ADD_SEALS, required_seals) != 0) {
        const int error = errno;
        report("cannot create the memory file of this process's segment: %s; raise the limits of open files and memory "
               "(ulimit -n, -v)",
               std::strerror(error));
        if (fd >= 0)
            ::close(fd);
        return error == EMFILE || error == ENFILE ? UTOFU_ERR_OUT_OF_RESOURCE : UTOFU_ERR_OUT_OF_MEMORY;
    }
    std::byte* const mapped = map_segment(fd, bytes);
    if (mapped == nullptr) {
        report("cannot map %zu bytes of address space (%s): raise the limit (ulimit -v) or lower "
               "UTOFU_NUM_MRQ_ENTRIES",
               bytes, std::strerror(errno));
        ::close(fd);
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    base = mapped;
    file.keep(fd);
    mrq_entries = entries;
    SegmentHeader& h = header();
    h.version = layout_version;
    h.mrq_entries = entries;
    h.mrq_entries_free = mrq_free;
    h.mrq_entries_session = mrq_session;
    h.segment_bytes = bytes;
    h.pid = ::getpid();
    return UTOFU_SUCCESS;
}

void OwnSegment::destroy() noexcept
{
    (void)::munmap(base, segment_total_bytes(mrq_entries));
    base = nullptr;
    file.close();
}

int map_peer_segment(const ProcessSlot& slot, uint32_t process, Peer& peer) noexcept
{
    char path[48];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", slot.pid, slot.segment_fd);
    const BriefFile file(path, O_RDWR | O_NONBLOCK | O_NOCTTY); // whatever it is
    if (!file.is_open())
        return errno;
    const int fd = file.get();
    struct stat status {};
    SegmentHeader head{};
    const bool good = is_segment_file(fd, status) &&
                      ::pread(fd, &head, sizeof head, 0) == static_cast<ssize_t>(sizeof head) &&
                      head.magic == segment_magic && head.version == layout_version &&
                      valid_mrq_entries(head.mrq_entries_free) && valid_mrq_entries(head.mrq_entries_session) &&
                      head.mrq_entries == std::max(head.mrq_entries_free, head.mrq_entries_session) &&
                      static_cast<uint64_t>(status.st_size) == segment_total_bytes(head.mrq_entries) &&
                      head.pid == slot.pid && head.process == process && head.incarnation == slot.incarnation.raw;
    if (!good)
        return ENOENT;
    peer.base = map_segment(fd, segment_total_bytes(head.mrq_entries));
    if (peer.base == nullptr)
        return errno;
    peer.process = process;
    peer.incarnation = head.incarnation;
    peer.pid = slot.pid;
    peer.mrq_entries = head.mrq_entries;
    peer.mrq_entries_free = head.mrq_entries_free;
    peer.mrq_entries_session = head.mrq_entries_session;
    const uint32_t owner = peer.header().alive.owner.load_acquire();
    peer.tid = (owner & ~alive_tid_mask) == 0 ? owner : 0;
    return 0;
}

} // namespace tofu::sim
