#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The provider as libfabric loads it: with hwloc, beside another hwloc, without one, and with a topology that cannot be read.
# And with no processor or no binding of memory allowed: a line each, and messages arrive.
# Called by: make check. Calls: fi_info, ldd, unshare, tests/no_membind, tests/tni_subject,
# tests/prov_msg_processes.
set -u
build=${TOFU_TOP_BUILDDIR:?set by make check}
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
command -v fi_info >/dev/null || { echo "skipped: no fi_info (install libfabric-bin)"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset HWLOC_XMLFILE HWLOC_SYNTHETIC HWLOC_THISSYSTEM HWLOC_COMPONENTS FI_TOFU_NUMA
export FI_PROVIDER=tofu FI_PROVIDER_PATH=$build/prov/tofu/.libs FI_TOFU_BACKEND=$build/tofu_sim/.libs/libtofucom.so
export FI_LOG_LEVEL=warn FI_LOG_PROV=tofu
own=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') # a processor that we may use
two_nodes="numanode:2 core:1 pu:1(indexes=$own,$((own + 1)))"
show() { timeout 30 "$@" fi_info -v -p tofu >"$scratch/out" 2>"$scratch/err" </dev/null; }

expect "nothing of hwloc is linked" "" "$(ldd "$build/prov/tofu/.libs/libtofu-fi.so" | grep hwloc)"
show env
expect "fi_info -v has a line on placement" "0 yes" \
    "$? $(grep -q '^ *memory: placed at first use; thread: no single NUMA node, processors [0-9]' "$scratch/out" && echo yes)"
HWLOC_SYNTHETIC=$two_nodes HWLOC_THISSYSTEM=1 show taskset -c "$own"
expect "and the NUMA node of a thread that is bound" "0 yes" "$? $(grep -q 'thread: NUMA node 0, processors '"$own"'$' "$scratch/out" && echo yes)"
HWLOC_SYNTHETIC=$two_nodes HWLOC_THISSYSTEM=1 FI_TOFU_NUMA=off show taskset -c "$own"
expect "FI_TOFU_NUMA=off" "0 yes" "$? $(grep -q 'thread: no single NUMA node, processors '"$own"'$' "$scratch/out" && echo yes)"

echo "<topology version='2.0'></topology>" >"$scratch/broken.xml"
HWLOC_XMLFILE=$scratch/broken.xml show env
expect "a broken topology: a line, and it goes on" "0 1" "$? $(grep -c 'hwloc cannot read the topology' "$scratch/err")"
echo "no topology" >"$scratch/broken.xml"
HWLOC_XMLFILE=$scratch/broken.xml show env
expect "a file that is none" "0 1" "$? $(grep -c 'hwloc cannot read' "$scratch/err")"

export HWLOC_THISSYSTEM=1
HWLOC_SYNTHETIC='numanode:2 core:1 pu:1(indexes=1000,1001)' show env
expect "a topology without one of our processors" "0 1 yes" \
    "$? $(grep -c 'none of the processors of this thread.*HWLOC_XMLFILE' "$scratch/err") $(grep -q 'no single NUMA node' "$scratch/out" && echo yes)"
"${TOFU_SIM_COMMAND:?set by make check}" node a64fx | sed 's/allowed_cpuset="[^"]*"/allowed_cpuset="0x0"/' >"$scratch/none.xml"
HWLOC_XMLFILE=$scratch/none.xml show env
expect "a topology that allows no processor" "0 1 yes" \
    "$? $(grep -c 'hwloc cannot read the topology.*HWLOC_XMLFILE' "$scratch/err") $(grep -q 'no single NUMA node' "$scratch/out" && echo yes)"

# The lines that two endpoints of a process cause; and messages, also between processes.
endpoints() { timeout 30 "$@" "$build/tests/tni_subject" 2 >"$scratch/out" 2>"$scratch/err" </dev/null; }
messages() # [COMMAND...]; the test takes a line on stderr for an error
{
    timeout 60 env -u FI_LOG_LEVEL "$@" "$build/tests/prov_msg_processes" \
        --gtest_filter=Message.ToOneself:Message.OrderHoldsAcrossProtocolsAndUnexpectedOnes \
        >"$scratch/out" 2>"$scratch/err" </dev/null
}
HWLOC_XMLFILE=$scratch/broken.xml endpoints env
expect "endpoints with a broken topology: one line" "0 1" "$? $(grep -c 'hwloc cannot read.*HWLOC_XMLFILE' "$scratch/err")"
HWLOC_XMLFILE=$scratch/broken.xml messages env
expect "and messages" "0 1" "$? $(grep -c 'PASSED.* 2 tests' "$scratch/out")"
HWLOC_SYNTHETIC='numanode:2 core:1 pu:1(indexes=1000,1001)' endpoints env
expect "endpoints without an allowed processor: one line" "0 1" "$? $(grep -c 'none of the processors.*HWLOC_XMLFILE' "$scratch/err")"
HWLOC_SYNTHETIC='numanode:2 core:1 pu:1(indexes=1000,1001)' messages env
expect "and messages" "0 1" "$? $(grep -c 'PASSED.* 2 tests' "$scratch/out")"
HWLOC_SYNTHETIC=$two_nodes endpoints taskset -c "$own"
expect "endpoints with memory that is bound: no line" "0 0" "$? $(grep -cE "hwloc|memory" "$scratch/err")"
HWLOC_SYNTHETIC=$two_nodes messages taskset -c "$own"
expect "and messages" "0 1" "$? $(grep -c 'PASSED.* 2 tests' "$scratch/out")"
HWLOC_SYNTHETIC=$two_nodes endpoints taskset -c "$own" "$build/tests/no_membind"
status=$?
if [ $status != 77 ]; then
    expect "endpoints where binding is refused: one line" "0 1" \
        "$status $(grep -c 'memory cannot be bound to NUMA node .*FI_TOFU_NUMA=off' "$scratch/err")"
    HWLOC_SYNTHETIC=$two_nodes messages taskset -c "$own" "$build/tests/no_membind"
    expect "and messages" "0 1" "$? $(grep -c 'PASSED.* 2 tests' "$scratch/out")"
fi
unset HWLOC_THISSYSTEM

other=$build/tests/prov/core/.libs/libother_hwloc.so
if [ -e "$other" ]; then
    HWLOC_SYNTHETIC=$two_nodes LD_PRELOAD=$other show env
    expect "beside another hwloc: a line, and no call" "0 1" "$? $(grep -c 'the program contains another hwloc' "$scratch/err")"
fi

# Where there is no libhwloc.so.15: an empty file hides each that the loader would find.
libraries=$(ldconfig -p 2>/dev/null | sed -n 's/.*libhwloc\.so\.15 .*=> //p')
if [ -n "$libraries" ] && unshare --mount true 2>/dev/null; then
    HWLOC_SYNTHETIC=$two_nodes show unshare --mount bash -c '
        mount --make-rprivate / || exit 99
        libraries=$1
        shift
        for library in $libraries; do mount --bind /dev/null "$(readlink -f "$library")" || exit 99; done
        exec "$@"' hide "$libraries"
    status=$?
    [ $status = 99 ] || expect "without libhwloc.so.15" "0 yes" \
        "$status $(grep -q '^ *memory: placed at first use' "$scratch/out" && echo yes)"
fi
[ "$failures" = 0 ] || cat "$scratch/err"
exit $((failures != 0))
