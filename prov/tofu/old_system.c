/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * configure --enable-portable on a system newer than glibc 2.28: what the provider, and the libstdc++ and libgcc inside
 * it, call of the C library is bound to versions that glibc 2.28 has as well. The linker sends each of these names to
 * its __wrap_ here (ld --wrap, configure.m4); tests/prov/whole/portable.sh finds what is missing. Nothing else calls
 * this.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <features.h>

#if __GLIBC_PREREQ(2, 29) /* else nothing is to be done */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#define NAMED "GLIBC_2.12"  /* pthread_setname_np */
#define BOUND "GLIBC_2.3.4" /* pthread_setaffinity_np */
#define STAT_VERSION 1
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#define NAMED "GLIBC_2.17"
#define BOUND "GLIBC_2.17"
#define STAT_VERSION 0
#else
#error "--enable-portable knows x86_64 and aarch64: build on the system itself without it"
#endif

/* old_NAME is NAME in the version that the C library has had from its beginning on this processor. */
#define OLD(type, name, version, ...)                                                                                  \
    extern type old_##name(__VA_ARGS__);                                                                               \
    __asm__(".symver old_" #name "," #name "@" version);                                                               \
    type __wrap_##name(__VA_ARGS__)

OLD(void*, dlopen, FIRST, const char* path, int mode)
{
    return old_dlopen(path, mode);
}
OLD(void*, dlsym, FIRST, void* handle, const char* name)
{
    return old_dlsym(handle, name);
}
OLD(int, dlclose, FIRST, void* handle)
{
    return old_dlclose(handle);
}
OLD(char*, dlerror, FIRST, void)
{
    return old_dlerror();
}
OLD(int, dladdr, FIRST, const void* address, Dl_info* info)
{
    return old_dladdr(address, info);
}

OLD(int, pthread_create, FIRST, pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
    void* argument)
{
    return old_pthread_create(thread, attributes, start, argument);
}
OLD(int, pthread_join, FIRST, pthread_t thread, void** result)
{
    return old_pthread_join(thread, result);
}
OLD(int, pthread_detach, FIRST, pthread_t thread)
{
    return old_pthread_detach(thread);
}
OLD(int, pthread_mutex_trylock, FIRST, pthread_mutex_t* mutex)
{
    return old_pthread_mutex_trylock(mutex);
}
OLD(int, pthread_once, FIRST, pthread_once_t* once, void (*call)(void))
{
    return old_pthread_once(once, call);
}
OLD(int, pthread_key_create, FIRST, pthread_key_t* key, void (*end)(void*))
{
    return old_pthread_key_create(key, end);
}
OLD(int, __pthread_key_create, FIRST, pthread_key_t* key, void (*end)(void*))
{
    return old___pthread_key_create(key, end);
}
OLD(int, pthread_key_delete, FIRST, pthread_key_t key)
{
    return old_pthread_key_delete(key);
}
OLD(void*, pthread_getspecific, FIRST, pthread_key_t key)
{
    return old_pthread_getspecific(key);
}
OLD(int, pthread_setspecific, FIRST, pthread_key_t key, const void* value)
{
    return old_pthread_setspecific(key, value);
}
OLD(int, pthread_setcancelstate, FIRST, int state, int* before)
{
    return old_pthread_setcancelstate(state, before);
}
OLD(void, pthread_testcancel, FIRST, void)
{
    old_pthread_testcancel();
}
OLD(int, pthread_sigmask, FIRST, int how, const sigset_t* set, sigset_t* before)
{
    return old_pthread_sigmask(how, set, before);
}
OLD(int, pthread_setaffinity_np, BOUND, pthread_t thread, size_t size, const cpu_set_t* cpus)
{
    return old_pthread_setaffinity_np(thread, size, cpus);
}
OLD(int, pthread_setname_np, NAMED, pthread_t thread, const char* name)
{
    return old_pthread_setname_np(thread, name);
}

/* These have had names of their own since 2.33. */
#define STAT(name, old, type)                                                                                          \
    extern int old_##name(int version, type which, struct stat* found);                                                \
    __asm__(".symver old_" #name "," old "@" FIRST);                                                                   \
    int __wrap_##name(type which, struct stat* found)                                                                  \
    {                                                                                                                  \
        return old_##name(STAT_VERSION, which, found);                                                                 \
    }
STAT(stat, "__xstat", const char*)
STAT(lstat, "__lxstat", const char*)
STAT(fstat, "__fxstat", int)

/* Since 2.30. The clock of a condition is CLOCK_REALTIME unless its attribute says other: so until then by that one. A
   clock that is set meanwhile makes this wait longer or shorter, as it does every program of that system. */
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* until)
{
    struct timespec now, here, end;
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &here) != 0)
        return pthread_cond_timedwait(condition, mutex, until);
    const int64_t second = 1000000000;
    int64_t rest = (until->tv_sec - now.tv_sec) * second + until->tv_nsec - now.tv_nsec;
    rest = rest < 0 ? 0 : rest;
    end.tv_sec = here.tv_sec + (here.tv_nsec + rest) / second;
    end.tv_nsec = (here.tv_nsec + rest) % second;
    return pthread_cond_timedwait(condition, mutex, &end);
}

/* libstdc++'s: atomic counters may do without locked instructions while this says so (2.32). */
char __libc_single_threaded = 0;

/* libgcc's: -1 has it walk the list of objects, as it did before 2.35. */
struct dl_find_object;
int _dl_find_object(void* address, struct dl_find_object* found)
{
    (void)address;
    (void)found;
    return -1;
}

/* libstdc++'s random_device (2.36). */
uint32_t __wrap_arc4random(void)
{
    uint32_t value = 0;
    (void)getentropy(&value, sizeof value);
    return value;
}

/* What C23 has these called when a program is compiled by a later compiler (2.38). */
#define C23(type, name, ...)                                                                                           \
    extern type old_##name(__VA_ARGS__) __asm__(#name);                                                                \
    type __wrap___isoc23_##name(__VA_ARGS__)
C23(long, strtol, const char* text, char** end, int base)
{
    return old_strtol(text, end, base);
}
C23(unsigned long, strtoul, const char* text, char** end, int base)
{
    return old_strtoul(text, end, base);
}
C23(long long, strtoll, const char* text, char** end, int base)
{
    return old_strtoll(text, end, base);
}
C23(unsigned long long, strtoull, const char* text, char** end, int base)
{
    return old_strtoull(text, end, base);
}
extern int old_vsscanf(const char* text, const char* format, va_list list) __asm__("__isoc99_vsscanf");
int __wrap___isoc23_sscanf(const char* text, const char* format, ...)
{
    va_list list;
    va_start(list, format);
    const int n = old_vsscanf(text, format, list);
    va_end(list);
    return n;
}
#else
typedef int tofu_is_on_an_old_system;
#endif
