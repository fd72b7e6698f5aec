#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# MPI_Comm_spawn over the simulator without TOFU_SIM_JOB: what it starts is of the job of the program that called it.
# Called by: make check. Calls: tools/mpi, fabtests/mpi/mpi_oracle.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
. "$top/tests/lib/expect"
oracle=$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_oracle
said=$(mktemp)
trap 'rm -f "$said"' EXIT
unset TOFU_SIM_JOB

for ranks in 1 2; do
    status=0
    run_mpi 100 $ranks "$oracle" spawn >"$said" 2>&1 || status=$?
    expect "$ranks ranks spawn $ranks: status" 0 $status
    expect "$ranks ranks spawn $ranks: both worlds" 2 "$(grep -c ' 0 failed: PASSED' "$said")"
    [ $failures = 0 ] || tail -n 20 "$said"
done
exit $((failures != 0))
