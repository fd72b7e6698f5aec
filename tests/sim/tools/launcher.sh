#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tofu-sim run from outside: statuses, environment, signals, time limit, nothing left behind.
# Called by: make check. Calls: tofu-sim, sh.

. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
run()
{
    "$tofu_sim" run "$@" </dev/null >out 2>err
}

run -n 3 --timeout 20 sh -c 'echo "$TOFU_SIM_RANK/$TOFU_SIM_SIZE"'
expect "status of success" 0 $?
expect "ranks and size" "0/3 1/3 2/3" "$(sort out | tr '\n' ' ' | sed 's/ $//')"

run -n 2 --timeout 20 sh -c '"$1" & "$1"; a=$?; wait $! && exit $a' sh "$build/tests/show_subject"
expect "several programs of a process have its rank" "0 4" "$? $(grep -c ready out)"

for command in run show trace replay clean; do
    "$tofu_sim" $command --help </dev/null >out 2>err
    expect "$command --help" "0 1 0" "$? $(grep -c '^usage: tofu-sim run' out) $(wc -l <err)"
done
run -n 1 --timeout 20 sh -c 'echo $1' sh --help
expect "a program's --help is its own" --help "$(cat out)"

run -n 2 --timeout 20 --shape 2x1x3 --torus xz --ppn 4 --job a.name_1 --chaos 7:drop,raw \
    sh -c 'echo "$TOFU_SIM_JOB $TOFU_SIM_SHAPE $TOFU_SIM_TORUS $TOFU_SIM_PPN $TOFU_SIM_CHAOS"'
expect "options reach the processes" "a.name_1 2x1x3 xz 4 7:drop,raw" "$(sort -u out)"

run -n 2 --timeout 20 sh -c 'echo "$TOFU_SIM_JOB"'
first=$(sort -u out)
run -n 2 --timeout 20 sh -c 'echo "$TOFU_SIM_JOB"'
expect "one name for the processes of a job" 1 "$(sort -u out | wc -l)"
[ "$first" != "$(sort -u out)" ]
expect "another name for another job" 0 $?

LD_LIBRARY_PATH=/a run -n 1 --timeout 20 sh -c 'echo $LD_LIBRARY_PATH'
expect "the library path stays" /a "$(cat out)"
LD_LIBRARY_PATH=/a run -n 1 --timeout 20 --library-path /b sh -c 'echo $LD_LIBRARY_PATH'
expect "the library path is extended by the option" /b:/a "$(cat out)"
LD_LIBRARY_PATH=/b-old run -n 1 --timeout 20 --library-path /b sh -c 'echo $LD_LIBRARY_PATH'
expect "also where that begins with the same letters" /b:/b-old "$(cat out)"
LD_LIBRARY_PATH=/b:/a run -n 1 --timeout 20 --library-path /b sh -c 'echo $LD_LIBRARY_PATH'
expect "and stays if it has it in front" /b:/a "$(cat out)"

run -n 4 --timeout 60 sh -c 'test "$TOFU_SIM_RANK" != 2 || exit 7; sleep 50'
expect "first failure ends all" 7 $?
run -n 2 --timeout 60 sh -c 'test "$TOFU_SIM_RANK" != 1 || kill -SEGV $$; sleep 50'
expect "death by a signal" $((128 + 11)) $?
expect "and is reported" 1 "$(grep -c 'process 1 was ended by signal 11' err)"

run -n 2 --timeout 0.3 sh -c 'trap "" TERM; sleep 50; sleep 50'
expect "time limit, even for a process that ignores SIGTERM" 124 $?
for value in 0 -1 1e400 inf nan 0x10 5s ' 5' '' 1000001; do
    run -n 1 --timeout "$value" true
    expect "--timeout '$value'" "2 1" "$? $(grep -c 'use seconds, more than 0' err)"
done

run -n 2 --timeout 20 /no/such/program
expect "no such program" 127 $?
expect "is reported once" 1 "$(grep -c "cannot run /no/such/program" err)"
run -n 1 --timeout 20 /etc/passwd
expect "not executable" 126 $?

# Something that leaves its process group and outlives its parent must not outlive the command.
run -n 1 --timeout 20 bash -c 'setsid sleep 1000 & echo $!'
expect "status with an orphan" 0 $?
kill -0 "$(cat out)" 2>/dev/null
expect "orphans are killed" 1 $?

# Signals: USR1 is passed on and ends no process; TERM ends all.
mkfifo ready idle # nothing is written to idle: a wait without a process that a signal could meet
"$tofu_sim" run -n 1 --timeout 20 bash -c \
    "trap 'echo usr1; exit 0' USR1; exec 3<>$scratch/idle; echo >$scratch/ready; while :; do read -t 1 -u 3; done" \
    >out 2>&1 &
launcher=$!
read -r <ready
kill -USR1 $launcher
wait $launcher
expect "USR1 is passed on" "0 usr1" "$? $(cat out)"
"$tofu_sim" run -n 2 --timeout 20 bash -c \
    "trap 'exit 0' TERM; exec 3<>$scratch/idle; test \$TOFU_SIM_RANK = 1 || echo >$scratch/ready
    while :; do read -t 1 -u 3; done" &
launcher=$!
read -r <ready
kill -TERM $launcher
wait $launcher
expect "TERM ends all" $((128 + 15)) $?

echo word | "$tofu_sim" run -n 2 --timeout 20 sh -c 'cat' >out
expect "process 0 reads the input" word "$(cat out)"

for wrong in "-n 0 true" "-n x true" "-n 2" "true" "-n 1 --shape 1x1 true" "-n 1 --torus q true" \
    "-n 1 --ppn 55 true" "-n 1 --job a/b true" "-n 1 --timeout -1 true" "-n 1 --nonsense 3 true"; do
    # shellcheck disable=SC2086
    run $wrong
    expect "refused: run $wrong" 2 $?
done
"$tofu_sim" --help >out
expect "help" "0 1" "$? $(grep -c '^usage: tofu-sim run' out)"
"$tofu_sim" nonsense 2>/dev/null
expect "no such command" 2 $?
"$tofu_sim" show no-such-job 2>/dev/null
expect "no such job to show" 1 $?
"$tofu_sim" clean no-such-job 2>/dev/null
expect "no such job to clean" 1 $?

finish
