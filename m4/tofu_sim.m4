# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# TOFU_CONFIGURE_SIM: what tofu_sim needs: Linux, threads, process_vm_writev, memfd.
AC_DEFUN([TOFU_CONFIGURE_SIM], [
  AC_ARG_ENABLE([sim],
    [AS_HELP_STRING([--disable-sim], [do not build the simulated interconnect (libtofucom.so)])],
    [], [enable_sim=yes])
  AM_CONDITIONAL([ENABLE_SIM], [test "$enable_sim" = yes])
])
