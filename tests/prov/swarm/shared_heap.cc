// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See shared_heap.h. The forms of new that do not throw, which the provider uses, stay with malloc.
#include "shared_heap.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <new>

#include <malloc.h>
#include <sys/mman.h>

namespace {

constexpr std::size_t heap_size = std::size_t{16} << 30; // of address space; pages come when they are written
constexpr std::size_t first_free = 64;

/// The first bytes count how far the memory has been given away. Null: malloc.
std::atomic<std::size_t>* heap = nullptr;

bool is_shared(const void* at)
{
    return heap != nullptr && reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(heap) < heap_size;
}

// --- the program's own heap: each size has a list of free blocks, and a block has its size in front of it

constexpr std::size_t own_size = std::size_t{1} << 36; // of address space
constexpr std::size_t least = 32;                      ///< bytes of the smallest block; four sizes to a power of two
constexpr unsigned sizes = 4 * 32;

struct Free {
    Free* next;
};
char* own = nullptr; ///< null: there is none
std::size_t own_used = 0;
bool own_is_on = false;
Free* own_free[sizes] = {};

bool is_own(const void* at)
{
    return reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(own) < own_size && own != nullptr;
}

/// The number of the size that holds so many bytes, which is then the size.
unsigned size_of(std::size_t& bytes)
{
    if (bytes <= least) {
        bytes = least;
        return 0;
    }
    const auto power = static_cast<unsigned>(std::bit_width(bytes - 1)) - 3;    // a quarter of the power below
    const std::size_t steps = (bytes + (std::size_t{1} << power) - 1) >> power; // 5 to 8
    bytes = steps << power;
    return 4 * (power - 3) + static_cast<unsigned>(steps) - 4;
}

void* own_allocate(std::size_t size)
{
    std::size_t bytes = size + 16;
    const unsigned kind = size_of(bytes);
    char* made = nullptr;
    if (Free* const free = own_free[kind]; free != nullptr) {
        own_free[kind] = free->next;
        made = reinterpret_cast<char*>(free);
    } else {
        bytes = (bytes + 15) & ~std::size_t{15};
        if (own_used + bytes > own_size)
            std::abort();
        made = own + own_used;
        own_used += bytes;
    }
    *reinterpret_cast<std::uint64_t*>(made) = kind;
    return made + 16;
}

void own_release(void* at)
{
    char* const made = static_cast<char*>(at) - 16;
    const std::uint64_t kind = *reinterpret_cast<std::uint64_t*>(made);
    own_free[kind] = ::new (made) Free{own_free[kind]};
}

void* allocate(std::size_t size, std::size_t alignment)
{
    if (own_is_on && alignment <= alignof(std::max_align_t))
        return own_allocate(size);
    if (heap != nullptr) {
        const std::size_t room = size + alignment;
        const std::size_t at = heap->fetch_add((room + 15) & ~std::size_t{15}, std::memory_order_relaxed);
        if (at + room > heap_size)
            std::abort();
        const auto start = reinterpret_cast<std::uintptr_t>(heap) + at;
        return reinterpret_cast<void*>((start + alignment - 1) & ~(alignment - 1));
    }
    void* const made = alignment > alignof(std::max_align_t)
                           ? std::aligned_alloc(alignment, (size + alignment - 1) & ~(alignment - 1))
                           : std::malloc(size != 0 ? size : 1);
    if (made == nullptr)
        std::abort();
    return made;
}

void release(void* at)
{
    if (is_own(at))
        own_release(at);
    else if (!is_shared(at))
        std::free(at);
}

} // namespace

namespace swarm {

void share_heap()
{
    void* const at =
        mmap(nullptr, heap_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        std::abort();
    heap = new (at) std::atomic<std::size_t>(first_free);
}

void begin_own_heap()
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (own == nullptr) {
        void* const at =
            mmap(nullptr, own_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            std::abort();
        own = static_cast<char*>(at);
        // What the provider frees is soon allocated again.
        (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
        (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    }
    own_used = 0;
    std::fill(std::begin(own_free), std::end(own_free), nullptr);
    own_is_on = true;
#endif
}

void leave_own_heap()
{
    own_is_on = false;
}

} // namespace swarm

void* operator new(std::size_t size)
{
    return allocate(size, 16);
}
void* operator new[](std::size_t size)
{
    return allocate(size, 16);
}
void* operator new(std::size_t size, std::align_val_t alignment)
{
    return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment)
{
    return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept
{
    return std::malloc(size != 0 ? size : 1);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept
{
    return std::malloc(size != 0 ? size : 1);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept
{
    const auto bytes = static_cast<std::size_t>(alignment);
    return std::aligned_alloc(bytes, (size + bytes - 1) & ~(bytes - 1));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept
{
    const auto bytes = static_cast<std::size_t>(alignment);
    return std::aligned_alloc(bytes, (size + bytes - 1) & ~(bytes - 1));
}
void operator delete(void* at) noexcept
{
    release(at);
}
void operator delete[](void* at) noexcept
{
    release(at);
}
void operator delete(void* at, std::size_t) noexcept
{
    release(at);
}
void operator delete[](void* at, std::size_t) noexcept
{
    release(at);
}
void operator delete(void* at, std::align_val_t) noexcept
{
    release(at);
}
void operator delete[](void* at, std::align_val_t) noexcept
{
    release(at);
}
void operator delete(void* at, std::size_t, std::align_val_t) noexcept
{
    release(at);
}
void operator delete[](void* at, std::size_t, std::align_val_t) noexcept
{
    release(at);
}
