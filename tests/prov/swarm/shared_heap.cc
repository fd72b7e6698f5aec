// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See shared_heap.h. The forms of new that do not throw, which the provider uses, stay with malloc.
#include "shared_heap.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

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

void* allocate(std::size_t size, std::size_t alignment)
{
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
    if (!is_shared(at))
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
