#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Random programs of uTofu and of libfabric in exact mode: each runs as it is, then while it is stopped and continued,
# beside busy loops and beside a program of another job. Both runs print and record the same, and do not say that they
# may not repeat. The first difference ends a search, and is shown. A third run, in which other programs take the place
# of some processes (execve), only has to end: the moment when they join is a matter of the machine.
# Called by: make check; make exact SECONDS=600 SEED=1. Calls: tofu-sim, tests/exact_random, tests/exact_fabric,
# tests/exact_neighbour.
#
# usage: exact_random.sh [SECONDS [SEED]]
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
export FI_PROVIDER=tofu FI_PROVIDER_PATH=$build/prov/tofu/.libs FI_TOFU_BACKEND=$build/tofu_sim/.libs/libtofucom.so
first=${2:-1}
stop_at=$((SECONDS + ${1:-600}))
last=$([ -n "${1:-}" ] && echo 1000000000 || echo 6)

# disturb PID SEED: stops and continues the processes of a job at random, until it ends.
disturb()
{
    local pid victims
    RANDOM=$2
    while kill -0 "$1" 2>/dev/null; do
        sleep "0.0$((RANDOM % 5))"
        read -r -a victims <"/proc/$1/task/$1/children"
        pid=${victims[RANDOM % (${#victims[@]} + 1)]:-}
        [ -n "$pid" ] || continue
        kill -STOP "$pid"
        sleep "0.00$((RANDOM % 10))"
        kill -CONT "$pid"
    done 2>/dev/null
}

# run DIRECTORY PROGRAM SEED DISTURBANCE
run()
{
    local dir=$1 program=$2 seed=$3 disturbance=$4 job
    local shapes=(1 2 4 3 1) n=$((2 + seed % 5))
    local options=(-n "$n" --ppn "${shapes[seed / 5 % 5]}" --exact --timeout 100)
    [ $((seed % 4)) != 3 ] || options+=(--chaos "$seed")
    rm -rf "$dir" meet
    mkdir -p "$dir/trace" meet
    (
        export EXACT_OUT=$dir/said EXACT_MEET=meet/ EXACT_DISTURB=$disturbance TOFU_SIM_TRACE=$dir/trace/t
        [ $((seed % 7)) != 6 ] || export TOFU_SIM_CQS=refuse
        exec "$tofu_sim" run "${options[@]}" "$build/tests/$program" "$seed" </dev/null >"$dir/out" 2>"$dir.err"
    ) &
    job=$!
    [ "$disturbance" = 0 ] || disturb "$job" "$disturbance"
    wait "$job"
    echo "$?" >"$dir/status"
}

busy=()
trap '[ "${#busy[@]}" = 0 ] || kill "${busy[@]}"; rm -rf "$scratch"' EXIT
# compare PROGRAM SEED: two runs
compare()
{
    local program=$1 seed=$2 same warned
    run once "$program" "$seed" 0
    if [ $((seed % 3)) = 0 ]; then
        for ((i = 0; i < 4; i++)); do
            timeout 100 nice -n "$((i * 5))" sh -c 'while :; do :; done' &
            busy+=($!)
        done
    fi
    "$build/tests/exact_neighbour" &
    busy+=($!)
    run again "$program" "$seed" "$((seed + 1))"
    kill "${busy[@]}"
    busy=()
    programs=$((programs + 1))
    same=$(diff -r once again 2>&1 | head -n 12)
    warned=$(cat once.err again.err | grep 'may not repeat')
    [ "$same$warned$(cat once/status)" != 0 ] || return 0
    expect "$program, seed $seed: two runs are the same" "0" "$(cat once/status) $warned $same"
    cat once.err again.err
}

# replace SEED: a run in which processes call execve. It only has to end.
replace()
{
    EXACT_REPLACE=1 run replaced exact_random "$1" "$1"
    expect "exact_random, seed $1: a run with other programs in the place of some ends" 0 "$(cat replaced/status)"
}

programs=0
for ((seed = first; seed <= last && SECONDS < stop_at && failures == 0; seed++)); do
    compare exact_random "$seed"
    [ "$failures" != 0 ] || [ -z "${1:-}" ] || compare exact_fabric "$seed"
    [ "$failures" != 0 ] || [ -z "${1:-}" ] || replace "$seed"
done
for seed in 4 11; do # one without the adversary, one with it
    [ -n "${1:-}" ] || compare exact_fabric "$seed"
    [ -n "${1:-}" ] || replace "$seed"
done
echo "ok: $programs programs, from seed $first on"
finish
