# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What every part of the tree needs from the tool chain.

# TOFU_DEFAULT_FLAGS: flags where the user gives none, before Autoconf gives -g -O2. Of debug symbols those that a
# backtrace needs (-g1): those of variables and types take a third of the compiler's time. Tests run as fast at -O1.
AC_DEFUN([TOFU_DEFAULT_FLAGS], [
  AC_ARG_VAR([TEST_CXXFLAGS], [C++ compiler flags of tests, in place of CXXFLAGS])
  AS_IF([test "${CXXFLAGS+set}" != set], [
    CXXFLAGS="-g1 -O2"
    : ${TEST_CXXFLAGS="-g1 -O1"}])
  : ${TEST_CXXFLAGS="$CXXFLAGS"} ${CFLAGS="-g1 -O2"}
])

# TOFU_CXX20: the compiler must speak C++20; add the flag that makes it.
AC_DEFUN([TOFU_CXX20], [
  AC_CACHE_CHECK([for the C++20 flag of $CXX], [tofu_cv_cxx20], [
    tofu_cv_cxx20=no
    tofu_save_CXXFLAGS=$CXXFLAGS
    for flag in "-std=gnu++20" "-std=gnu++2a"; do
      CXXFLAGS="$tofu_save_CXXFLAGS $flag"
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <atomic>
        #include <concepts>]], [[long word = 0; std::atomic_ref<long> ref(word); ref.fetch_add(1);]])],
        [tofu_cv_cxx20=$flag; break])
    done
    CXXFLAGS=$tofu_save_CXXFLAGS])
  AS_IF([test "$tofu_cv_cxx20" = no],
    [AC_MSG_ERROR([$CXX does not compile C++20 (std::atomic_ref): use g++ 12 or clang++ 14 or later])])
  CXX="$CXX $tofu_cv_cxx20"
])

# TOFU_WARNINGS: AM_CXXFLAGS for all our targets.
AC_DEFUN([TOFU_WARNINGS], [
  TOFU_CXXFLAGS="-Wall -Wextra -fvisibility=hidden -fvisibility-inlines-hidden"
  AC_SUBST([TOFU_CXXFLAGS])
])

# TOFU_HWLOC: provider, simulator tools and benchmarks learn from hwloc how the node is made. HWLOC_CFLAGS and HWLOC_LIBS
# can be given.
AC_DEFUN([TOFU_HWLOC], [
  PKG_CHECK_MODULES([HWLOC], [hwloc >= 2.1 hwloc < 3], [],
    [AC_MSG_ERROR([no hwloc 2 (2.1 or later): install libhwloc-dev (Debian), hwloc-devel (RHEL), or set PKG_CONFIG_PATH])])
])

# TOFU_GTEST: the unit tests want GoogleTest; without it `make check` runs the rest and says so.
AC_DEFUN([TOFU_GTEST], [
  PKG_CHECK_MODULES([GTEST], [gtest_main], [tofu_have_gtest=yes],
    [tofu_have_gtest=no
     AC_MSG_WARN([no GoogleTest: make check leaves out the unit tests (install libgtest-dev)])])
  AM_CONDITIONAL([HAVE_GTEST], [test "$tofu_have_gtest" = yes])
])

# TOFU_RAPIDCHECK: the generator of random programs (docs/testing.md) wants RapidCheck, which has no pkg-config file;
# without it `make check` repeats known programs only.
AC_DEFUN([TOFU_RAPIDCHECK], [
  AC_CACHE_CHECK([for RapidCheck], [tofu_cv_rapidcheck], [
    tofu_save_LIBS=$LIBS
    LIBS="-lrapidcheck $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <rapidcheck.h>]],
        [[return rc::gen::inRange(0, 2)(rc::Random(1), 1).value();]])],
      [tofu_cv_rapidcheck=yes], [tofu_cv_rapidcheck=no])
    LIBS=$tofu_save_LIBS])
  AS_IF([test "$tofu_cv_rapidcheck" = no],
    [AC_MSG_WARN([no RapidCheck: make check makes no random programs (install librapidcheck-dev)])])
  AM_CONDITIONAL([HAVE_RAPIDCHECK], [test "$tofu_cv_rapidcheck" = yes])
])

# TOFU_MPI: an MPI library for the programs in fabtests/mpi and for mpi/, optional. MPI_CFLAGS and MPI_LIBS can be
# given; else Open MPI's or MPICH's pkg-config file, else what the mpicc wrapper says.
AC_DEFUN([TOFU_MPI], [
  AC_ARG_WITH([mpi],
    [AS_HELP_STRING([--without-mpi], [do not build the MPI programs and libtofu-mpi.so])],
    [], [with_mpi=yes])
  tofu_have_mpi=no
  AS_IF([test "$with_mpi" != no], [
    PKG_CHECK_MODULES([MPI], [ompi-c], [tofu_have_mpi=yes],
      [PKG_CHECK_MODULES([MPI], [mpich], [tofu_have_mpi=yes], [
        AC_CHECK_PROGS([MPICC], [mpicc])
        AS_IF([test -n "$MPICC" && $MPICC --showme:compile >/dev/null 2>&1],
          [MPI_CFLAGS=`$MPICC --showme:compile`
           MPI_LIBS=`$MPICC --showme:link`
           tofu_have_mpi=yes],
          [AC_MSG_WARN([no MPI: the programs in fabtests/mpi are left out (install libopenmpi-dev)])])])])])
  AC_SUBST([tofu_have_mpi])
  AM_CONDITIONAL([HAVE_MPI], [test "$tofu_have_mpi" = yes])
])
