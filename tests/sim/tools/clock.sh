#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tofu-sim run --clock: a program that was not changed measures Tofu-D's times, the same in each run.
# Called by: make check. Calls: tofu-sim, tests/clock_subject.
set -u
tofu_sim=${TOFU_SIM_COMMAND:?set by make check}
subject=${TOFU_TOP_BUILDDIR:?set by make check}/tests/clock_subject
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run()
{
    "$tofu_sim" run --timeout 60 "$@" </dev/null >"$scratch/out" 2>"$scratch/err"
}

# One way by a remote notice: 0.98 us of 8 bytes and 0.075 us for the notice; 16,640 bytes take 3.84 us.
run -n 2 --clock --cpu 0 "$subject" 8
expect "status" 0 $?
first=$(cat "$scratch/out")
expect "8 bytes" "1055 11" "$first"
run -n 2 --clock --cpu 0 "$subject" 8
expect "and once more the same" "$first" "$(cat "$scratch/out")"
run -n 2 --clock --cpu 0 "$subject" 16640
expect "16,640 bytes" "3911 39" "$(cat "$scratch/out")"
run -n 12 --clock --cpu 0 "$subject" 8
expect "more ranks than cores change nothing" "$first" "$(cat "$scratch/out")"

run -n 1 --clock --cpu 0 date +%Y
expect "programs without uTofu have this machine's time" "$(date +%Y)" "$(cat "$scratch/out")"
LD_PRELOAD= run -n 1 --clock --cpu 2.5 sh -c 'echo "$TOFU_SIM_CLOCK $TOFU_SIM_CPU ${LD_PRELOAD##*/}"'
expect "what the processes get" "tofud 2.5 libtofu-sim-clock.so" "$(cat "$scratch/out")"
run -n 1 --clock --cpu fast true
expect "a factor that is none" 2 $?
expect "is told" 1 "$(grep -c 'give how many times longer' "$scratch/err")"
run -n 1 --clock --chaos 1 true
expect "no times in the adversarial mode" 2 $?
expect "and why" 1 "$(grep -c 'leave --clock away' "$scratch/err")"
[ "$failures" = 0 ] || exit 1
echo "all checks passed"
