#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Open MPI on a node that this machine is not: it maps as on an A64FX, binds to no processor that is not there, and
# messages go over the provider as before. Called by: make check. Calls: tools/mpi, mpirun, tofu-sim.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
export TOFU_TOP_BUILDDIR=${TOFU_TOP_BUILDDIR:?set by make check}
. "$top/tools/mpi"
. "$top/tests/lib/expect"
command -v mpirun >/dev/null || { echo "skipped: no mpirun (install openmpi-bin)"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
"${TOFU_SIM_COMMAND:?set by make check}" node a64fx >a64fx.xml || exit 1
unset HWLOC_SYNTHETIC HWLOC_THISSYSTEM HWLOC_COMPONENTS
export HWLOC_XMLFILE=$PWD/a64fx.xml

plain=(timeout 60 mpirun --allow-run-as-root)
"${plain[@]}" -n 8 true </dev/null >said 2>&1
expect "more slots than this machine may have processors" 0 $?
"${plain[@]}" -n 49 true </dev/null >/dev/null 2>&1
expect "48, and no more" yes "$([ $? != 0 ] && echo yes)"
if [ "$(mpi_major)" -lt 5 ]; then
    "${plain[@]}" -n 5 --map-by numa --display-devel-map true </dev/null >said 2>&1
    expect "--map-by numa: a CMG for each rank in turn" "1 13 25 37 1" \
        "$(sed -n 's/.*Locale: *\[\(.*\)\]/\1/p' said | while read -r place; do
            place=${place//\//}
            before=${place%%B*}
            echo $((${#before} + 1))
        done | tr '\n' ' ' | sed 's/ $//')"
else
    "${plain[@]}" -n 5 --map-by numa --display map true </dev/null >said 2>&1
    expect "--map-by numa" 0 $?
fi
own=$(taskset -cp $$ | sed 's/.*: //')
# Binding names processors that are not there: with the library that tofu-sim run --node preloads it does nothing.
preload=$TOFU_TOP_BUILDDIR/tofu_sim/.libs/libtofu-sim-node.so
LD_PRELOAD=$preload "${plain[@]}" -n 4 --map-by numa --bind-to core sh -c 'taskset -cp $$' </dev/null >said 2>&1
expect "--bind-to core, with the library: bound to nothing" "0 4 4" "$? $(wc -l <said) $(grep -c ": $own\$" said)"
env -u HWLOC_XMLFILE "$TOFU_SIM_COMMAND" run --timeout 60 -n 1 --node a64fx "${plain[@]}" -n 4 --map-by numa --bind-to core \
    sh -c 'taskset -cp $$' </dev/null >said 2>&1
expect "--bind-to core, under tofu-sim run --node" "0 4 4" "$? $(wc -l <said) $(grep -c ": $own\$" said)"
"${plain[@]}" -n 4 --map-by numa --bind-to core:if-supported sh -c 'taskset -cp $$' </dev/null >said 2>&1
expect "--bind-to core:if-supported, without" "0 4" "$? $(grep -c ": $own\$" said)"
"${plain[@]}" -n 4 --map-by numa sh -c 'taskset -cp $$' </dev/null >said 2>&1
expect "ranks run where this machine has processors" "0 4" "$? $(grep -c ": $own\$" said)"

program=$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_demo
if [ -x "$program" ]; then
    TOFU_MPIRUN_FLAGS="--map-by numa" run_mpi 100 4 "$program" >said 2>&1
    expect "an MPI program" 0 $?
    LD_PRELOAD=$preload TOFU_MPIRUN_FLAGS="--map-by numa --bind-to core" run_mpi 100 4 "$program" >said 2>&1
    expect "an MPI program that is bound" 0 $?
    [ "$failures" = 0 ] || tail -n 30 said
    # The thread of automatic progress wants the topology: each rank copies the one that Open MPI has.
    env -u HWLOC_XMLFILE FI_LOG_LEVEL=info FI_LOG_PROV=tofu TOFU_MPIRUN_FLAGS="--mca mtl_ofi_data_progress auto" \
        bash -c '. "$1"; run_mpi 100 2 "$2"' shared "$top/tools/mpi" "$program" >said 2>&1
    expect "an MPI program with automatic progress" 0 $?
    expect "its topology is the launcher's" "2 0" \
        "$(grep -c "the topology was shared by the launcher" said) $(grep -c 'the topology was read by hwloc' said)"
fi
exit $((failures != 0))
