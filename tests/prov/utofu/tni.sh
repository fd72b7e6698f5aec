#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The processes of a node take its six TNIs evenly (prov/tofu/src/utofu/tni_allocator.h), whatever their number, and what one
# had is taken again when it has ended or was killed. If no launcher gives each process its control queues (guide 4.1.2),
# a process that would share one with another is refused, and FI_TOFU_PPN gives each its TNIs.
# Called by: make check. Calls: tests/tni_subject, tofu-sim show.
set -u
tofu_sim=${TOFU_SIM_COMMAND:?set by make check}
subject=${TOFU_TOP_BUILDDIR:?set by make check}/tests/tni_subject
job=${TOFU_TEST_JOB_PREFIX:?set by tests/run_limited}-t
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
export TOFU_SIM_JOB=$job TOFU_SIM_PPN=4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

declare -A input pid
start() # name, endpoints, contexts of a scalable endpoint
{
    local word output
    rm -f "$scratch/$1".*
    mkfifo "$scratch/$1.in" "$scratch/$1.out"
    (
        for word in "${input[@]}"; do # else those before would not see their end
            exec {word}>&-
        done
        exec "$subject" "$2" "${3:-0}" <"$scratch/$1.in" >"$scratch/$1.out"
    ) &
    pid[$1]=$!
    exec {word}>"$scratch/$1.in" {output}<"$scratch/$1.out"
    input[$1]=$word
    read -r -t 60 word <&"$output"
    expect "$1 has its VCQs" ready "${word:-}"
    exec {output}<&-
}
finish() # name
{
    local fd=${input[$1]}
    exec {fd}>&-
    unset "input[$1]"
    wait "${pid[$1]}"
    expect "$1 ends well" 0 $?
}
spread() # VCQs of each TNI of the node, 0 to 5
{
    "$tofu_sim" show --vcqs "$job" >"$scratch/shown" 2>&1
    for tni in 0 1 2 3 4 5; do
        awk -v vcq="tni $tni cq [0-9]* component" \
            '/^  rank /{dead = /DEAD/} !dead && $0 ~ vcq {n++} END {printf "%d ", n}' "$scratch/shown"
    done
}

start a 1
expect "what comes in and what goes out lie apart" "1 0 0 0 0 1 " "$(spread)"
start b 1
start c 1
expect "three processes have a TNI for each VCQ" "1 1 1 1 1 1 " "$(spread)"
start d 1
expect "four processes use all TNIs" "1 1 2 2 1 1 " "$(spread)"
kill -KILL "${pid[b]}"
wait "${pid[b]}" 2>/dev/null
start e 1
expect "the place of one that was killed is taken" "1 1 2 2 1 1 " "$(spread)"
finish d
start f 4
expect "one with four endpoints in its stead fills the gaps" "2 2 2 2 1 2 " "$(spread)"
for name in a c e f; do
    finish $name
done
start g 11
expect "alone it uses all of them too" "2 2 2 2 2 2 " "$(spread)"
finish g
start h 0 5
expect "contexts of a scalable endpoint have a TNI each" "1 1 1 1 1 1 " "$(spread)"
start i 0 5
expect "also those of two processes" "2 2 2 2 2 2 " "$(spread)"
finish h
finish i

refused() # what it says
{
    "$subject" 1 </dev/null >"$scratch/said" 2>&1
    expect "$TOFU_SIM_CQS: one more is refused" "1 1" "$? $(grep -c -- "$1" "$scratch/said")"
}
export TOFU_SIM_PPN=8
for TOFU_SIM_CQS in refuse meet; do
    export TOFU_SIM_CQS TOFU_SIM_JOB=$job-$TOFU_SIM_CQS
    job=$TOFU_SIM_JOB
    for name in a b c; do
        start $name 1
    done
    expect "$TOFU_SIM_CQS: three processes have a TNI for each VCQ" "1 1 1 1 1 1 " "$(spread)"
    case $TOFU_SIM_CQS in
    refuse) refused 'cannot go on: -' ;;
    meet) refused "control queue [0-9]* of TNI [0-9] belongs to another process.*set FI_TOFU_PPN" ;;
    esac
    expect "$TOFU_SIM_CQS: the three have what they had" "1 1 1 1 1 1 " "$(spread)"
    for name in a b c; do
        finish $name
    done
    export FI_TOFU_PPN=6
    for name in a b c d e f; do
        start $name 2
    done
    expect "$TOFU_SIM_CQS: six processes have a TNI each" "3 3 3 3 3 3 " "$(spread)"
    refused 'FI_TOFU_PPN=6: all 6 TNIs are in use by other processes'
    finish c
    start g 2
    expect "$TOFU_SIM_CQS: the TNI of one that ended is taken" "3 3 3 3 3 3 " "$(spread)"
    for name in a b d e f g; do
        finish $name
    done
    export FI_TOFU_PPN=2
    start a 2
    expect "$TOFU_SIM_CQS: two processes have three TNIs each" "1 1 1 0 0 0 " "$(spread)"
    finish a
    unset FI_TOFU_PPN
done
[ "$failures" = 0 ] || { echo "$failures checks failed"; exit 1; }
echo "all checks passed"
