#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tofu-sim replay: what the virtual clock says of a run it says too, and patterns take what the model says, up to the
# whole machine. Called by: make check. Calls: tofu-sim, the examples, tests/clock_subject,
# tests/exact_subject.
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
replay()
{
    "$tofu_sim" replay "$@" >out 2>err
}
# "(TIME) us" behind a word, in nanoseconds.
time_of()
{
    sed -n "s/.*$1 \([0-9.e+]*\) us.*/\1/p" out | awk '{ printf "%.0f\n", $1 * 1000 }'
}
within() # PERCENT A B
{
    awk -v p="$1" -v a="$2" -v b="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; if (a > 0 && d * 100 <= p * b) print "yes"; else print a " " b }'
}
record() # NAME PROCESSES PROGRAM ARGUMENTS
{
    mkdir "$1"
    TOFU_SIM_TRACE=$1 TOFU_SIM_CLOCK=tofud TOFU_SIM_CPU=0 "$tofu_sim" run --timeout 60 -n "$2" "${@:3}" </dev/null >said 2>&1 ||
        { cat said; exit 1; }
}

# Lines that need none.
replay
expect "neither a trace nor a pattern" "2 1" "$? $(grep -c 'or a --pattern' err)"
replay --pattern rings
expect "a pattern that is none" "2 1" "$? $(grep -c 'use pingpong, ring, alltoall' err)"
replay --pattern ring -n 30
expect "a shape that does not hold the processes" "2 1" \
    "$? $(grep -c '30 processes, 1 of a node, need 30 nodes, but 1x1x1 has 12: use a larger --shape or a --ppn of 3' err)"
replay --pattern ring --shape 25x23x24x
expect "a shape that is none" "2 1" "$? $(grep -c 'such as 4x6x2' err)"
for pair in "--ppn 55" "--torus q" "--placement here" "--placement random" "--placement box:4x6" "--placement box:5x6x4" "--paths best" "--link 0" "--cpu fast" "--bytes 16777216" "--rounds 0"; do
    # shellcheck disable=SC2086
    replay --pattern ring $pair
    expect "$pair" "2 1" "$? $(grep -c ': use ' err)"
