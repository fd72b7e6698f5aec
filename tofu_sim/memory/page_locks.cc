// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Keeps registered pages from being swapped out, where UTOFU_SWAP_PROTECT asks for it (guide 4.3.2.5). Under the lock
// of memory/registry. Uses: mlock, munlock, /proc/self/status.
#include "memory/page_locks.h"

#include "job/allocate.h"
#include "job/descriptors.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

/// What the process has locked in all; the kernel does not report it for a page.
uint64_t locked_bytes() noexcept
{
    const BriefFile file("/proc/self/status", O_RDONLY);
    char text[4096] = {};
    if (!file.is_open() || ::read(file.get(), text, sizeof text - 1) <= 0)
        return 0;
    const char* const line = std::strstr(text, "\nVmLck:");
    return line == nullptr ? 0 : uint64_t{std::strtoull(line + 7, nullptr, 10)} << 10;
}

/// True if all of it was locked by this call. Beyond the limit it stays as it is, as the guide says.
bool lock(uint64_t start, uint64_t end) noexcept
{
    const uint64_t before = locked_bytes();
    return ::mlock(reinterpret_cast<const void*>(start), end - start) == 0 && locked_bytes() - before == end - start;
}

} // namespace

void PageLocks::split(uint64_t at)
{
    auto run = runs_.upper_bound(at);
    if (run == runs_.begin() || (--run)->first == at || run->second.end <= at)
        return;
    const Run behind = run->second;
    run->second.end = at;
    runs_.emplace(at, behind);
}

/// All of [start, end) is in runs of its own, new ones with a count of 0.
void PageLocks::enter(uint64_t start, uint64_t end)
{
    split(start);
    split(end);
    auto next = runs_.lower_bound(start);
    for (uint64_t at = start; at < end;) {
        if (next == runs_.end() || next->first != at) {
            const uint64_t stop = next == runs_.end() ? end : std::min(end, next->first);
            next = runs_.emplace_hint(next, at, Run{stop, 0, false});
        }
        at = next->second.end;
        ++next;
    }
}

bool PageLocks::add(uint64_t start, uint64_t end) noexcept
{
    const bool entered = or_without_memory(false, [&] { return enter(start, end), true; });
    for (auto run = runs_.lower_bound(start); run != runs_.end() && run->first < end;) {
        if (!entered && run->second.count == 0) {
            run = runs_.erase(run);
            continue;
        }
        if (entered && run->second.count++ == 0)
            run->second.ours = lock(run->first, run->second.end);
        ++run;
    }
    return entered;
}

/// The bounds are those of an add(), which has split the runs there.
void PageLocks::remove(uint64_t start, uint64_t end) noexcept
{
    for (auto run = runs_.lower_bound(start); run != runs_.end() && run->first < end;) {
        if (--run->second.count != 0) {
            ++run;
            continue;
        }
        if (run->second.ours)
            (void)::munlock(reinterpret_cast<const void*>(run->first), run->second.end - run->first);
        run = runs_.erase(run);
    }
}

} // namespace tofu::sim
