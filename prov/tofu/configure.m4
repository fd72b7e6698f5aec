# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# TOFU_CONFIGURE_PROV: what the provider needs: libfabric's headers, a uTofu header.
AC_DEFUN([TOFU_CONFIGURE_PROV], [
  AC_ARG_WITH([libfabric],
    [AS_HELP_STRING([--with-libfabric=DIR], [libfabric installation to build against (default: pkg-config, then the system)])],
    [], [with_libfabric=yes])
  AS_CASE([$with_libfabric],
    [yes], [PKG_CHECK_MODULES([LIBFABRIC], [libfabric >= 1.17], [],
              [LIBFABRIC_CFLAGS=""; LIBFABRIC_LIBS="-lfabric"])],
    [no],  [AC_MSG_ERROR([the provider needs libfabric: give its place by --with-libfabric=DIR])],
    [AS_IF([test -f "$with_libfabric/include/rdma/providers/fi_prov.h"], [],
       [AC_MSG_ERROR([no include/rdma/providers/fi_prov.h below $with_libfabric])])
     LIBFABRIC_CFLAGS="-I$with_libfabric/include"
     LIBFABRIC_LIBS=
     for tofu_lib in "$with_libfabric"/lib64 "$with_libfabric"/lib "$with_libfabric"/lib/*-linux-gnu*; do
       AS_IF([test -z "$LIBFABRIC_LIBS" && test -e "$tofu_lib/libfabric.so"],
         [LIBFABRIC_LIBS="-L$tofu_lib -lfabric"])
     done
     AS_IF([test -n "$LIBFABRIC_LIBS"], [], [AC_MSG_ERROR([no libfabric.so below $with_libfabric])])])
  AC_SUBST([LIBFABRIC_CFLAGS])
  AC_SUBST([LIBFABRIC_LIBS])
  tofu_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $LIBFABRIC_CFLAGS"
  AC_CHECK_HEADER([rdma/providers/fi_prov.h], [],
    [AC_MSG_ERROR([no rdma/providers/fi_prov.h: install libfabric-dev (1.17 or later) or use --with-libfabric=DIR])])
  CPPFLAGS=$tofu_save_CPPFLAGS

  AC_ARG_WITH([utofu],
    [AS_HELP_STRING([--with-utofu=DIR], [a real uTofu installation: compile against its utofu.h instead of ours])],
    [], [with_utofu=no])
  AS_IF([test "$with_utofu" != no],
    [AS_IF([test -f "$with_utofu/include/utofu.h"], [],
       [AC_MSG_ERROR([no include/utofu.h below $with_utofu])])
     UTOFU_CFLAGS="-I$with_utofu/include"],
    [UTOFU_CFLAGS='-I$(top_srcdir)/include'])
  AC_SUBST([UTOFU_CFLAGS])

  # A provider for systems older than this one. What libtool links as C++ names libstdc++.so itself, so this is linked
  # as C, with the archive. prov/tofu/old_system.c is for what the C library has renewed since 2.28. The suite links one
  # always (tests/prov/whole/portable.sh).
  AC_ARG_ENABLE([portable],
    [AS_HELP_STRING([--enable-portable], [a provider that wants no newer system than glibc 2.28, and no libstdc++.so])],
    [], [enable_portable=no])
  tofu_libstdcxx=`$CXX -print-file-name=libstdc++.a`
  AS_IF([test -f "$tofu_libstdcxx"], [tofu_can_be_portable=yes],
    [tofu_can_be_portable=no
     AS_IF([test "$enable_portable" != no],
       [AC_MSG_ERROR([--enable-portable: $CXX has no libstdc++.a: install it, or do without the option])])])
  PORTABLE_LDFLAGS="-Wc,-static-libgcc -Wl,$tofu_libstdcxx,-lm"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <features.h>]], [[
      #if __GLIBC_PREREQ(2, 29)
      #error newer
      #endif]])], [],
    [# Before 2.34 they were in libraries of their own, where the loader before 2.30 wants to find them again.
     OLD_LIBRARIES="prov/tofu/old/libpthread.so.0 prov/tofu/old/libdl.so.2"
     PORTABLE_LDFLAGS="$PORTABLE_LDFLAGS -Wl,--no-as-needed,`echo $OLD_LIBRARIES | tr ' ' ,`,--as-needed"
     for tofu_name in dlopen dlsym dlclose dlerror dladdr pthread_create pthread_join pthread_detach \
         pthread_mutex_trylock pthread_once pthread_key_create __pthread_key_create pthread_key_delete \
         pthread_getspecific pthread_setspecific pthread_setcancelstate pthread_testcancel pthread_sigmask \
         pthread_setaffinity_np pthread_setname_np pthread_cond_clockwait \
         stat lstat fstat arc4random __isoc23_strtol __isoc23_strtoul __isoc23_strtoll __isoc23_strtoull __isoc23_sscanf; do
       PORTABLE_LDFLAGS="$PORTABLE_LDFLAGS -Wl,--wrap=$tofu_name"
     done])
  TOFU_MODULE_TAG=CXX
  AS_IF([test "$enable_portable" != no],
    [TOFU_MODULE_TAG=CC
     TOFU_MODULE_LDFLAGS=$PORTABLE_LDFLAGS
     TOFU_PROGRAM_LDFLAGS="-static-libstdc++ -static-libgcc"])
  AC_SUBST([enable_portable])
  AC_SUBST([OLD_LIBRARIES])
  AC_SUBST([PORTABLE_LDFLAGS])
  AC_SUBST([TOFU_MODULE_TAG])
  AC_SUBST([TOFU_MODULE_LDFLAGS])
  AC_SUBST([TOFU_PROGRAM_LDFLAGS])
  AM_CONDITIONAL([PORTABLE], [test "$enable_portable" != no])
  AM_CONDITIONAL([CAN_BE_PORTABLE], [test "$tofu_can_be_portable" = yes])
])
