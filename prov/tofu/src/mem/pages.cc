// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See pages.h. What a chunk holds is written down on the heap: nothing else lies in registered pages, and a child of
// fork, which does not have them, can still ask.
#include "mem/pages.h"

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

#include "mem/numa.h"

namespace tofu {

namespace {
constexpr std::size_t least_unit = 65536;
constexpr std::size_t parts = 256; ///< granules of a shared chunk: of 256 bytes, a Tofu line, or more
constexpr std::size_t most_shared = parts / 2; ///< granules of a piece; more has a mapping of its own

std::size_t system_page() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
} // namespace

/// A mapping: shared by pieces, or one piece's alone, and then all of it is used.
struct PagePool::Chunk {
    Chunk* next;
    std::byte* base;
    std::size_t bytes;
    int numa_node; ///< of the thread it was mapped for; -1: any
    std::bitset<parts> used;

    /// The first of so many free granules in a row, or `parts`.
    [[nodiscard]] std::size_t room(std::size_t wanted) const noexcept
    {
        std::size_t free = 0;
        for (std::size_t i = 0; i < parts; i++) {
            free = used[i] ? 0 : free + 1;
            if (free == wanted)
                return i + 1 - wanted;
        }
        return parts;
    }
    void mark(std::size_t first, std::size_t count, bool value) noexcept
    {
        for (std::size_t i = first; i < first + count; i++)
            used[i] = value;
    }
};

PagePool& PagePool::of_process() noexcept
{
    static constinit PagePool pool; // without a destructor: objects may be closed while the program's are destroyed
    return pool;
}

void PagePool::begin() noexcept
{
    if (unit_ == 0)
        unit_ = std::max(page_ != 0 ? page_ : system_page(), least_unit);
    if (owner_ != getpid()) { // a child of fork: its parent's chunks are holes, or will be its own only in part
        owner_ = getpid();
        chunks_ = nullptr;
    }
}

std::size_t PagePool::granules(std::size_t bytes) const noexcept
{
    return (bytes + unit_ / parts - 1) / (unit_ / parts);
}

/// Aligned to the unit: the kernel aligns to its own pages alone.
std::byte* PagePool::map(std::size_t bytes) const noexcept
{
    const std::size_t slack = unit_ - std::min(unit_, system_page());
    if (bytes + slack < bytes)
        return nullptr;
    void* const all = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return nullptr;
    auto* const from = static_cast<std::byte*>(all);
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(from) & (unit_ - 1);
    if (before != 0)
        munmap(from, before);
    if (before != slack)
        munmap(from + before + bytes, slack - before);
    return from + before;
}

std::byte* PagePool::alloc(std::size_t bytes) noexcept
{
    std::lock_guard guard(mutex_);
    begin();
    if (bytes == 0 || bytes > SIZE_MAX - unit_)
        return nullptr;
    const std::size_t wanted = granules(bytes);
    const bool shares = wanted <= most_shared;
    const int numa_node = numa_node_of_thread();
    for (Chunk* chunk = chunks_; shares && chunk != nullptr; chunk = chunk->next)
        if (const std::size_t first = chunk->room(wanted); first != parts && chunk->numa_node == numa_node) {
            chunk->mark(first, wanted, true);
            return chunk->base + first * (unit_ / parts);
        }
    auto* const made = new (std::nothrow) Chunk{chunks_, nullptr, (bytes + unit_ - 1) & ~(unit_ - 1), numa_node, {}};
    if (made == nullptr)
        return nullptr;
    made->base = map(made->bytes);
    if (made->base == nullptr) {
        delete made;
        return nullptr;
    }
    place_memory(made->base, made->bytes);
    made->mark(0, shares ? wanted : parts, true);
    chunks_ = made;
    return made->base;
}

void PagePool::release(std::byte* data, std::size_t bytes) noexcept
{
    std::lock_guard guard(mutex_);
    begin();
    for (Chunk** at = &chunks_; *at != nullptr; at = &(*at)->next) {
        Chunk* const chunk = *at;
        if (data < chunk->base || data >= chunk->base + chunk->bytes)
            continue;
        if (const std::size_t count = granules(bytes); count <= most_shared)
            chunk->mark(static_cast<std::size_t>(data - chunk->base) / (unit_ / parts), count, false);
        else
            chunk->used.reset();
        if (chunk->used.none()) {
            munmap(chunk->base, chunk->bytes);
            *at = chunk->next;
            delete chunk;
        }
        return;
    }
    // Of the parent: its pages are not here, and what has their addresses by now is somebody else's.
}

} // namespace tofu
