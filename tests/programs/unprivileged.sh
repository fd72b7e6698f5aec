#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Processes of the simulator and of the provider once more, as an ordinary user without capabilities, and with few
# descriptors. What needs more by design is left out by name.
# Called by: make check. Calls: tests/{sim,barrier,memory,prov_msg,prov_rma}_processes, setpriv.
set -u
build=${TOFU_TOP_BUILDDIR:?set by make check}
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
[ -x "$build/tests/sim_processes" ] || { echo "left out: no GoogleTest, or no simulator"; exit 77; }

# Another user may not enter the build tree.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/tofu-unprivileged.XXXXXX") || exit 1
jobs="/dev/shm/tofu-sim-$(id -u nobody)/${TOFU_TEST_JOB_PREFIX:-test-$$}"
trap 'rm -rf "$scratch" "$jobs"*' EXIT
trap 'exit 1' INT TERM
chmod 755 "$scratch"
for program in sim barrier memory prov_msg prov_rma; do
    program=$build/tests/${program}_processes
    real=$build/tests/.libs/${program##*/} # libtool's wrapper is for the build tree
    [ -x "$real" ] || real=$program
    install -m 755 "$real" "$scratch/${program##*/}" || exit 1
done
install -m 755 "$build/tofu_sim/.libs/libtofucom.so" "$build/prov/tofu/.libs/libtofu-fi.so" "$scratch" || exit 1
cd "$scratch" || exit 1
export LD_LIBRARY_PATH=$scratch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export FI_PROVIDER_PATH=$scratch FI_TOFU_BACKEND=$scratch/libtofucom.so
unprivileged=()

# What a program says is shown where it fails.
run() # WHAT PROGRAM FILTER
{
    "${unprivileged[@]}" "./$2" --gtest_filter="$3" --gtest_brief=1 >said 2>&1
    local status=$?
    [ $status = 0 ] || grep -v '^Running main' said | head -n 60
    expect "$1: $2, $(grep -oE '^\[  PASSED  \] [0-9]+' said | tail -n 1 | grep -oE '[0-9]+$') tests" 0 $status
}

# Without those that take seconds, or make no system call that others here do not make.
messages='Message.*:Reopened.*:Names.*-Message.AllToAll*:Message.AStorm*'
transfers='Rma.*:RmaClose.*:RmaProgress.*-Rma.The*'

if [ "$(id -u)" = 0 ]; then
    nobody=$(id -u nobody)
    unprivileged=(setpriv --reuid "$nobody" --regid "$(id -g nobody)" --clear-groups --bounding-set=-all --inh-caps=-all)
    if "${unprivileged[@]}" ./sim_processes --gtest_list_tests >said 2>&1; then
        run "an ordinary user" sim_processes '*'
        run "an ordinary user" barrier_processes '*'
        run "an ordinary user" memory_processes 'Memory*-MemoryLife.Scattered*:*TheMarkComesLast*'
        run "an ordinary user" prov_msg_processes "$messages"
        run "an ordinary user" prov_rma_processes "$transfers"
        expect "nothing is left of the ordinary user" "" "$(ls -d "$jobs"* 2>/dev/null)"
    else
        cat said
        echo "left out: root may not become an ordinary user here"
    fi
    unprivileged=()
else
    echo "left out: only root can become another user; the whole suite runs as an ordinary one here"
fi

# Of the test itself, too, which keeps a file for each process.
ulimit -Sn 48
run "48 descriptors" sim_processes '-SimPlacement.FortyEight*:*ClosesAllDescriptors*:SimSoak*' # 48 and 64 files
run "48 descriptors" barrier_processes '-*With48Processes*'
run "48 descriptors" prov_msg_processes "$messages"
run "48 descriptors" prov_rma_processes "$transfers"
exit $((failures != 0))
