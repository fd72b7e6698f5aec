#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tofu-sim run --exact: two runs are the same, digits and traces; a seed of the adversarial mode is one run, and --seeds
# finds an error of order.
# Called by: make check. Calls: tofu-sim, tofu_sim/examples/*, tests/order_subject, tests/clock_subject,
# tests/exact_subject.
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
examples=$build/tofu_sim/examples

# twice NAME OPTIONS PROGRAM: 0 if both runs print and record the same
twice()
{
    local name=$1 i
    shift
    for i in 1 2; do
        rm -rf "trace$i"
        mkdir "trace$i"
        TOFU_SIM_TRACE=trace$i/t "$tofu_sim" run --timeout 120 "$@" </dev/null >"said$i" 2>"err$i"
        expect "$name: run $i" 0 $?
        expect "$name: nothing to warn of" 0 "$(grep -c 'may not repeat' "err$i")"
    done
    expect "$name: prints the same" "" "$(cmp said1 said2 2>&1)"
    expect "$name: records the same" "" "$(diff -rq trace1 trace2 2>&1)"
    expect "$name: records something" yes "$([ "$(cat trace1/* | wc -c)" -gt 8192 ] && echo yes)"
}

for name in put_pingpong_mrq put_pingpong_memory get_status put_stride session_pipeline barrier_ring; do
    twice $name -n 3 --exact "$examples/$name"
done
twice armw_tickets -n 4 --exact "$examples/armw_tickets"
twice "armw_tickets, a seed" -n 3 --exact --chaos 5 "$examples/armw_tickets"
twice "messages that cross" -n 4 --exact "$build/tests/clock_subject" 1024 4

# Operations of all kinds, by several seeds: a run beside busy loops is the same as one without them.
spinners=()
end_spinners()
{
    [ "${#spinners[@]}" = 0 ] || kill "${spinners[@]}"
    spinners=()
}
trap 'end_spinners; rm -rf "$scratch"' EXIT
patterns()
{
    local seed
    mkdir -p "$1"
    for seed in 1 2 3; do
        TOFU_SIM_TRACE=$1/t$seed "$tofu_sim" run -n $((seed + 1)) --timeout 120 --exact "$build/tests/exact_subject" 150 "$seed" \
            </dev/null >"$1/said$seed" 2>"$1.err$seed"
        expect "operations of all kinds, $((seed + 1)) processes" 0 $?
        sort -o "$1/said$seed" "$1/said$seed" # when a process prints has no order
    done
    expect "operations of all kinds: nothing to warn of" 0 "$(cat "$1".err* | grep -c 'may not repeat')"
}
patterns alone
for ((i = 0; i < 6; i++)); do
    timeout 120 sh -c 'while :; do :; done' &
    spinners+=($!)
done
patterns beside
end_spinners
expect "operations of all kinds: the same digits and traces" "" "$(diff -rq alone beside 2>&1)"
expect "operations of all kinds: some fail" no "$(grep -q ' 0 failed' alone/said* && echo yes || echo no)"
"$tofu_sim" run -n 2 --timeout 60 --exact "$build/tests/clock_subject" 8 >out 2>err </dev/null
expect "one way by a notice" "1055 11" "$(cat out)"

# All only look: that is quiet, and nothing to warn of.
"$tofu_sim" run -n 2 --timeout 120 --exact "$build/tests/exact_subject" idle >out 2>err </dev/null
expect "polls of empty queues" "0 0" "$? $(grep -c 'may not repeat' err)"

# The thread that calls uTofu runs on one processor; its process does not see that, nor do its threads and children.
"$tofu_sim" run -n 1 --timeout 60 --exact "$build/tests/exact_subject" bind >out 2>err </dev/null
bound=$([ "$(nproc)" = 1 ] && echo all || echo one)
expect "one processor" "0 $bound 1 1 1" "$? $(cat out)"
"$tofu_sim" run -n 1 --timeout 60 --exact --bind none "$build/tests/exact_subject" bind >out 2>err </dev/null
expect "--bind none" "0 all 1 1 1" "$? $(cat out)"
"$tofu_sim" run -n 1 --timeout 60 --exact "$build/tests/exact_subject" gates >out 2>err </dev/null
expect "a poll for another kind of round" "0 " "$? $(cat out err)"
"$tofu_sim" run -n 4 --timeout 20 --exact "$build/tests/exact_subject" session >out 2>err </dev/null
expect "descriptors of a session that are sent at one time" 0 $?
"$tofu_sim" run -n 1 --timeout 20 --exact "$build/tests/exact_subject" count >out 2>err </dev/null
expect "a program that counts unread entries" 0 $?
"$tofu_sim" run -n 2 --timeout 20 --exact "$build/tests/exact_subject" stray >out 2>err </dev/null
expect "a put that failed at a process that has ended: UTOFU_ERR_MRQ_RMT_STADD" "0 -197" "$? $(cat out)"
"$tofu_sim" run -n 2 --timeout 60 --exact "$build/tests/exact_subject" stopped 30 >out 2>err </dev/null
expect "a process that is stopped is waited for" "0 1 0" "$? $(cat out) $(grep -c 'may not repeat' err)"

# A process ends without a word, and another one has its slot, or its ID. Which slots they have is by chance.
for ((i = 0; i < 4; i++)); do
    "$tofu_sim" run -n 3 --timeout 20 --exact "$build/tests/exact_subject" replaced >out 2>err </dev/null
    expect "a program that another one replaces" 0 $?
done

# What the processes of a node divide goes by rank, whichever of them begins first.
"$tofu_sim" run -n 4 --ppn 4 --timeout 60 --exact "$build/tests/exact_subject" node "$scratch/taken" >out 2>err </dev/null
expect "what a node has for its processes" "0 0: 1 0 1: 2 1 2: 3 2 3: 4 3" "$? $(sort out | tr '\n' ' ' | sed 's/ $//')"

# What has no order: a line says so.
"$tofu_sim" run -n 1 --timeout 60 --exact --cpu 1 "$build/tests/exact_subject" idle >out 2>err </dev/null
expect "computing takes time" "0 1" "$? $(grep -c 'TOFU_SIM_CPU.*may not repeat' err)"
env -u TOFU_SIM_JOB TOFU_SIM_CLOCK=exact TOFU_SIM_SIZE=1 TOFU_SIM_RANK=0 PMIX_NAMESPACE=exact-$$ \
    "$build/tests/exact_subject" idle >out 2>err
expect "a launcher, and no library preloaded" "0 1" "$? $(grep -c 'not preloaded.*may not repeat' err)"

# Processes that go early, or without freeing their VCQs: the others find them gone at the same time in each run.
for how in stay free exit; do
    for ((i = 0; i < 5; i++)); do
        "$tofu_sim" run -n 3 --timeout 120 --exact "$build/tests/exact_subject" leave $how >out 2>"left$i.err" </dev/null
        expect "a process goes early ($how)" 0 $?
        sort out >"left$i"
        expect "a process goes early ($how): the same digits" "" "$(cmp left0 "left$i" 2>&1)"
    done
    expect "a process goes early ($how): nothing to warn of" 0 "$(cat left?.err | grep -c 'may not repeat')"
done

# The planted error is found, and the printed command finds it again, as often as it is tried.
subject=$build/tests/order_subject
"$tofu_sim" run -n 2 --timeout 60 --exact "$subject" >out 2>err </dev/null
expect "without a seed it is not detected" 0 $?
"$tofu_sim" run -n 2 --timeout 60 --seeds 1-1000 "$subject" >out 2>err </dev/null
expect "a seed finds it" 1 $?
command=$(sed -n 's/^tofu-sim run //p' err)
expect "and is reported" yes "$([ -n "$command" ] && echo yes)"
failed=0
for ((i = 0; i < 20; i++)); do
    eval "\"\$tofu_sim\" run $command" >out 2>again </dev/null || failed=$((failed + 1))
done
expect "the command fails 20 times of 20" 20 "$failed"
"$tofu_sim" run -n 1 --timeout 60 --seeds 1 --library-path "/a b" false >out 2>err </dev/null
expect "the printed command quotes a directory" "1 1" "$? $(grep -c "^tofu-sim run .* --library-path '/a b' " err)"
"$tofu_sim" run -n 2 --timeout 60 --seeds 1-20 "$subject" strong >out 2>err </dev/null
expect "with strong order no seed does" "0 1" "$? $(grep -c 'no failure' err)"

# What it refuses.
"$tofu_sim" run -n 2 --timeout 60 --exact "$subject" strong thread >out 2>err </dev/null
expect "a second thread is refused, and reported" "0 2 2" "$? $(grep -c refused out) $(grep -c 'a second thread calls uTofu' err)"
# The command without its libraries: the message names the option that needs them.
mkdir -p alone/bin
cp "$(readlink -f "$tofu_sim")" alone/bin/tofu-sim
if alone/bin/tofu-sim run -n 1 --exact true 2>/dev/null; then
    echo "skipped: a libtofu-sim-clock.so is installed"
else
    for option in --clock --exact '--seeds 1-2'; do
        alone/bin/tofu-sim run -n 1 $option true 2>err
        expect "$option without libtofu-sim-clock.so" "2 1" "$? $(grep -c -e "tofu-sim: ${option%% *}: there is no .*install it" err)"
    done
fi

TOFU_SIM_CLOCK=exact TOFU_SIM_SIZE='' TOFU_SIM_RANK=0 "$build/tests/clock_subject" 8 >out 2>err
expect "the number of processes is needed" "yes 1" "$([ $? != 0 ] && echo yes) $(grep -c 'set their number in TOFU_SIM_SIZE' err)"
"$tofu_sim" run -n 2 --seeds 5-1 true 2>err
expect "seeds that are none" "2 1" "$? $(grep -c 'use the first and the last seed' err)"
"$tofu_sim" run -n 2 --seeds 1-2:wild true 2>err
expect "nor freedoms" 2 $?
"$tofu_sim" run -n 2 --seeds 1-2 --chaos 3 true 2>err
expect "seeds and a seed" 2 $?
finish
