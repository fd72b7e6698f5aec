/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * configure --enable-portable on a system newer than glibc 2.28: libpthread.so.0 (compiled with OLD_THREADS) and
 * libdl.so.2 as they were before 2.34, names and versions alone, to link against. The loader before glibc 2.30 wants a
 * name in the very library where the linker found it, and today's linker finds these in libc.so.6. The names are those
 * of old_system.c. Nothing calls what is here, and nothing loads it.
 */
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#define NAMED "GLIBC_2.12"
#define BOUND "GLIBC_2.3.4"
#else
#define FIRST "GLIBC_2.17"
#define NAMED "GLIBC_2.17"
#define BOUND "GLIBC_2.17"
#endif

#define OLD(name, version)                                                                                             \
    void tofu_old_##name(void);                                                                                        \
    void tofu_old_##name(void) {}                                                                                      \
    __asm__(".symver tofu_old_" #name "," #name "@@" version)

#ifdef OLD_THREADS
OLD(pthread_create, FIRST);
OLD(pthread_join, FIRST);
OLD(pthread_detach, FIRST);
OLD(pthread_mutex_trylock, FIRST);
OLD(pthread_once, FIRST);
OLD(pthread_key_create, FIRST);
OLD(__pthread_key_create, FIRST);
OLD(pthread_key_delete, FIRST);
OLD(pthread_getspecific, FIRST);
OLD(pthread_setspecific, FIRST);
OLD(pthread_setcancelstate, FIRST);
OLD(pthread_testcancel, FIRST);
OLD(pthread_sigmask, FIRST);
OLD(pthread_setaffinity_np, BOUND);
OLD(pthread_setname_np, NAMED);
#else
OLD(dlopen, FIRST);
OLD(dlsym, FIRST);
OLD(dlclose, FIRST);
OLD(dlerror, FIRST);
OLD(dladdr, FIRST);
#endif
