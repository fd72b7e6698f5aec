#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# MPI windows by each way Open MPI has over us: as messages (osc pt2pt), and by remote reads, writes and
# atomics of the provider (osc rdma over btl ofi), beside a second endpoint for messages.
# Called by: make check. Calls: tools/mpi, fabtests/mpi/mpi_conformance.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
program=$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_conformance
status=0

echo "osc pt2pt"
TOFU_MPIRUN_FLAGS="--mca osc pt2pt" run_mpi 120 4 "$program" win || status=1

echo "osc rdma over btl ofi"
# Without win_accumulate: Open MPI 4.1's btl ofi itself aborts at reductions other than sums.
for ranks in 2 4; do
    TOFU_MPIRUN_FLAGS="--mca osc rdma --mca btl ofi,self" run_mpi 120 $ranks "$program" win_fence \
        win_lock win_pscw win_fetch_and_op win_compare_and_swap win_datatypes win_requests win_large ||
        status=1
done
exit $status
