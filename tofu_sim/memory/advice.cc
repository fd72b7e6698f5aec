// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The program's advice to the kernel about pages. See advice.h. Uses: madvise, /proc/self/smaps.
#include "memory/advice.h"

#include "job/descriptors.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#ifndef MADV_COLD // Linux 5.4
#define MADV_COLD 20
#endif
#ifndef MADV_WIPEONFORK // Linux 4.14
#define MADV_WIPEONFORK 18
#define MADV_KEEPONFORK 19
#endif

namespace tofu::sim {
namespace {

bool advise(uint64_t at, int advice) noexcept
{
    return ::madvise(reinterpret_cast<void*>(at), page_bytes, advice) == 0;
}

/// Has the page the flag that `clears` takes away and `sets` gives? Not for a mapping of one page, which is not split.
bool has_flag(const VmaQuery& vmas, const Vma& vma, uint64_t at, int clears, int sets) noexcept
{
    Vma now;
    if (!advise(at, clears))
        return false;
    const bool had = vmas.find(at, &now) && (now.start != vma.start || now.end != vma.end);
    if (had)
        (void)advise(at, sets);
    return had;
}

/// Locked pages cannot be made cold, which is only a hint for others. False: this kernel does not know.
bool tells_locked() noexcept
{
    static const bool tells = [] {
        void* const page = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            return false;
        (void)::munlock(page, page_bytes); // after mlockall
        const bool done = advise(reinterpret_cast<uint64_t>(page), MADV_COLD);
        (void)::munmap(page, page_bytes);
        return done;
    }();
    return tells;
}

bool is_locked(uint64_t at) noexcept
{
    return !advise(at, MADV_COLD) && errno == EINVAL;
}

Advice parse_flags(const char* flags) noexcept
{
    Advice advice;
    advice.locked = std::strstr(flags, " lo") != nullptr;
    advice.dont_fork = std::strstr(flags, " dc") != nullptr;
    advice.dont_dump = std::strstr(flags, " dd") != nullptr;
    advice.wipe_on_fork = std::strstr(flags, " wf") != nullptr;
    return advice;
}

/// From the line "VmFlags:" of the mapping that holds `at`.
Advice read_flags(uint64_t at) noexcept
{
    bool here = false;
    Advice advice;
    (void)visit_lines("/proc/self/smaps", [&](const char* line) {
        char* dash = nullptr;
        const uint64_t start = std::strtoull(line, &dash, 16);
        if (dash != line && *dash == '-') {
            here = start <= at && at < std::strtoull(dash + 1, nullptr, 16);
            return false;
        }
        const bool found = here && std::strncmp(line, "VmFlags:", 8) == 0;
        if (found)
            advice = parse_flags(line);
        return found;
    });
    return advice;
}

} // namespace

Advice advice_of(const VmaQuery& vmas, const Vma& vma, uint64_t at) noexcept
{
    if (vma.end - vma.start == page_bytes || !tells_locked())
        return read_flags(at);
    Advice advice;
    advice.locked = is_locked(at);
    advice.dont_fork = has_flag(vmas, vma, at, MADV_DOFORK, MADV_DONTFORK);
    advice.dont_dump = has_flag(vmas, vma, at, MADV_DODUMP, MADV_DONTDUMP);
    advice.wipe_on_fork = !vma.shared && has_flag(vmas, vma, at, MADV_KEEPONFORK, MADV_WIPEONFORK);
    return advice;
}

bool is_kept_from_dumps(const VmaQuery& vmas, const Vma& vma) noexcept
{
    return vmas.answers_at_once() && has_flag(vmas, vma, vma.start, MADV_DODUMP, MADV_DONTDUMP);
}

void repeat(const Advice& advice, uint64_t address, uint64_t length) noexcept
{
    void* const start = reinterpret_cast<void*>(address);
    if (advice.locked)
        (void)::mlock(start, length);
    if (advice.dont_fork)
        (void)::madvise(start, length, MADV_DONTFORK);
    if (advice.dont_dump)
        (void)::madvise(start, length, MADV_DONTDUMP);
}

} // namespace tofu::sim
