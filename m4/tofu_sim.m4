# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# TOFU_CONFIGURE_SIM: what tofu_sim needs: Linux, threads, process_vm_writev, memfd.
AC_DEFUN([TOFU_CONFIGURE_SIM], [
  AC_ARG_ENABLE([sim],
    [AS_HELP_STRING([--disable-sim], [do not build the simulated interconnect (libtofucom.so)])],
    [], [enable_sim=yes])
  AM_CONDITIONAL([ENABLE_SIM], [test "$enable_sim" = yes])
  AC_ARG_WITH([otf2],
    [AS_HELP_STRING([--without-otf2], [build tofu-sim without OTF2, one of the formats of its traces])],
    [], [with_otf2=yes])
  AS_IF([test "$enable_sim" = yes && test "$with_otf2" != no], [
    PKG_CHECK_MODULES([OTF2], [otf2],
      [AC_DEFINE([HAVE_OTF2], [1], [OTF2's library is there])],
      [AC_MSG_NOTICE([no OTF2: tofu-sim trace writes all formats but that (install libopen-trace-format2-dev)])])])
  AC_ARG_WITH([simgrid],
    [AS_HELP_STRING([--without-simgrid], [build tofu-sim without SimGrid, which its replay needs])],
    [], [with_simgrid=yes])
  AS_IF([test "$enable_sim" = yes && test "$with_simgrid" != no], [
    PKG_CHECK_MODULES([SIMGRID], [simgrid >= 3.32],
      [have_simgrid=yes],
      [AC_MSG_NOTICE([no SimGrid: tofu-sim replay only says so (install libsimgrid-dev)])])])
  AM_CONDITIONAL([HAVE_SIMGRID], [test "$have_simgrid" = yes])
])
