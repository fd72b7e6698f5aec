#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tofu-sim run with more processes than processors: programs that call nothing while they wait get on, too.
# Called by: make check. Calls: tofu-sim, taskset, tests/spin_subject.
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
subject=$build/tests/spin_subject

run()
{
    "${on[@]}" "$tofu_sim" run "$@" </dev/null >out 2>err
}

# Without short turns each of the 4,000 steps waits for a tick of the kernel's clock, or several: 16 s and more.
first=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
on=(taskset -c "$first")
run -n 4 --timeout 12 "$subject" 1000
expect "processes that spin, four on one processor" "0 1000 rounds" "$? $(cat out)"
expect "it is reported" "tofu-sim: more processes (4) than processors (1): time slices of 0.1 ms" "$(cat err)"

run -n 1 --timeout 20 true
expect "a process that has its processor" "0 " "$? $(cat err)"

finish
