#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The demo of the README with 4 ranks, in the job that the launcher names.
# Called by: make check. Calls: tools/mpi, fabtests/mpi/mpi_demo.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
unset TOFU_SIM_JOB # Open MPI's own name for the job must do
TOFU_SIM_SHAPE=1x1x1 run_mpi 120 4 "$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_demo"
