#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tofu-sim run --clock: a program that was not changed measures Tofu-D's times, the same in each run.
# Called by: make check. Calls: tofu-sim, tests/clock_subject.
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
subject=$build/tests/clock_subject

run()
{
    "$tofu_sim" run --timeout 60 "$@" </dev/null >out 2>err
}

# One way by a remote notice: 0.98 us of 8 bytes and 0.075 us for the notice; 16,640 bytes take 3.84 us.
run -n 2 --clock --cpu 0 "$subject" 8
expect "status" 0 $?
first=$(cat out)
expect "8 bytes" "1055 11" "$first"
run -n 2 --clock --cpu 0 "$subject" 8
expect "and once more the same" "$first" "$(cat out)"
run -n 2 --clock --cpu 0 "$subject" 16640
expect "16,640 bytes" "3911 39" "$(cat out)"
run -n 12 --clock --cpu 0 "$subject" 8
expect "more ranks than cores change nothing" "$first" "$(cat out)"

# Three nodes send to one at once. A later message waits in front of it; the same from a trace.
mkfifo input output
mkdir trace
job=${TOFU_TEST_JOB_PREFIX:?set by tests/run_limited}-c
TOFU_SIM_TRACE=trace "$tofu_sim" run -n 4 --timeout 60 --clock --cpu 0 --job "$job" "$subject" 65536 4 <input >output 2>err &
launcher=$!
exec 5>input 6<output
read -r -t 30 word <&6
expect "all is there" there "${word:-}"
"$tofu_sim" show --counters "$job" >live
exec 5>&-
wait $launcher
expect "the job ends" 0 $?
"$tofu_sim" trace --counters recorded trace
# 64 KiB are 4,380 cycles of a link: 24 messages into one node, half or more of them behind others.
for counters in live recorded; do
    expect "$counters: cycles without credit, on the way out only" yes \
        "$(awk '!/^#/ { s += $7; t += $8 + $9 + $10 } END { print (s > 30000 && s < 200000 && t == 0) ? "yes" : s " " t }' $counters)"
    expect "$counters: none of the node that all send to" "" "$(awk '/^  \(0,0,0,0,0,0\)/ && $7 + $8 + $9 + $10 != 0' $counters)"
done
"$tofu_sim" trace --counters large --channel-buffer 1048576 trace
expect "a buffer that holds them all" 0 "$(awk '!/^#/ { s += $7 } END { print s }' large)"
"$tofu_sim" trace --counters large --channel-buffer 2M trace 2>err
expect "a buffer that is none" "2 1" "$? $(grep -c 'use the bytes of a virtual channel' err)"
TOFU_SIM_CHANNEL_BUFFER=-1 run -n 1 --clock "$subject" 8
expect "nor for processes" "1 1" "$? $(grep -c 'TOFU_SIM_CHANNEL_BUFFER' err)"

run -n 1 --clock --cpu 0 date +%Y
expect "programs without uTofu have this machine's time" "$(date +%Y)" "$(cat out)"
LD_PRELOAD= run -n 1 --clock --cpu 2.5 sh -c 'echo "$TOFU_SIM_CLOCK $TOFU_SIM_CPU ${LD_PRELOAD##*/}"'
expect "what the processes get" "tofud 2.5 libtofu-sim-clock.so" "$(cat out)"
run -n 1 --clock --cpu fast true
expect "a factor that is none" 2 $?
expect "is reported" 1 "$(grep -c 'use the ratio of computing time' err)"
run -n 1 --clock --chaos 1 true
expect "no times in the adversarial mode" 2 $?
expect "and why" 1 "$(grep -c 'omit --clock' err)"
finish
