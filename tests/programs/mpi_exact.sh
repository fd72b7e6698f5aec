#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Exact mode over Open MPI: two runs print the same digits and leave the same traces.
# Called by: make check. Calls: tools/mpi, fabtests/mpi/mpi_digits.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
build=${TOFU_TOP_BUILDDIR:?set by make check}
. "$top/tools/mpi"
. "$top/tests/lib/expect"
[ "$(mpi_major)" -lt 5 ] || { echo "skipped: the launcher of Open MPI 5 was not tried"; exit 77; }
if [ -z "${MPI_EXACT_FIXED:-}" ]; then # addresses, as tofu-sim run --exact does it
    setarch -R true 2>/dev/null || { echo "skipped: addresses can't be fixed here"; exit 77; }
    MPI_EXACT_FIXED=yes exec setarch -R "$0"
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

export TOFU_SIM_CLOCK=exact TOFU_SIM_PPN=1
TOFU_MPIRUN_FLAGS="-x LD_PRELOAD=$build/tofu_sim/.libs/libtofu-sim-clock.so"

# twice RANKS: 0 if both runs print and record the same
twice()
{
    local ranks=$1 i
    for i in 1 2; do
        rm -rf "trace$i"
        mkdir "trace$i"
        TOFU_SIM_TRACE=$scratch/trace$i run_mpi 100 "$ranks" "$build/fabtests/mpi/mpi_digits" >"said$i" 2>"err$i"
        expect "$ranks ranks: run $i" 0 $?
        expect "$ranks ranks: nothing to warn of" 0 "$(grep -c 'may not repeat' "err$i")"
        # The files are named by the job, which is the launcher's.
        (cd "trace$i" && for file in *.trace; do mv "$file" "run.${file#*.}"; done)
    done
    expect "$ranks ranks: time passes" no "$(grep -q ' 0.000000000$' said1 && echo yes || echo no)"
    expect "$ranks ranks: prints the same" "" "$(cmp said1 said2 2>&1)"
    expect "$ranks ranks: records the same" "" "$(diff -rq trace1 trace2 2>&1)"
    expect "$ranks ranks: a trace for each" "$ranks" "$(find trace1 -name '*.trace' | wc -l)"
}
for ranks in 2 4 12; do
    twice "$ranks"
done
[ "$failures" = 0 ] || exit 1
