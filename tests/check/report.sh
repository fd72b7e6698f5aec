#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tofu-check over the simulator, where all holds; over the adversarial one, where it names what is weaker; over
# libraries with a fault, which it finds; and as a launcher starts it.
# Called by: make check. Calls: check/tofu-check, tofu-sim, tests/check/libfaulty.so.
set -u
build=${TOFU_TOP_BUILDDIR:?set by make check}
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
check=$build/check/tofu-check
library=$build/tofu_sim/.libs/libtofucom.so
faulty=$build/tests/check/.libs/libfaulty.so
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch TOFU_SIM_PPN=2

# The result of each check in the last report.
names() # VERDICT
{
    sed -n "s/^$1  *\([a-z-]*\) .*/\1/p" "$scratch/report" | tr '\n' ' '
}
report() # OPTIONS
{
    "$check" --library "$library" "$@" >"$scratch/report" 2>&1
}
# A reader that has no processor while the bytes come sees no order broken: up to five reports, until one has what is to
# be seen.
report_until() # CONDITION OPTIONS
{
    local seen=$1 status=0 turn
    shift
    for turn in 1 2 3 4 5; do
        report "$@"
        status=$?
        ! $seen || break
    done
    return $status
}
shown()
{
    [ "$failures" = "$1" ] || cat "$scratch/report"
}

"$check" --list | sed 's/ .*//' | sort >"$scratch/names"
"$check" --list >/dev/full 2>"$scratch/full"
expect "a report that cannot be written is a failure" "1 1" "$? $(grep -c '^tofu-check: cannot write to standard output' "$scratch/full")"
rm -f "$scratch/full"
expect "docs/fugaku.md names checks that there are" "" "$(grep -oE '`(error|reg|vcq|armw)-[a-z-]+`|`fence`|`acquire`|`largest`' \
    "$TOFU_TOP_SRCDIR/docs/fugaku.md" | tr -d '`' | sort -u | comm -23 - "$scratch/names" | tr '\n' ' ')"
rm "$scratch/names"

before=$failures
report
expect "over the simulator it passes" 0 $?
all=$("$check" --list | wc -l)
expect "every check is in the report" "$all" "$(grep -cE '^(holds|weaker|fails|not tried) ' "$scratch/report")"
expect "nothing fails" "" "$(names fails)"
expect "all was tried" "" "$(names 'not tried')"
# Outside the adversarial mode the simulator's lines may be seen in part, and two looks be far apart (tofu_sim(7)).
expect "and holds" "" "$(names weaker | sed 's/whole-lines //; s/polls //')"
expect "with figures" 8 "$(grep -c 'Tofu-D: ' "$scratch/report")"
# A matrix of latency and one of bandwidth, with a column for each of the six TNIs.
expect "from each NUMA node through each TNI" "2 or more of 6 figures" \
    "$(grep -E 'NUMA node [0-9]+, (processors|not bound,) [0-9,-]+( +[0-9.]+){6}$' "$scratch/report" |
        wc -l | awk '{print ($1 >= 2 && $1 % 2 == 0 ? "2 or more" : $1) " of 6 figures"}')"
expect "and a line on assistant cores" 1 "$(grep -c 'assistant cores' "$scratch/report")"
shown "$before"

# Topologies that are none, or have none of our processors: a line in place of the matrix.
before=$failures
echo "<topology version='2.0'></topology>" >"$scratch/broken.xml"
HWLOC_XMLFILE=$scratch/broken.xml report --only figures
expect "a broken topology" "0 1 0" \
    "$? $(grep -c 'cannot read the topology.*HWLOC_XMLFILE' "$scratch/report") $(grep -c 'NUMA node' "$scratch/report")"
rm "$scratch/broken.xml"
HWLOC_SYNTHETIC='numanode:2 core:1 pu:1(indexes=1000,1001)' HWLOC_THISSYSTEM=1 report --only figures
expect "no allowed processor" "0 1 0" \
    "$? $(grep -c "none of the processors.*hwloc's topology.*HWLOC_XMLFILE" "$scratch/report") $(grep -c 'NUMA node' "$scratch/report")"
shown "$before"

# All freedoms together, and what each of them takes away by itself.
before=$failures
all_freedoms='whole-lines plain-order read-after-write polls free-vcq '
weaker() { names weaker | sed 's/armw-after-put //; s/acquire //'; }
all_are_weaker() { [ "$(weaker)" = "$all_freedoms" ]; }
TOFU_SIM_CHAOS=7:late,drop,raw,poll,torn report_until all_are_weaker --no-figures
expect "adversarial: nothing fails" "0 " "$? $(names fails)"
expect "adversarial: which checks are weaker" "$all_freedoms" "$(weaker)"
shown "$before"
freedoms='whole-lines,plain-order,read-after-write,free-vcq,strong-order,last-word'
for pair in late:plain-order drop:free-vcq raw:read-after-write torn:whole-lines poll:polls; do
    before=$failures
    it_is_weaker() { names weaker | grep -qw -- "${pair#*:}"; }
    TOFU_SIM_CHAOS=7:${pair%:*} report_until it_is_weaker --no-figures --only "$freedoms,${pair#*:}"
    expect "chaos ${pair%:*}: nothing fails" "0 " "$? $(names fails)"
    expect "chaos ${pair%:*}: what is weaker" yes "$(it_is_weaker && echo yes)"
    shown "$before"
done
before=$failures
TOFU_SIM_CHAOS=7:raw report --only read-after-write,free-vcq --no-figures
expect "what a freedom leaves alone holds" "free-vcq " "$(names holds)"
shown "$before"

