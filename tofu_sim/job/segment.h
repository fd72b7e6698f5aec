// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The segment of this process and the mapped segments of its peers. Uses: memfd, mmap, /proc.
#pragma once

#include "job/descriptors.h"
#include "job/layout.h"

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace tofu::sim {

/// Maps `bytes` of a file, inaccessible and not locked into memory: a sparse file gets a page for each page that is
/// read, and a program that has called mlockall(MCL_FUTURE) would get them all. Null: errno says why.
[[nodiscard]] std::byte* map_sparse(int fd, size_t bytes, off_t offset) noexcept;
/// What is used of it is made accessible; pages are made by use from then on. A later mlockall locks these parts only.
[[nodiscard]] bool open_sparse(std::byte* start, size_t bytes) noexcept;
/// The VCQs of a mapped segment are accessible once they were opened.
[[nodiscard]] bool open_vcq_region(std::byte* segment, unsigned index, uint32_t mrq_entries) noexcept;

/// Our own segment: created once per process, never unmapped (other threads may still post while the process
/// ends), not inherited by children.
struct OwnSegment {
    std::byte* base = nullptr;
    KeptFile file;
    uint32_t mrq_entries = 0; ///< stride of the rings

    [[nodiscard]] SegmentHeader& header() const noexcept { return segment_header(base); }
    [[nodiscard]] std::byte* vcq_region(unsigned index) const noexcept
    {
        return base + vcq_region_offset(index, mrq_entries);
    }
    /// If joining failed, and no other process has seen it.
    void destroy() noexcept;

    /// UTOFU_SUCCESS, or an error after a line on stderr.
    [[nodiscard]] int create(uint32_t mrq_free, uint32_t mrq_session) noexcept;
};

/// Another process's segment, mapped. Stays valid for the life of this process: when the peer is dead its
/// pages may be released, and then read as zeros. All checked values are copied here.
struct Peer {
    std::byte* base = nullptr;
    uint32_t process = 0; ///< slot in the job file
    uint32_t incarnation = 0;
    int pid = 0;
    uint32_t mrq_entries = 0; ///< stride of the rings
    uint32_t mrq_entries_free = 0;
    uint32_t mrq_entries_session = 0;
    uint32_t tid = 0; ///< what the peer's AliveWords hold while it lives; 0 for one that has died

    [[nodiscard]] SegmentHeader& header() const noexcept { return segment_header(base); }
    [[nodiscard]] std::byte* vcq_region(unsigned index) const noexcept
    {
        return base + vcq_region_offset(index, mrq_entries);
    }
    [[nodiscard]] bool alive() const noexcept { return tid != 0 && header().alive.owner.load_acquire() == tid; }
};

/// Maps the segment of the process that holds `slot` (a copy of its entry). 0, or what is in the way, as errno has it;
/// ENOENT: it is gone, or what it published fails a check: owner, seals, size, magic, identity.
[[nodiscard]] int map_peer_segment(const ProcessSlot& slot, uint32_t process, Peer& peer) noexcept;

} // namespace tofu::sim