done
replay --pattern ring --placement box:4x6x16 --shape 2x2x7
expect "a box that the shape does not hold" "2 1" "$? $(grep -c 'box needs 2x2x8 units of 2x3x2 nodes: use a --shape of as many' err)"
replay --pattern ring --placement box 4x6x16 -n 385
expect "more processes than the box has nodes" "2 1" "$? $(grep -c 'need 385 nodes, but the box has 384: use a larger box or --ppn' err)"
replay --pattern gates --shape 8x8x16
expect "a barrier by gates takes what was published for 49,152 processes" yes "$(within 10 "$(time_of nodes\ of\ 8x8x16:)" 8270)"
replay --pattern gates --shape 24x12x8 --torus none
open=$(time_of nodes\ of\ 24x12x8:)
replay --pattern gates --shape 24x12x8
expect "gates of 27,648 nodes need no torus: their rings close without" yes "$(within 15 "$open" "$(time_of nodes\ of\ 24x12x8:)")"
record pair 2 "$build/tests/clock_subject" 16640
replay pair --shape 1x1x1 --ppn 1 --placement random:3 --rounds
expect "an option without its value" "2 1" "$? $(grep -c 'value is missing' err)"
cp -r pair cut
for file in cut/*; do truncate -s 100 "$file"; done
replay cut
expect "traces that are cut off" "1 1" "$? $(grep -c 'ends within its header' err)"
cp -r pair old
for file in old/*; do printf '\001' | dd of="$file" bs=1 seek=8 conv=notrunc 2>dd.log; done
replay old
expect "traces of another version" "1 1" "$? $(grep -c 'has version 1, this tofu-sim reads 3; use' err)"

# Where there is no SimGrid: the command without what came with it.
cp "$tofu_sim" alone
./alone replay pair 2>err
expect "without SimGrid a line says what to install" "1 1" "$? $(grep -c 'install libsimgrid-dev.*--share 0' err)"
./alone replay --share 0 pair >out 2>err
expect "messages take turns without it" "0 1" "$? $(grep -c 'as recorded' out)"

# A process with several VCQs: each has an order of its own, and a put that was not sent has an entry of the TCQ only.
record queues 1 "$build/tests/exact_subject" queues
replay --share 0 queues
expect "several VCQs: it comes to its end" "0 1" "$? $(grep -c 'as recorded' out)"
expect "several VCQs: clock and replay agree" yes "$(within 10 "$(time_of recorded:)" "$(time_of recorded\ with)")"

# Patterns: bench/time's rows of 8 and 16,640 bytes, and the two flows that share a link.
replay --pattern pingpong -n 2
expect "a ping-pong of 8 bytes" yes "$(within 1 "$(time_of B:)" 980)"
replay --pattern pingpong -n 2 --bytes 16640
expect "and of 16,640" yes "$(within 1 "$(time_of B:)" 3836)"
for pattern in ring butterfly barrier broadcast reduce allreduce allgather alltoall halo3 halo6; do
    bytes="--bytes 3000"
    [ $pattern != barrier ] || bytes=
    # shellcheck disable=SC2086
    replay --pattern $pattern --shape 2x2x2 --torus x --ppn 2 $bytes --rounds 2
    expect "$pattern comes to its end" "0 1" "$? $(grep -c "^$pattern.* of 192 processes on 2x2x2" out)"
done
for pair in "broadcast binomial" "broadcast chain" "broadcast double-tree" "broadcast scatter-allgather" \
    "allreduce provider" "allreduce doubling" "allreduce ring" "allgather bruck" "allgather ring" \
    "alltoall bruck" "alltoall pairwise" "alltoall linear"; do
    read -r pattern algorithm <<<"$pair"
    replay --pattern "$pattern" --algorithm "$algorithm" --shape 2x2x2 --bytes 30000 --placement snake
    expect "$pair comes to its end" "0 1" "$? $(grep -cE "^$pattern by ($algorithm|ring|doubling) of 96" out)"
done
# Neighbours in rank are neighbours in the network: a hop of 8 bytes, and the post before it.
for placement in snake box:4x6x16 "box 4x6x16"; do
    # shellcheck disable=SC2086
    replay --pattern ring --bytes 8 --shape 2x2x8 --rounds 1 --placement $placement
    [ "$placement" = snake ] && most=990 || most=1100 # rows of a box end at other nodes
    expect "a ring by $placement" yes "$(within 6 "$(time_of B:)" $((most - 20)))"
done
replay --pattern halo3 --bytes 8 --placement box:4x6x16 --ppn 2
expect "halo3 on the grid of a box: six messages each" "768 4608" "$(sed -n 's/^halo3 of \([0-9]*\) .*/\1/p' out) $(($(sed -n 's/^\([0-9]*\) messages.*/\1/p' out) / 10))"
replay --pattern broadcast --algorithm chain --segment 4096 --bytes 1048576 --placement snake --shape 2x2x2
small=$(time_of B:)
replay --pattern broadcast --algorithm chain --segment 65536 --bytes 1048576 --placement snake --shape 2x2x2
expect "a long chain of short segments is faster" yes "$([ "$small" -lt "$(time_of B:)" ] && echo yes)"
# Axes of the whole machine wrap around by default; parts of them do not.
replay --pattern pingpong --shape 24x1x1 -n 288
ends=$(time_of B:)
replay --pattern pingpong --shape 24x1x1 -n 288 --torus none
expect "a whole axis is a torus" yes "$([ "$ends" -lt $(($(time_of B:) - 1500)) ] && echo yes)"
replay --pattern pingpong --shape 23x1x1 -n 276
expect "a part of one is none" yes "$([ "$(time_of B:)" -gt $((ends + 1000)) ] && echo yes)"
# All distances are played: nothing is extrapolated, and two rounds take twice as long.
replay --pattern alltoall --algorithm pairwise --bytes 2048 --shape 2x2x2
one=$(time_of B:)
expect "each process sends to each other one" $((96 * 95)) "$(sed -n 's/^\([0-9]*\) messages.*/\1/p' out)"
replay --pattern alltoall --algorithm pairwise --bytes 2048 --shape 2x2x2 --rounds 2
expect "a round of two takes as long" yes "$(within 2 "$(time_of B:)" "$one")"
expect "a short replay says nothing of its progress" 0 "$(wc -c <err)"
timeout -s KILL 60 "$tofu_sim" replay --pattern alltoall --bytes 8192 --shape 8x8x16 >out 2>err &
long=$!
for ((i = 0; i < 500; i++)); do grep -q 'remaining: about' err && break; sleep 0.1; done
kill "$long" 2>/dev/null
wait "$long" 2>/dev/null
expect "a long one says how long it will take" 1 "$(grep -c '^tofu-sim: [0-9]* of about [0-9]* messages took [0-9]* s; remaining: about [0-9]* s$' err)"
for refused in "gates -n 12" "gates --bytes 8" "gates-sum --rounds 2" "gates --ppn 2" "gates --share 5" "gates --link 5" \
    "gates --placement random:1" "gates --paths source" "barrier --bytes 8" "ring --cpu 2" \
    "ring --algorithm ring" "barrier --algorithm ring" "reduce --segment 5" "broadcast --segment 5" \
    "broadcast --algorithm scatter-allgather --segment 5" "gates --algorithm ring" "gates --segment 5"; do
    # shellcheck disable=SC2086
    replay --pattern $refused
    expect "--pattern $refused is refused" "2 1" "$? $(grep -c 'omit it$' err)"
