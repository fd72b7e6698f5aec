#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tofu-mpi(7): Open MPI programs whose short collectives go by groups of the provider: random ones against a model, whole
# and with messages under way, on gates and without; communicators whose handles
# come back; errors; programs that it leaves alone; a process that lacks it.
# Called by: make check. Calls: tools/mpi, fabtests/mpi/mpi_oracle, fabtests/mpi/mpi_conformance.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
. "$top/tests/lib/expect"
library=$TOFU_TOP_BUILDDIR/mpi/.libs/libtofu-mpi.so
oracle=$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_oracle
[ -e "$library" ] || { echo "$library is missing"; exit 99; }
job=${TOFU_TEST_JOB_PREFIX:?set by tests/run_limited}
said=$(mktemp)
trap 'rm -f "$said"' EXIT
jobs=0
over_tofu=$(mpi_way)
over_shared_memory="--mca pml ob1 --mca btl ^ofi"
way=$over_tofu flags=
mpi_way() { echo "$way"; }

# preloaded RANKS PROGRAM ARGUMENTS...: what it says is in $said; does it pass?
preloaded()
{
    local status=0
    export TOFU_SIM_JOB=$job-$((++jobs))
    TOFU_MPIRUN_FLAGS="-x LD_PRELOAD=$library -x FI_TOFU_STATS=1 -x TOFU_MPI_STATS=1 $flags" run_mpi 60 "$@" >"$said" 2>&1 || status=$?
    if [ $status = 0 ] && grep -q PASSED "$said"; then
        passed=yes
    else
        passed="status $status"
        tail -n 20 "$said"
    fi
}
says() { grep -qE -- "$1" "$said" && echo yes || echo no; }

# One process unlike the others: rank 1 runs with the assignments in $unlike. (Open MPI 5.0.7's mpirun crashes where
# it is to start two programs by a colon.)
export unlike=
as_rank='[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export $unlike; exec "$0" "$@"'

# One process without it: the job ends, and says why. What it leaves goes with the next job.
export TOFU_SIM_JOB=$job-0
status=0
unlike="LD_PRELOAD=$library TOFU_MPI_WAIT=1"
run_mpi 60 2 sh -c "$as_rank" "$oracle" >"$said" 2>&1 || status=$?
expect "a process without the library: the job ends" yes "$([ $status = 0 ] || [ $status = 124 ] && echo "$status" || echo yes)"
expect "a process without the library: a line" yes "$(says '^tofu-mpi: not all processes have answered within 1 seconds: preload')"

for ranks in 2 4 7; do
    preloaded $ranks "$oracle" random $ranks 120
    expect "$ranks ranks against the model" yes "$passed"
    expect "$ranks ranks: by gates" yes "$(says ' collective_gates +[1-9]')"
    expect "$ranks ranks: some by the provider, others by MPI" yes "$(says 'rank 0: [1-9][0-9]* collectives by the provider, [1-9][0-9]* by MPI')"
done
flags="-x FI_TOFU_GATES=off -x TOFU_MPI_BYTES=65536"
preloaded 4 "$oracle" random 5 100
expect "without gates, longer ones" yes "$passed"
expect "without gates: by Puts alone" "yes no" "$(says ' collective_puts +[1-9]') $(says ' collective_gates +[1-9]')"
way=$over_shared_memory flags=
preloaded 4 "$oracle" random 6 100
expect "messages by Open MPI's shared memory" yes "$passed"
expect "messages by Open MPI's shared memory: by gates" yes "$(says ' collective_gates +[1-9]')"
way=$over_tofu
preloaded 3 "$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_conformance" coll comm
expect "communicators and collectives of mpi_conformance" yes "$passed"
for seed in 1 2 3; do
    preloaded 3 "$oracle" handles $seed 40
    expect "communicators that come and go, $seed" yes "$passed"
done
expect "communicators that come and go: by the provider" yes "$(says 'rank 0: [1-9][0-9]* collectives by the provider')"
preloaded 3 "$oracle" errors
expect "errors" yes "$passed"
expect "errors: a line" yes "$(says 'tofu-mpi: MPI_Allreduce: .* do all members call the same')"
preloaded 2 "$oracle" threads
expect "MPI_THREAD_MULTIPLE" yes "$passed"
expect "MPI_THREAD_MULTIPLE: left to MPI" "yes no" "$(says '^tofu-mpi: off: .*MPI_THREAD_MULTIPLE') $(says 'by the provider')"
way=$over_shared_memory
unlike=FI_TOFU_BACKEND=/nowhere/libtofucom.so
preloaded 2 sh -c "$as_rank" "$oracle" random 1 20
expect "a process without a provider" yes "$passed"
expect "a process without a provider: left to MPI" yes "$(says '^tofu-mpi: off: .*FI_LOG_LEVEL')"
exit $((failures != 0))
