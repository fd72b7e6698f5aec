// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See reg_cache.h.
#include "mem/reg_cache.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/log.h"
#include "core/params.h"

namespace tofu {

namespace {

/// One of libfabric's own parameters, or `otherwise`.
std::size_t core_size(const char* name, std::size_t otherwise) noexcept
{
    std::size_t value = 0;
    return fi_param_get_size_t(nullptr, name, &value) == 0 ? value : otherwise;
}

/// FI_MR_CACHE_MONITOR: may the C library's functions be hooked?
bool hooks_allowed() noexcept
{
    char* monitor = nullptr;
    if (fi_param_get_str(nullptr, "mr_cache_monitor", &monitor) != 0 || monitor == nullptr || *monitor == '\0' ||
        std::strcmp(monitor, "default") == 0 || std::strcmp(monitor, "memhooks") == 0)
        return true;
    if (std::strcmp(monitor, "disabled") != 0)
        TOFU_WARN(FI_LOG_MR,
                  "registration cache: off, since FI_MR_CACHE_MONITOR=%s is not supported: use memhooks or disabled\n",
                  monitor);
    return false;
}

/// What the environment wants; none of anything: no cache.
RegistrationCache::Limits wanted() noexcept
{
    RegistrationCache::Limits limits;
    limits.count = std::min<std::size_t>(core_size("mr_cache_max_count", limits.count), MemoryHooks::span_count);
    limits.bytes = core_size("mr_cache_max_size", limits.bytes);
    if (param_off("mr_cache") || limits.count == 0 || limits.bytes == 0 || !hooks_allowed())
        return {0, 0};
    return limits;
}

} // namespace

void RegistrationCache::prepare() noexcept
{
    if (wanted().count != 0)
        (void)MemoryHooks::get();
}

std::unique_ptr<RegistrationCache> RegistrationCache::make(vcq::Vcq& vcq) noexcept
{
    const Limits limits = wanted();
    MemoryHooks* const hooks = limits.count != 0 ? MemoryHooks::get() : nullptr;
    return hooks != nullptr ? make(vcq, *hooks, limits) : nullptr;
}

std::unique_ptr<RegistrationCache> RegistrationCache::make(vcq::Vcq& vcq, MemoryHooks& hooks, Limits limits) noexcept
{
    std::unique_ptr<Entry[]> entries(new (std::nothrow) Entry[limits.count]);
    if (entries == nullptr)
        return nullptr;
    return std::unique_ptr<RegistrationCache>(new (std::nothrow)
                                                  RegistrationCache(vcq, hooks, limits, std::move(entries)));
}

RegistrationCache::~RegistrationCache()
{
    for (unsigned i = 0; i < used_; i++)
        if (entries_[i].ticket)
            drop(entries_[i]);
}

unsigned RegistrationCache::acquire(std::uintptr_t address, std::size_t length, bool read_only,
                                    utofu_stadd_t& stadd) noexcept
{
    const std::uintptr_t end = address + length;
    for (unsigned i = 0; i < used_; i++) {
        Entry& entry = entries_[i];
        const std::uintptr_t entry_end = entry.begin + entry.length;
        if (end <= entry.begin || address >= entry_end)
            continue;
        // Also those that only overlap: what is registered inside a registration shares its STADD (guide 3.6), and so
        // its pages, as long as a transfer from another part holds it. A file that has changed need not have lost any.
        if (entry.dead || !hooks_.valid(entry.ticket)) [[unlikely]] {
            if (!entry.dead)
                outdated(entry);
            if (entry.dead && !hooks_.mapped(entry.ticket))
                return busy;
            continue;
        }
        if (address < entry.begin || end > entry_end || (entry.read_only && !read_only))
            continue;
        entry.users++;
        entry.used = ++clock_;
        counts_.hits++;
        stadd = entry.stadd + (address - entry.begin);
        return i;
    }
    Seen& s = seen(address, length);
    s.is_written |= !read_only;
    if (!worth_keeping(s))
        return none;
    const unsigned number = keep(address, length, !s.is_written);
    if (number != none)
        stadd = entries_[number].stadd;
    return number;
}

/// The pages have been replaced. Transfers under way continue with the old ones.
[[gnu::noinline]] void RegistrationCache::outdated(Entry& entry) noexcept
{
    counts_.stale++;
    count_unused(seen(entry.begin, entry.length));
    entry.dead = entry.users != 0;
    if (!entry.dead)
        drop(entry);
}

void RegistrationCache::release(unsigned number) noexcept
{
    Entry& entry = entries_[number];
    if (--entry.users == 0 && entry.dead)
        drop(entry);
}

bool RegistrationCache::trim() noexcept
{
    bool any = false;
    for (unsigned i = 0; i < used_; i++)
        if (entries_[i].ticket && entries_[i].users == 0) {
            drop(entries_[i]);
            any = true;
        }
    return any;
}

RegistrationCache::Seen& RegistrationCache::seen(std::uintptr_t begin, std::size_t length) noexcept
{
    Seen& s = seen_[((begin >> 6) ^ (begin >> 13) ^ (begin >> 20) ^ length) % seen_count];
    if (s.begin != begin || s.length != length)
        s = {begin, length};
    return s;
}

bool RegistrationCache::worth_keeping(Seen& s) noexcept
{
    if (++s.uses < uses_to_keep << s.doublings)
        return false;
    s.uses = 0;
    return true;
}

void RegistrationCache::count_unused(Seen& s, int most) noexcept
{
    if (s.doublings < most)
        s.doublings++;
}

/// Pages that the program has released stay pinned until their registration ends, and so does the file that they are
/// of.
void RegistrationCache::drop_replaced() noexcept
{
    for (unsigned i = 0; i < used_; i++)
        if (entries_[i].ticket && entries_[i].users == 0 && !hooks_.mapped(entries_[i].ticket))
            outdated(entries_[i]);
}

/// Watched first, registered then: no change in between goes unseen.
unsigned RegistrationCache::keep(std::uintptr_t begin, std::size_t length, bool read_only) noexcept
{
    drop_replaced();
    const unsigned number = free_entry(length);
    if (number == none)
        return none;
    const WatchTicket ticket = hooks_.watch(begin, begin + length, vcq_.backend().functions().moved);
    utofu_stadd_t stadd = 0;
    if (!ticket || vcq_.reg(reinterpret_cast<const void*>(begin), length, read_only, stadd) != 0) {
        hooks_.unwatch(ticket);
        // A temporary failure is retried soon, and a permanent one at growing intervals.
        Seen& s = seen(begin, length);
        count_unused(s, ticket.later ? most_doublings / 2 : most_doublings);
        s.is_written = false; // it may be read-only by now
        return none;
    }
    entries_[number] = {.begin = begin,
                        .length = length,
                        .stadd = stadd,
                        .ticket = ticket,
                        .users = 1,
                        .used = ++clock_,
                        .read_only = read_only};
    bytes_ += length;
    counts_.kept++;
    return number;
}

/// Room for one more of `length` bytes, by removal of the least recently used.
unsigned RegistrationCache::free_entry(std::size_t length) noexcept
{
    if (length > limits_.bytes)
        return none;
    for (;;) {
        unsigned oldest = none;
        unsigned vacant = none;
        for (unsigned i = 0; i < used_; i++)
            if (!entries_[i].ticket)
                vacant = i;
            else if (entries_[i].users == 0 &&
                     (oldest == none || clock_ - entries_[i].used > clock_ - entries_[oldest].used))
                oldest = i;
        if (vacant == none && used_ < limits_.count)
            vacant = used_;
        if (vacant != none && length <= limits_.bytes - bytes_) {
            used_ = std::max(used_, vacant + 1);
            return vacant;
        }
        if (oldest == none)
            return none;
        drop(entries_[oldest]);
    }
}

/// The registration ends before the watch does: no registration is kept without a watch.
void RegistrationCache::drop(Entry& entry) noexcept
{
    vcq_.dereg(entry.stadd);
    hooks_.unwatch(entry.ticket);
    bytes_ -= entry.length;
    entry = Entry{};
}

} // namespace tofu