done
replay --pattern alltoall --algorithm chain
expect "an algorithm of another pattern" "2 1" "$? $(grep -c 'chain: alltoall takes bruck, pairwise, linear' err)"
replay --pattern halo6 --placement snake
expect "halo6 along a snake" "2 1" "$? $(grep -c 'use order or random' err)"
replay --pattern allreduce --bytes 100000
expect "an allreduce of slices" 0 $?
replay --pattern ring --shape 24x23x24 --torus xyz --rounds 1
expect "158,976 nodes" "0 1" "$? $(grep -c '^ring of 158976 processes on 24x23x24 (158976 nodes)' out)"

for refused in "-n 2" "--bytes 8" "--rounds 2" "--algorithm ring" "--segment 9"; do
    # shellcheck disable=SC2086
    replay pair $refused
    expect "a trace with $refused is refused" "2 1" "$? $(grep -c 'applies to patterns only: a trace has its own' err)"
done
if ! [ -e "$build/tofu_sim/.libs/libtofu-sim-simgrid.so" ]; then
    [ "$failures" = 0 ] || exit 1
    echo "skipped: the rest needs SimGrid (install libsimgrid-dev and configure again)"
    exit 77
fi

# What the clock has seen, played again.
record mrq 2 "$build/tofu_sim/examples/put_pingpong_mrq"
record memory 2 "$build/tofu_sim/examples/put_pingpong_memory"
record stride 2 "$build/tofu_sim/examples/put_stride"
record armw 5 "$build/tofu_sim/examples/armw_tickets"
record gates 6 "$build/tofu_sim/examples/barrier_ring"
for name in pair mrq memory stride armw gates; do
    replay $name
    expect "$name: it comes to its end" "0 1" "$? $(grep -c 'as recorded' out)"
    expect "$name: clock and replay agree" yes "$(within 10 "$(time_of recorded:)" "$(time_of recorded\ with)")"
done
# 400 messages of 2.6 us on a link: at half the speed these take twice as long.
replay pair
before=$(time_of recorded:)
replay pair --link 3.4
expect "at half the speed links take twice as long" yes "$(within 5 "$(($(time_of recorded:) - before))" $((404 * 2625)))"
replay pair --shape 4x1x1 --placement random:5
hops=$(awk '/^  link/ { n++ } END { print n }' out)
expect "elsewhere each further hop costs 77.5 ns" yes \
    "$(within 20 "$(($(time_of nodes\):) - before))" $((404 * (hops - 2) / 2 * 775 / 10)))"
replay pair --ppn 2
expect "on one node there is no hop" 0 "$(grep -c '^  link' out)"

# Turns and even shares: every process sends on, with the network that a shift by 12 meets.
replay --pattern alltoall --algorithm pairwise --bytes 100000 --shape 2x1x1 --share 5000
shared=$(time_of B:)
expect "what meets is shared out" yes "$(grep -q 'SimGrid [34].* computed [1-9]' out && echo yes)"
replay --pattern alltoall --algorithm pairwise --bytes 100000 --shape 2x1x1 --share 3
expect "further ones take turns" yes "$(grep -q '[1-9][0-9]* were served in turn' out && echo yes)"
replay --pattern alltoall --algorithm pairwise --bytes 100000 --shape 2x1x1
expect "turns take a similar time" yes "$(within 35 "$(time_of B:)" "$shared")"

finish
