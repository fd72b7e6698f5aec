// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See bounce_pool.h.
#include "mem/bounce_pool.h"

#include <algorithm>
#include <atomic>
#include <bitset>
#include <cstdio>
#include <cstring>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

#include "core/log.h"
#include "core/node_map.h"

namespace tofu {

// Of this process. Only for show: relaxed.
static constinit std::atomic<std::size_t> placed_bytes{0};
static constinit std::atomic<int> placed_on{-1}; ///< the last one
static constinit std::atomic<bool> refused{false};

static const node::Map::Group* group_of_thread() noexcept
{
    const node::Map* const map = node::Map::of_several_groups();
    return map != nullptr ? map->group_of(node::processors_of_thread()) : nullptr;
}

void place_memory(void* base, std::size_t bytes) noexcept
{
    const node::Map::Group* const group = group_of_thread();
    if (group == nullptr) {
        // Mappings that are used again keep what they were bound to.
        if (placed_bytes.load(std::memory_order_relaxed) != 0)
            node::Map::of_process()->prefer_none(base, bytes);
        return;
    }
    const node::Map& map = *node::Map::of_process();
    if (!map.is_here()) // another machine's, to look at: decided, and not done
        return placed_on.store(static_cast<int>(group->number), std::memory_order_relaxed);
    if (const int error = map.prefer(base, bytes, *group); error != 0) {
        if (!refused.exchange(true, std::memory_order_relaxed))
            TOFU_WARN(FI_LOG_CORE,
                      "memory cannot be bound to NUMA node %u (%s): it is placed at its first use; FI_TOFU_NUMA=off "
                      "avoids the attempt\n",
                      group->number, std::strerror(error));
        return;
    }
    placed_on.store(static_cast<int>(group->number), std::memory_order_relaxed);
    placed_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

int numa_node_of_thread() noexcept
{
    const node::Map::Group* const group = group_of_thread();
    return group != nullptr ? static_cast<int>(group->number) : -1;
}

void describe_placement(char* text, std::size_t size) noexcept
{
    char threads[32], memory[96], cpus[256];
    if (const int node = numa_node_of_thread(); node >= 0)
        std::snprintf(threads, sizeof threads, "NUMA node %d", node);
    else
        std::snprintf(threads, sizeof threads, "no single NUMA node");
    const int on = placed_on.load(std::memory_order_relaxed);
    if (const std::size_t bytes = placed_bytes.load(std::memory_order_relaxed); bytes != 0)
        std::snprintf(memory, sizeof memory, "%zu KiB bound to NUMA node %d", bytes / 1024, on);
    else
        std::snprintf(memory, sizeof memory, "placed at first use");
    node::write_list(node::processors_of_thread(), cpus, sizeof cpus);
    std::snprintf(text, size, "memory: %s; thread: %s, processors %s", memory, threads, cpus);
}

// What a chunk holds is written down on the heap: nothing else lies in registered pages, and a child of fork, which
// does not have them, can still ask.

constexpr std::size_t least_unit = 65536;
constexpr std::size_t parts = 256;             ///< granules of a shared chunk: of 256 bytes, a Tofu line, or more
constexpr std::size_t most_shared = parts / 2; ///< granules of a piece; more has a mapping of its own

static std::size_t system_page() noexcept
{
    return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

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
    // The parent's pages do not exist in this process, and their addresses may belong to other memory by now.
}

// Slabs of registered blocks.

BouncePool::~BouncePool()
{
    for (const Slab& slab : slabs_) {
        if (!slab.memory)
            continue;
        if (lock_ != nullptr)
            lock_->lock();
        vcq_.dereg(slab.stadd);
        if (lock_ != nullptr)
            lock_->unlock();
    }
}

/// The caller may hold a lock that comes after the VCQ's, so it does not wait for that without end.
bool BouncePool::register_slab(const OwnMemory& memory, utofu_stadd_t& stadd) noexcept
{
    constexpr unsigned most_tries = 10000;
    for (unsigned tries = 0; lock_ != nullptr && !lock_->try_lock(); tries++)
        if (tries == most_tries)
            return false;
    const bool done = vcq_.reg(memory.get(), memory.size(), false, stadd) == 0;
    if (lock_ != nullptr)
        lock_->unlock();
    return done;
}

bool BouncePool::make(unsigned kind) noexcept
{
    Slab& slab = slabs_[kind];
    if (slab.memory)
        return false; // made already: all in use
    OwnMemory memory(kinds_[kind].blocks * kinds_[kind].size);
    if (!memory || !slab.free.reserve(kinds_[kind].blocks) || !register_slab(memory, slab.stadd))
        return false;
    slab.memory = std::move(memory);
    for (unsigned i = kinds_[kind].blocks; i-- > 0;)
        slab.free.push_reserved(i);
    return true;
}

Bounce BouncePool::alloc(std::size_t size) noexcept
{
    for (unsigned kind = 0; kind < 2; kind++) {
        Slab& slab = slabs_[kind];
        if (size > kinds_[kind].size || (slab.free.empty() && !make(kind)))
            continue;
        const std::size_t offset = slab.free.back() * kinds_[kind].size;
        slab.free.pop_back();
        return {slab.memory.get() + offset, slab.stadd + offset};
    }
    return {};
}

void BouncePool::release(const Bounce& block) noexcept
{
    for (unsigned kind = 0; kind < 2; kind++) {
        Slab& slab = slabs_[kind];
        std::byte* const data = slab.memory.get();
        if (data == nullptr || block.data < data || block.data >= data + kinds_[kind].blocks * kinds_[kind].size)
            continue;
        slab.free.push_reserved(
            static_cast<std::uint32_t>((block.data - data) / static_cast<std::ptrdiff_t>(kinds_[kind].size)));
        return;
    }
}

} // namespace tofu
