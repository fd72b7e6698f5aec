// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See starving.h.
#include "lib/starving.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>

#define TOFU_EXPORTED __attribute__((visibility("default")))

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

std::atomic<std::uintptr_t> library_begin{0}, library_end{0};
std::atomic<bool> armed{false}; ///< allocations are counted
std::atomic<bool> stays{false}; ///< all fail from the chosen one on, until heal()
std::atomic<long> seen{0}, chosen{LONG_MAX};

bool fails(void* caller) noexcept
{
    const auto from = reinterpret_cast<std::uintptr_t>(caller);
    if (!armed || from < library_begin || from >= library_end)
        return false;
    const long n = ++seen;
    return stays ? n >= chosen : n == chosen;
}

void* throwing_new(std::size_t size, void* caller)
{
    if (fails(caller))
        throw std::bad_alloc();
    return __libc_malloc(size != 0 ? size : 1);
}

int note_if_library(dl_phdr_info* object, std::size_t, void* name)
{
    if (std::strstr(object->dlpi_name, static_cast<const char*>(name)) == nullptr)
        return 0;
    std::uintptr_t end = object->dlpi_addr;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_LOAD)
            end = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr + object->dlpi_phdr[i].p_memsz;
    library_begin = object->dlpi_addr;
    library_end = end;
    return 1;
}

} // namespace

extern "C" {
TOFU_EXPORTED void* malloc(std::size_t size) noexcept
{
    return fails(__builtin_return_address(0)) ? nullptr : __libc_malloc(size);
}
TOFU_EXPORTED void* calloc(std::size_t count, std::size_t size) noexcept
{
    return fails(__builtin_return_address(0)) ? nullptr : __libc_calloc(count, size);
}
TOFU_EXPORTED void* realloc(void* memory, std::size_t size) noexcept
{
    return fails(__builtin_return_address(0)) ? nullptr : __libc_realloc(memory, size);
}
TOFU_EXPORTED void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept
{
    return fails(__builtin_return_address(0)) ? nullptr : __libc_memalign(alignment, size);
}
TOFU_EXPORTED void* mmap(void* at, std::size_t size, int rights, int flags, int file, off_t offset) noexcept
{
    static const auto real = reinterpret_cast<decltype(&mmap)>(dlsym(RTLD_NEXT, "mmap"));
    if (!fails(__builtin_return_address(0)))
        return real(at, size, rights, flags, file, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}
TOFU_EXPORTED int pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*body)(void*),
                                 void* argument) noexcept
{
    static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    return fails(__builtin_return_address(0)) ? EAGAIN : real(thread, attr, body, argument);
}
}

TOFU_EXPORTED void* operator new(std::size_t size)
{
    return throwing_new(size, __builtin_return_address(0));
}
TOFU_EXPORTED void* operator new[](std::size_t size)
{
    return throwing_new(size, __builtin_return_address(0));
}
TOFU_EXPORTED void* operator new(std::size_t size, const std::nothrow_t&) noexcept
{
    return fails(__builtin_return_address(0)) ? nullptr : __libc_malloc(size != 0 ? size : 1);
}
TOFU_EXPORTED void* operator new[](std::size_t size, const std::nothrow_t&) noexcept
{
    return fails(__builtin_return_address(0)) ? nullptr : __libc_malloc(size != 0 ? size : 1);
}
TOFU_EXPORTED void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept
{
    return fails(__builtin_return_address(0)) ? nullptr : __libc_memalign(static_cast<std::size_t>(alignment), size);
}
TOFU_EXPORTED void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept
{
    return fails(__builtin_return_address(0)) ? nullptr : __libc_memalign(static_cast<std::size_t>(alignment), size);
}
TOFU_EXPORTED void operator delete(void* memory) noexcept
{
    __libc_free(memory);
}
TOFU_EXPORTED void operator delete[](void* memory) noexcept
{
    __libc_free(memory);
}
TOFU_EXPORTED void operator delete(void* memory, std::size_t) noexcept
{
    __libc_free(memory);
}
TOFU_EXPORTED void operator delete[](void* memory, std::size_t) noexcept
{
    __libc_free(memory);
}
TOFU_EXPORTED void operator delete(void* memory, std::align_val_t) noexcept
{
    __libc_free(memory);
}
TOFU_EXPORTED void operator delete[](void* memory, std::align_val_t) noexcept
{
    __libc_free(memory);
}
TOFU_EXPORTED void operator delete(void* memory, std::size_t, std::align_val_t) noexcept
{
    __libc_free(memory);
}
TOFU_EXPORTED void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept
{
    __libc_free(memory);
}

namespace tofu::test::starving {

bool find(const char* library) noexcept
{
    dl_iterate_phdr(note_if_library, const_cast<char*>(library));
    return library_begin != 0;
}

void begin(long number, bool lasting) noexcept
{
    seen = 0;
    chosen = number;
    stays = lasting;
    armed = true;
}

long end() noexcept
{
    armed = false;
    return seen;
}

void heal() noexcept
{
    chosen = LONG_MAX;
}

bool is_lasting() noexcept
{
    return stays;
}

} // namespace tofu::test::starving
