// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See registration_cache.h.
#include "memory/registration_cache.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>

#include <sys/mman.h>

#include "provider/log.h"
#include "provider/param.h"

namespace tofu {

namespace {

/// A use of the cache costs a system call: 0.5 us for 16 pages. What costs not much more is not worth a cache.
constexpr long cheap_ns = 1500;

long nanoseconds() noexcept
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/// The best of a few registrations of 64 KiB, given back at once.
long cost_of_registration(vcq::Vcq& vcq) noexcept
{
    constexpr std::size_t size = 65536;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return 0;
    long best = 1000000000;
    for (int i = 0; i < 8; i++) {
        const long start = nanoseconds();
        utofu_stadd_t stadd = 0;
        if (vcq.reg(memory, size, false, stadd) != 0)
            break;
        vcq.dereg(stadd);
        best = std::min(best, nanoseconds() - start);
    }
    munmap(memory, size);
    return best;
}

} // namespace

std::unique_ptr<RegistrationCache> RegistrationCache::make(vcq::Vcq& vcq) noexcept
{
    const char* asked = param_string("mr_cache", "auto");
    if (std::strcmp(asked, "0") == 0 || std::strcmp(asked, "no") == 0 || std::strcmp(asked, "off") == 0)
        return nullptr;
    if (std::strcmp(asked, "auto") == 0 && cost_of_registration(vcq) < cheap_ns)
        return nullptr;
    MemoryWatch* watch = MemoryWatch::open();
    if (watch == nullptr) {
        TOFU_INFO(FI_LOG_MR, "no registration cache: userfaultfd with write protection is not available\n");
        return nullptr;
    }
    std::unique_ptr<RegistrationCache> cache(new (std::nothrow) RegistrationCache(vcq, *watch));
    if (cache == nullptr)
        MemoryWatch::close();
    return cache;
}

RegistrationCache::~RegistrationCache()
{
    for (Entry& entry : entries_)
        if (entry.ticket)
            drop(entry);
    MemoryWatch::close();
}

unsigned RegistrationCache::acquire(std::uintptr_t address, std::size_t length, bool read_only,
                                    utofu_stadd_t& stadd) noexcept
{
    const std::uintptr_t end = address + length;
    for (unsigned i = 0; i < entry_count; i++) {
        Entry& entry = entries_[i];
        if (end <= entry.begin || address >= entry.end)
            continue;
        // Also those that only overlap: what is registered inside a registration shares its STADD (guide 3.6.1.1).
        if (!watch_.valid(entry.ticket)) [[unlikely]] {
            outdated(entry);
            continue;
        }
        if (address < entry.begin || end > entry.end || (entry.read_only && !read_only))
            continue;
        entry.users++;
        entry.used = ++clock_;
        counts_.hits++;
        stadd = entry.stadd + (address - entry.begin);
        return i;
    }
    if (!worth_keeping(address, length))
        return none;
    const unsigned number = keep(address, length, read_only);
    if (number != none)
        stadd = entries_[number].stadd;
    return number;
}

/// Other pages are there now. What still uses the old ones goes on with them.
[[gnu::noinline]] void RegistrationCache::outdated(Entry& entry) noexcept
{
    counts_.stale++;
    kept_in_vain(entry.begin, entry.end - entry.begin);
    entry.end = 0;
    if (entry.users == 0)
        drop(entry);
}

void RegistrationCache::release(unsigned number) noexcept
{
    Entry& entry = entries_[number];
    if (--entry.users == 0 && entry.end == 0)
        drop(entry);
}

bool RegistrationCache::trim() noexcept
{
    bool any = false;
    for (Entry& entry : entries_)
        if (entry.ticket && entry.users == 0) {
            drop(entry);
            any = true;
        }
    return any;
}

RegistrationCache::Seen& RegistrationCache::seen(std::uintptr_t begin, std::size_t length) noexcept
{
    Seen& s = seen_[((begin >> 6) ^ (begin >> 13) ^ (begin >> 20) ^ length) % seen_count];
    if (s.begin != begin || s.length != length)
        s = {begin, length, 0, 0};
    return s;
}

bool RegistrationCache::worth_keeping(std::uintptr_t begin, std::size_t length) noexcept
{
    Seen& s = seen(begin, length);
    if (++s.uses < uses_to_keep << s.doublings)
        return false;
    s.uses = 0;
    return true;
}

void RegistrationCache::kept_in_vain(std::uintptr_t begin, std::size_t length) noexcept
{
    if (!watch_.settled())
        return;
    Seen& s = seen(begin, length);
    s.doublings = static_cast<std::uint8_t>(std::min(s.doublings + 1, 8));
}

/// Watched first, registered then: no change in between goes unseen.
unsigned RegistrationCache::keep(std::uintptr_t begin, std::size_t length, bool read_only) noexcept
{
    const unsigned number = free_entry();
    if (number == none)
        return none;
    const WatchTicket ticket = watch_.watch(begin, begin + length);
    utofu_stadd_t stadd = 0;
    if (!ticket || vcq_.reg(reinterpret_cast<const void*>(begin), length, read_only, stadd) != 0) {
        watch_.unwatch(ticket);
        kept_in_vain(begin, length);
        return none;
    }
    entries_[number] = {.begin = begin,
                        .end = begin + length,
                        .stadd = stadd,
                        .ticket = ticket,
                        .users = 1,
                        .used = ++clock_,
                        .read_only = read_only};
    counts_.kept++;
    return number;
}

unsigned RegistrationCache::free_entry() noexcept
{
    unsigned oldest = none;
    for (unsigned i = 0; i < entry_count; i++) {
        if (!entries_[i].ticket)
            return i;
        if (entries_[i].users == 0 &&
            (oldest == none || clock_ - entries_[i].used > clock_ - entries_[oldest].used))
            oldest = i;
    }
    if (oldest != none)
        drop(entries_[oldest]);
    return oldest;
}

/// The registration ends before the watch does: at no time is one kept that nobody watches.
void RegistrationCache::drop(Entry& entry) noexcept
{
    vcq_.dereg(entry.stadd);
    watch_.unwatch(entry.ticket);
    entry = Entry{};
}

} // namespace tofu
