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
])
