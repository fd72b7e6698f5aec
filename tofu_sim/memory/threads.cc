// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where the kernel writes by itself: stacks of threads (signal frames), their descriptors and thread-local data. Uses:
// get_robust_list, sigaltstack, /proc/self/task.
#include "memory/threads.h"

#include "job/descriptors.h"
#include "memory/registry.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr uint64_t descriptor_bytes = 8192; ///< more than a descriptor and the spare room for late thread-local data
                                            ///< have
constexpr uint64_t near_bytes = 64 * 1024;  ///< from a stack pointer up to what is on the same stack
constexpr size_t most_noted = 64;

/// Of any thread of this process. The C library keeps the head in the thread's descriptor, on every architecture; 0:
/// the thread has none (any more), or has one of its own making.
long robust_list_of(int tid, uint64_t* head) noexcept
{
    size_t length = 0;
    *head = 0;
    return ::syscall(SYS_get_robust_list, tid, head, &length);
}

} // namespace

bool ThreadAreas::open(const VmaQuery& vmas)
{
    reach_ = descriptor_bytes;
    (void)::dl_iterate_phdr(
        [](dl_phdr_info* object, size_t, void* reach) {
            for (unsigned i = 0; i < object->dlpi_phnum; ++i)
                if (const auto& part = object->dlpi_phdr[i]; part.p_type == PT_TLS)
                    *static_cast<uint64_t*>(reach) += part.p_memsz + part.p_align;
            return 0;
        },
        &reach_);
    uint64_t head = 0;
    if (robust_list_of(::getpid(), &head) != 0 || head == 0)
        return false;
    return look(vmas, 0);
}

bool ThreadAreas::look(const VmaQuery& vmas, int except)
{
    found_.clear();
    tids_.clear();
    {
        const BriefFile tasks("/proc/self/task", O_RDONLY | O_DIRECTORY);
        if (!tasks.is_open() || !visit_entries(tasks, [&](const char* name) { tids_.push_back(std::atoi(name)); }))
            return false;
    }
    for (const int tid : tids_) {
        uint64_t head = 0;
        Vma vma;
        if (tid == 0 || tid == except || robust_list_of(tid, &head) != 0 || head == 0)
            continue;
        if (!vmas.find(head, &vma))
            return false;
        if (vma.start > head)
            continue;
        // The stack begins where its mapping does and ends with the descriptor. The first thread's is elsewhere.
        const uint64_t start = tid == ::getpid() ? page_floor(head - reach_) : vma.start;
        found_.push_back({std::max(start, vma.start), std::min(page_ceil(head + reach_), vma.end), tid, head});
    }
    return true;
}

void ThreadAreas::note_caller(uint64_t start, uint64_t end)
{
    stack_t other = {};
    if (::sigaltstack(nullptr, &other) == 0 && (other.ss_flags & SS_DISABLE) == 0) {
        const auto at = reinterpret_cast<uint64_t>(other.ss_sp);
        note({page_floor(at), page_ceil(at + other.ss_size)});
    }
    const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
    if (start >= here && start - here < near_bytes)
        note({page_floor(here), page_ceil(end)});
}

void ThreadAreas::note(Area area)
{
    uint64_t stop = area.end;
    if (holds(area.start, &stop) && stop == area.end)
        return;
    if (noted_.size() < most_noted)
        noted_.push_back(area);
    else
        noted_[next_noted_++ % most_noted] = area;
}

/// Memory of a thread that has ended may have another use by now.
bool ThreadAreas::Area::holds(uint64_t address) const noexcept
{
    if (address < start || address >= end)
        return false;
    uint64_t now = 0;
    return tid == 0 || (robust_list_of(tid, &now) == 0 && now == head);
}

bool ThreadAreas::holds(uint64_t address, uint64_t* stop) const noexcept
{
    for (const std::vector<Area>* areas : {&found_, &noted_})
        for (const Area& area : *areas) {
            if (area.holds(address)) {
                *stop = std::min(*stop, area.end);
                return true;
            }
            if (area.start > address)
                *stop = std::min(*stop, area.start);
        }
    return false;
}

} // namespace tofu::sim
