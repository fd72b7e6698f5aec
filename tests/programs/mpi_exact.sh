#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Exact mode over Open MPI: runs print the same digits and leave the same traces. Windows in shared memory: a line says
# that they have no order.
# Called by: make check. Calls: tools/mpi, fabtests/mpi/mpi_digits, fabtests/mpi/mpi_conformance.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
build=${TOFU_TOP_BUILDDIR:?set by make check}
. "$top/tools/mpi"
. "$top/tests/lib/expect"
[ "$(mpi_major)" -lt 5 ] || { echo "skipped: the launcher of Open MPI 5 was not tried"; exit 77; }
if [ -z "${MPI_EXACT_FIXED:-}" ]; then # addresses, as tofu-sim run --exact does it
    setarch -R true 2>/dev/null || { echo "skipped: addresses cannot be fixed here"; exit 77; }
    MPI_EXACT_FIXED=yes exec setarch -R "$0"
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

export TOFU_SIM_CLOCK=exact
clock=$build/tofu_sim/.libs/libtofu-sim-clock.so

# run RANKS NUMBER
run()
{
    local ranks=$1 i=$2
    mkdir "trace$ranks.$i"
    TOFU_SIM_TRACE=$scratch/trace$ranks.$i run_mpi 100 "$ranks" "$build/fabtests/mpi/mpi_digits" >"said$ranks.$i" 2>"err$i"
    expect "$ranks ranks: run $i" 0 $?
    expect "$ranks ranks: nothing else to warn of" 0 \
        "$(grep 'may not repeat' "err$i" | grep -vc 'other programs use all processors')"
    # The files are named by the job, which is the launcher's.
    (cd "trace$ranks.$i" && for file in *.trace; do mv "$file" "run.${file#*.}"; done)
}

# are_same RANKS I J: these runs print and record the same
are_same()
{
    cmp -s "said$1.$2" "said$1.$3" && diff -rq "trace$1.$2" "trace$1.$3" >/dev/null
}

# A run may differ on a crowded machine, and says so (docs/time-model.md, Known gaps). Without such a line, runs are the
# same.
repeats()
{
    local ranks=$1 same=no
    run "$ranks" 1
    run "$ranks" 2
    if are_same "$ranks" 1 2 || grep -q 'may not repeat' err1 err2; then
        same=yes
    fi
    expect "$ranks ranks: prints and records the same" yes "$same"
    expect "$ranks ranks: time passes" no "$(grep -q ' 0.000000000$' "said$ranks.1" && echo yes || echo no)"
    expect "$ranks ranks: a trace for each" "$ranks" "$(find "trace$ranks.1" -name '*.trace' | wc -l)"
}
# As many processes a node, and these libraries.
with()
{
    export TOFU_SIM_PPN=$1
    TOFU_MPIRUN_FLAGS="-x LD_PRELOAD=$clock${2:+:$2}"
}
# windows COMPONENT: its status, and the lines that say that the run may not repeat.
windows()
{
    TOFU_MPIRUN_FLAGS="-x LD_PRELOAD=$clock --mca osc $1"
    run_mpi 100 3 "$build/fabtests/mpi/mpi_conformance" win_compare_and_swap >out 2>err
    echo "$? $(grep 'may not repeat' err | grep -v 'other programs use all processors' | sed 's/.* there is a \(.*\), which.*/\1/')"
}
with 1
for ranks in 2 4; do
    repeats "$ranks"
done
rm -rf trace4.*
with 2 "$build/mpi/.libs/libtofu-mpi.so"
repeats 4
expect "windows over uTofu: nothing to warn of" "0 " "$(windows pt2pt)"
expect "windows in shared memory: a line says so" "0 window of MPI in shared memory" "$(windows rdma)"
[ "$failures" = 0 ] || exit 1
