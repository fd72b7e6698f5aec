#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The runtime of a sanitizer unmaps memory by system calls of its own, which are not reported: beside one, registrations
# are not kept. Called by: make check. Calls: tests/prov_cache_units, with libasan.so and without.
set -u
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
program=${TOFU_TOP_BUILDDIR:?set by make check}/tests/prov_cache_units
runtime=$(gcc -print-file-name=libasan.so 2>/dev/null)
[ -e "$runtime" ] || { echo "skipped: no libasan.so of gcc here"; exit 77; }
run() # PRELOADED: what a test says that needs the cache
{
    FI_LOG_LEVEL=info LD_PRELOAD=$1 ASAN_OPTIONS=detect_leaks=0 "$program" --gtest_filter='*LeavesTheSignalsToTheProgram' 2>&1
}
said=$(run '')
grep -q '^\[  PASSED  \] 1 test' <<<"$said" || { echo "skipped: no cache here without a sanitizer"; exit 77; }
expect "it is on without" 0 "$(grep -c 'SKIPPED' <<<"$said")"
said=$(run "$runtime")
expect "and off with AddressSanitizer" yes "$(grep -q '^\[  SKIPPED \] 1 test' <<<"$said" && echo yes)"
exit $((failures != 0))