# Control queues of a node are not assigned to processes.
for pair in refuse:weaker meet:fails; do
    before=$failures
    TOFU_SIM_CQS=${pair%:*} report --no-figures --only vcq-two-processes,vcq-id
    expect "CQs that are not parted, ${pair%:*}" "vcq-two-processes " "$(names "${pair#*:}")"
    expect "with the code of the process that was refused, ${pair%:*}" 0 "$(grep -c 'SUCCESS$' "$scratch/report")"
    shown "$before"
done

# Faults, and the checks that detect them. In time that the answer to an error takes, 0.6 seconds here.
find_fault() # FAULT NAMES-THAT-FAIL CHECKS
{
    before=$failures
    library=$faulty FAULT=$1 report --patience 1 --no-figures --only "$3"
    expect "fault $1: status" 1 $?
    expect "fault $1: which checks fail" "$2 " "$(names fails)"
    shown "$before"
}
both_fail() { [ "$(names fails)" = "strong-order last-word " ]; }
TOFU_SIM_CHAOS=3:late FAULT=unordered library=$faulty report_until both_fail --patience 1 --no-figures \
    --only strong-order,last-word,edata
expect "fault unordered: status" 1 $?
expect "fault unordered: which checks fail" "strong-order last-word " "$(names fails)"
find_fault repeats write-after-write write-after-write,edata
find_fault silent "error-put error-get error-unsignaled" error-put,error-get,error-unsignaled,error-own-memory
find_fault mixed-up "notice-fields notice-order error-identified" notice-fields,notice-order,error-identified,armw-ops
find_fault other-stag reserved-stags reserved-stags,reg-bounds
find_fault other-refusal vcq-full vcq-full,vcq-exclusive
find_fault late-copy "put-any-length piggyback" put-any-length,piggyback,largest
find_fault spills padded-line padded-line,last-word,piggyback
find_fault writable reg-read-only reg-read-only,reg-bounds
find_fault gates "gates gates-again" gates,gates-again,tnis
find_fault halves whole-words whole-words,tnis
before=$failures
library=$faulty FAULT=still report --patience 1 --no-figures --only whole-words,tnis
expect "changes that are not seen prove nothing" "0 whole-words  tnis " "$? $(names 'not tried') $(names holds)"
expect "the report says how many were seen" 1 "$(grep -c 'only [0-9]* changes of words by Puts were seen' "$scratch/report")"
shown "$before"
find_fault dies vcq-id vcq-id,tnis
expect "a process that dies is reported with its signal" 1 "$(grep -c 'ended by signal 6' "$scratch/report")"
before=$failures
library=$faulty FAULT=hangs report --patience 0.2 --no-figures --only vcq-id,tnis
expect "one that hangs is ended" "1 vcq-id  tnis " "$? $(names fails) $(names holds)"
shown "$before"
before=$failures
library=libc.so.6 report --no-figures --only functions,tnis
expect "a library of something else" "1 functions  tnis " "$? $(names fails) $(names 'not tried')"
library=/none/libtofucom.so report
expect "no library" "2 1" "$? $(grep -c '/none/libtofucom.so.*--library' "$scratch/report")"
shown "$before"

# Two processes of a launcher, and more than two: the first one reports. On other nodes of the simulator.
some=functions,vcq-two-processes,strong-order,error-get,error-killed
launch() # PROCESSES OPTIONS
{
    local n=$1
    shift
    TOFU_SIM_PPN= "$build/tofu_sim/tools/tofu-sim" run -n "$n" --timeout 60 "$check" --library "$library" \
        --only "$some" --no-figures "$@" >"$scratch/report" 2>&1
}
for n in 2 3; do
    before=$failures
    launch $n --meet "$scratch/meet"
    expect "$n processes of a launcher" "0 4 1" "$? $(grep -c ^holds "$scratch/report") $(grep -c '^not tried' "$scratch/report")"
    expect "their directory is empty behind them" "" "$(ls "$scratch/meet")"
    shown "$before"
done
before=$failures
some=functions,strong-order,error-get
launch 2 --meet "$scratch/meet" --here
expect "in the launcher's own processes" "0 3" "$? $(grep -c ^holds "$scratch/report")"
launch 2
expect "a launcher without a directory" "2 yes" "$? $(grep -q 'was started by a launcher: use --meet' "$scratch/report" && echo yes)"
: >"$scratch/meet/here.0"
launch 2 --meet "$scratch/meet" --patience 0.1
expect "a directory that was used" "2 yes" "$? $(grep -q 'needs a new directory' "$scratch/report" && echo yes)"
report --only no-such-check
expect "a check that there is not" "2 1" "$? $(grep -c 'unknown check no-such-check' "$scratch/report")"
for value in 0 -1 1e400 inf nan 0x10 5s ' 5' '' 86401 1e-9; do
    report --only tnis --no-figures --patience "$value"
    expect "--patience '$value'" "2 1" "$? $(grep -c 'use seconds, 0.001 to 86400' "$scratch/report")"
done
for value in -1 x 1x 99999999999 ''; do
    report --only tnis --no-figures --rank "$value"
    expect "--rank '$value'" "2 1" "$? $(grep -c 'use the number of this process' "$scratch/report")"
done
report --nonsense
expect "an option that there is not" 2 $?
shown "$before"
expect "nothing is left" "meet report " "$(ls "$scratch" | tr '\n' ' ')"
exit $((failures != 0))
