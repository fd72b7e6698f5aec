#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A rank is killed in the middle of a program: the job ends, and what it leaves in shared memory is gone
# when the next job starts.
# Called by: make check. Calls: tools/mpi, tofu-sim, fabtests/mpi/mpi_conformance.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
job=${TOFU_TEST_JOB_PREFIX:?set by tests/run_limited}-k
files=/dev/shm/tofu-sim-$(id -u)/$job
program=$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_conformance
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

export TOFU_SIM_JOB=$job
run_mpi 100 3 "$program" --forever >"$scratch/log" 2>&1 &
launcher=$!

# As soon as the job's three processes are there and have begun to talk.
victim=
for _ in $(seq 600); do
    "$TOFU_SIM_COMMAND" show "$job" >"$scratch/shown" 2>/dev/null
    if [ "$(grep -c ' rank ' "$scratch/shown")" = 3 ] && grep -q '^ok' "$scratch/log"; then
        victim=$(sed -n 's/^  rank 1 pid \([0-9]*\) .*/\1/p' "$scratch/shown")
        break
    fi
    read -r -t 0.1 <> <(:)
done
[ -n "$victim" ] || { echo "the job did not start:"; cat "$scratch/log" "$scratch/shown"; exit 1; }
kill -KILL "$victim"
wait $launcher
status=$?
echo "killed rank 1 (pid $victim); mpirun ended with status $status"
[ $status != 0 ] || { echo "mpirun did not notice"; exit 1; }
[ $status != 124 ] || { echo "mpirun did not end in time"; exit 1; }

# mpirun may be gone a moment before the last rank it has killed.
for _ in $(seq 100); do
    "$TOFU_SIM_COMMAND" show "$job" 2>/dev/null | grep ' rank ' | grep -qv ' DEAD$' || break
    read -r -t 0.1 <> <(:)
done

# Another job starts and ends: whatever the dead one has left must be gone now.
export TOFU_SIM_JOB=$job-next
"$TOFU_SIM_COMMAND" run -n 1 --timeout 30 "$TOFU_TOP_BUILDDIR/tests/show_subject" </dev/null || exit 1
if [ -e "$files" ]; then
    echo "$files is still there:"
    ls -l "$files"
    exit 1
fi
echo "nothing is left"
