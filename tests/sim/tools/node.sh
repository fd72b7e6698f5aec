#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tofu-sim run: which processors processes get, and which node they see (--node); tofu-sim node.
# Called by: make check. Calls: tofu-sim, taskset, tests/node_subject.
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
run()
{
    "$tofu_sim" run --timeout 20 "$@" </dev/null >out 2>err
}

run -n 2 --node a64fx sh -c 'cat "$HWLOC_XMLFILE"'
expect "processes see a file" "0 2" "$? $(grep -c '</topology>' out)"
"$tofu_sim" node a64fx >node.xml
expect "tofu-sim node" "0 1" "$? $(grep -c '</topology>' node.xml)"
HWLOC_SYNTHETIC='core:3 pu:1' HWLOC_THISSYSTEM=1 run -n 1 --node a64fx sh -c 'cat "$HWLOC_XMLFILE"; env | grep HWLOC_'
expect "it is the same, and nothing else is in front of it" 0 \
    "$(grep -v '^HWLOC_XMLFILE=' out | cmp - node.xml >/dev/null; echo $?)"
run -n 1 sh -c 'echo "${HWLOC_XMLFILE-none}"'
expect "without, nothing is said to hwloc" none "$(cat out)"
LD_PRELOAD= run -n 1 --node a64fx --clock sh -c 'echo $LD_PRELOAD | sed "s,[^:]*/,,g"'
expect "what is loaded in front" libtofu-sim-clock.so:libtofu-sim-node.so "$(cat out)"
subject=$build/tests/node_subject
for hidden in "" hidden; do
    run -n 1 --node a64fx "$subject" $hidden
    expect "binding is said to work, and does nothing ${hidden:+(hwloc is $hidden)}" "0 supported 1, done 0, processors 48" "$? $(cat out)"
    HWLOC_XMLFILE=$PWD/node.xml run -n 1 "$subject" $hidden
    expect "without the library hwloc says that it does not" "0 supported 0, done 0, processors 48" "$? $(cat out)"
    LD_PRELOAD=$build/tofu_sim/.libs/libtofu-sim-node.so run -n 1 "$subject" $hidden
    expect "of this machine it says what is true" "0 supported 1, done 0" "$? $(sed 's/, processors.*//' out)"
done
for wrong in "run -n 1 --node cray true" "run -n 1 --bind core true" "node" "node a64" "node a64fx a64fx"; do
    # shellcheck disable=SC2086
    "$tofu_sim" $wrong >/dev/null 2>err
    expect "refused: $wrong" "2 1" "$? $(wc -l <err)"
done

if [ "$(nproc)" -ge 2 ]; then
    run -n 2 sh -c 'taskset -cp $$ | sed "s/.*: //"'
    expect "two nodes have no processor in common" 2 "$(sort -u out | wc -l)"
    expect "and it is said" 1 "$(grep -c "^tofu-sim: the processes of each node are bound to separate processors: .* | " err)"
    run -n 2 --ppn 2 sh -c 'taskset -cp $$ | sed "s/.*: //"'
    expect "one node has all" "1 0" "$(sort -u out | wc -l) $(wc -l <err)"
    run -n 2 --bind none sh -c 'taskset -cp $$ | sed "s/.*: //"'
    expect "--bind none" "1 0" "$(sort -u out | wc -l) $(wc -l <err)"
fi
echo "<topology version='2.0'></topology>" >broken.xml
HWLOC_XMLFILE=$PWD/broken.xml run -n 2 true
expect "a topology that is none: a line, and it goes on" "0 1" "$? $(grep -c '^tofu-sim: hwloc cannot read the topology' err)"

finish
