#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A program of others, NetPIPE over Open MPI, recorded without being changed.
# Called by: make check. Calls: tools/mpi, NPopenmpi, tofu-sim, python3; the commands of docs/predicting.md.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
export TOFU_TOP_BUILDDIR=${TOFU_TOP_BUILDDIR:?set by make check}
. "$top/tools/mpi"
. "$top/tests/lib/expect"
netpipe=$(command -v NPopenmpi) || { echo "skipped: no NPopenmpi (install netpipe-openmpi)"; exit 77; }
tofu_sim=${TOFU_SIM_COMMAND:?set by make check}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

export TOFU_SIM_TRACE=$scratch
run_mpi 100 2 "$netpipe" -u 65536 -n 20 -o np.out >log 2>&1 || { tail -n 40 log; exit 1; }
expect "each rank has a trace" 2 "$(find . -name '*.trace' | wc -l)"
"$tofu_sim" trace --json run.json --goal run.goal . || exit 1
"$tofu_sim" trace . >summary
cat summary
expect "both ranks are in it" 2 "$(grep -c '^  rank [01] node ' summary)"
expect "and the links between them" yes "$(grep -q '^  link (0,0,0,0,0,[01]) C: ' summary && echo yes)"
expect "waits know their rank" yes "$([ "$(grep -c '"name":"wait for rank [01]"' run.json)" -gt 100 ] && echo yes)"
if command -v python3 >/dev/null; then
    python3 -m json.tool run.json >/dev/null
    expect "a parser of JSON reads it" 0 $?
fi

# The three commands of docs/predicting.md as they stand there, for fewer ranks.
ln -s "$netpipe" program
mkdir there
awk '/^```/ { n++; next } n == 1' "$top/docs/predicting.md" |
    sed "s|/tmp/run|$scratch/there|; s|mpirun -n 12|mpirun --oversubscribe --allow-run-as-root -n 2|; s|\./program|./program -u 4096 -n 2|" >commands
PATH=${tofu_sim%/*}:$PATH FI_PROVIDER_PATH=$TOFU_TOP_BUILDDIR/prov/tofu/.libs \
    LD_LIBRARY_PATH=$TOFU_TOP_BUILDDIR/tofu_sim/.libs timeout 100 bash -e ./commands </dev/null >log 2>&1 || tail -n 20 log
expect "the commands of docs/predicting.md draw a page" 4 "$(grep -c '^<svg' run.html)"
[ "$failures" = 0 ] || exit 1
