#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# MPI windows by each way Open MPI has over us: as messages (osc pt2pt, up to Open MPI 4), and by remote reads,
# writes and atomics of the provider (osc rdma over btl ofi), beside a second endpoint for messages.
# Called by: make check. Calls: tools/mpi, fabtests/mpi/mpi_conformance.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
program=$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_conformance
status=0

# Without win_accumulate: Open MPI 4.1's btl ofi itself aborts at reductions other than sums, and 5.0's gets signed
# ones wrong (tools/mpi; mpi_conformance.sh has it there).
parts="win_fence win_lock win_pscw win_fetch_and_op win_compare_and_swap win_datatypes win_requests win_large win_remapped"
flags="--mca osc rdma --mca btl ofi,self"
if [ "$(mpi_major)" -ge 5 ]; then
    flags="--mca osc rdma" # the rest is there already
else
    echo "osc pt2pt"
    TOFU_MPIRUN_FLAGS="--mca osc pt2pt" run_mpi 120 4 "$program" win || status=1
fi

echo "osc rdma over btl ofi"
for ranks in 2 4; do
    # shellcheck disable=SC2086 # a list of words
    TOFU_MPIRUN_FLAGS=$flags run_mpi 120 $ranks "$program" $parts || status=1
done
exit $status
