#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The provider as libfabric loads it: with hwloc, beside another hwloc, without one, and with a topology that can't be read.
# Called by: make check. Calls: fi_info, ldd, unshare.
set -u
build=${TOFU_TOP_BUILDDIR:?set by make check}
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
command -v fi_info >/dev/null || { echo "skipped: no fi_info (install libfabric-bin)"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset HWLOC_XMLFILE HWLOC_SYNTHETIC HWLOC_THISSYSTEM HWLOC_COMPONENTS FI_TOFU_NUMA
export FI_PROVIDER=tofu FI_PROVIDER_PATH=$build/prov/tofu/.libs FI_TOFU_BACKEND=$build/tofu_sim/.libs/libtofucom.so
export FI_LOG_LEVEL=warn FI_LOG_PROV=tofu
show() { timeout 30 "$@" fi_info -v -p tofu >"$scratch/out" 2>"$scratch/err" </dev/null; }

expect "nothing of hwloc is linked" "" "$(ldd "$build/prov/tofu/.libs/libtofu-fi.so" | grep hwloc)"
show env
expect "fi_info -v has a line on placement" "0 yes" \
    "$? $(grep -q '^ *memory: where it is first touched; thread: no one NUMA node, processors [0-9]' "$scratch/out" && echo yes)"
HWLOC_SYNTHETIC='numanode:2 core:1 pu:1' HWLOC_THISSYSTEM=1 show taskset -c 0
expect "and the NUMA node of a thread that is bound" "0 yes" "$? $(grep -q 'thread: NUMA node 0, processors 0$' "$scratch/out" && echo yes)"
HWLOC_SYNTHETIC='numanode:2 core:1 pu:1' HWLOC_THISSYSTEM=1 FI_TOFU_NUMA=off show taskset -c 0
expect "FI_TOFU_NUMA=off" "0 yes" "$? $(grep -q 'thread: no one NUMA node, processors 0$' "$scratch/out" && echo yes)"

echo "<topology version='2.0'></topology>" >"$scratch/broken.xml"
HWLOC_XMLFILE=$scratch/broken.xml show env
expect "a broken topology: a line, and it goes on" "0 1" "$? $(grep -c 'hwloc cannot read the topology' "$scratch/err")"
echo "no topology" >"$scratch/broken.xml"
HWLOC_XMLFILE=$scratch/broken.xml show env
expect "a file that is none" "0 1" "$? $(grep -c 'hwloc cannot read' "$scratch/err")"

other=$build/tests/prov/node/.libs/libother_hwloc.so
if [ -e "$other" ]; then
    HWLOC_SYNTHETIC='numanode:2 core:1 pu:1' LD_PRELOAD=$other show env
    expect "beside another hwloc: a line, and no call" "0 1" "$? $(grep -c 'the program brings another hwloc' "$scratch/err")"
fi

# Where there is no libhwloc.so.15: an empty file hides each that the loader would find.
libraries=$(ldconfig -p 2>/dev/null | sed -n 's/.*libhwloc\.so\.15 .*=> //p')
if [ -n "$libraries" ] && unshare --mount true 2>/dev/null; then
    HWLOC_SYNTHETIC='numanode:2 core:1 pu:1' show unshare --mount bash -c '
        mount --make-rprivate / || exit 99
        libraries=$1
        shift
        for library in $libraries; do mount --bind /dev/null "$(readlink -f "$library")" || exit 99; done
        exec "$@"' hide "$libraries"
    status=$?
    [ $status = 99 ] || expect "without libhwloc.so.15" "0 yes" \
        "$status $(grep -q '^ *memory: where it is first touched' "$scratch/out" && echo yes)"
fi
[ "$failures" = 0 ] || cat "$scratch/err"
exit $((failures != 0))
