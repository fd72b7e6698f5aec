#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# MPI's point-to-point modes, datatypes, collectives, communicators and windows over the provider.
# Called by: make check. Calls: tools/mpi, fabtests/mpi/mpi_conformance.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
program=$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_conformance
TOFU_MPIRUN_FLAGS=$(mpi_signed_accumulate) TOFU_SIM_SHAPE=1x1x2 run_mpi 240 4 "$program"
