#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# TOFU_SIM_TRACE and tofu-sim trace: jobs are recorded, and what is written can be read by those it is meant for.
# Called by: make check. Calls: tofu-sim, the examples, tests/show_subject, python3 (JSON), otf2-print where it is there.
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
examples=$build/tofu_sim/examples
run()
{
    "$tofu_sim" run --timeout 60 "$@"
}
# What both sides of a pair of figures in a GOAL file must agree on.
unmatched()
{
    awk '/^rank/ { rank = $2 }
         $2 == "send" { key = rank " " $5 " " $7 " " $3; n[key]++ }
         $2 == "recv" { key = $5 " " rank " " $7 " " $3; n[key]-- }
         END { for (k in n) if (n[k] != 0) bad++; print bad + 0 }' "$1"
}
# Perfetto's rules: slices of a track nest; each arrow begins and ends in a slice.
cat >judge.py <<'EOF_PY'
import json, sys
trace = json.load(open(sys.argv[1]))
slices, begins, ends, kinds = {}, {}, {}, {}
for event in trace["traceEvents"]:
    kinds[event["ph"]] = kinds.get(event["ph"], 0) + 1
    track = (event["pid"], event.get("tid"))
    if event["ph"] == "X":
        start = round(event["ts"] * 1000)
        slices.setdefault(track, []).append((start, start + round(event["dur"] * 1000)))
    elif event["ph"] in "sf":
        (begins if event["ph"] == "s" else ends)[event["id"]] = (track, round(event["ts"] * 1000))
bad = 0
for track, list_ in slices.items():
    list_.sort(key=lambda s: (s[0], -s[1]))
    stack = []
    for start, end in list_:
        while stack and stack[-1] <= start:
            stack.pop()
        bad += bool(stack) and end > stack[-1]
        stack.append(end)
starts = {track: {start for start, end in list_} for track, list_ in slices.items()}
for track, time in list(begins.values()) + list(ends.values()):
    bad += time not in starts.get(track, ())
bad += begins.keys() != ends.keys()
bad += any(begins[i][1] > ends[i][1] for i in begins if i in ends)
print(bad, len(begins), kinds.get("X", 0) > 0)
EOF_PY

mkdir put
TOFU_SIM_TRACE=put run -n 2 "$examples/put_stride" >/dev/null
expect "a traced job ends well" 0 $?
expect "there is a trace of each process" 2 "$(find put -name '*.trace' | wc -l)"
"$tofu_sim" trace put >summary
expect "its summary names the job's shape" 1 "$(grep -c '2 processes on 1x1x1 (12 nodes)' summary)"
expect "and the link between the two" 1 "$(grep -c '^  link (0,0,0,0,0,[01]) C: ' summary | sed 's/2/1/')"
"$tofu_sim" trace --json put.json --goal=put.goal put
expect "Chrome's JSON and GOAL are written" 0 $?
expect "no unfinished file is left" 0 "$(find . -name '*.part' | wc -l)"
if command -v python3 >/dev/null; then
    python3 -m json.tool put.json >/dev/null
    expect "a parser of JSON reads it" 0 $?
    read -r bad arrows any < <(python3 judge.py put.json)
    expect "slices nest, arrows have both ends, in time" "0 True" "$bad $any"
    expect "there are arrows" yes "$([ "$arrows" -gt 5 ] && echo yes)"
else
    echo "skipped: no python3 to read JSON with"
fi
expect "each recv of GOAL has its send" 0 "$(unmatched put.goal)"
expect "and there are some" yes "$([ "$(grep -c ': send' put.goal)" -gt 5 ] && echo yes)"
expect "a label that is required is there" 0 "$(awk '/^rank/ { delete l } /^l[0-9]+:/ { l[substr($1, 1, length($1) - 1)] = 1 }
    /requires/ && !(($1 in l) && ($3 in l)) { n++ } END { print n + 0 }' put.goal)"
if "$tofu_sim" trace --otf2 put.otf2 put 2>refusal; then
    if command -v otf2-print >/dev/null; then
        otf2-print put.otf2/run.otf2 >printed 2>warned
        expect "otf2-print reads OTF2" 0 $?
        expect "without a warning" "" "$(cat warned)"
        expect "puts stand in it" yes "$([ "$(grep -c '^RMA_PUT' printed)" -gt 2 ] && echo yes)"
        expect "regions are left as often as entered" "$(grep -c '^ENTER' printed)" "$(grep -c '^LEAVE' printed)"
    else
        echo "skipped: no otf2-print (install otf2-tools)"
    fi
    "$tofu_sim" trace --otf2 put.otf2 put 2>/dev/null
    expect "what is there is not written over" 1 $?
else
    expect "without OTF2 a line says what to install" 1 "$(grep -c 'install libopen-trace-format2-dev' refusal)"
fi

# A name that the user has made something else of than a plain file is written to, and stays what it is.
ln -s through.json link.json
ln -s /proc/self/fd/1 said.json
mkfifo pipe.json
"$tofu_sim" trace --json link.json put
expect "a symbolic link to nothing makes its file" 0 $?
"$tofu_sim" trace --json link.json put
expect "a symbolic link is written through" "yes $(wc -c <put.json)" \
    "$([ -L link.json ] && echo yes) $([ ! -L through.json ] && wc -c <through.json)"
expect "and one to the standard output" "yes $(wc -c <put.json)" \
    "$([ -L said.json ] && echo yes) $("$tofu_sim" trace --json said.json put | wc -c)"
cat pipe.json >piped.json &
"$tofu_sim" trace --json pipe.json put
expect "a pipe is written to" 0 $?
kill -0 $! 2>/dev/null && [ ! -p pipe.json ] && kill $!
wait $!
expect "and is one afterwards" "yes $(wc -c <put.json)" "$([ -p pipe.json ] && echo yes) $(wc -c <piped.json)"
ln -s nowhere/x.json dangling.json
"$tofu_sim" trace --json dangling.json put 2>refusal
expect "a symbolic link into no directory is refused" "1 cannot write to dangling.json" \
    "$? $(grep -o "cannot write to dangling.json" refusal)"

# Other ways through the TNI: barriers, atomics, a queue of session mode, the adversarial mode, a name by a pattern.
TOFU_SIM_TRACE=gates.%r run -n 3 "$examples/barrier_ring" >/dev/null && "$tofu_sim" trace --json gates.json gates.[0-2]
expect "barriers stand in a trace" yes "$([ "$(grep -c '"cat":"gates"' gates.json)" -gt 3 ] && echo yes)"
TOFU_SIM_TRACE=armw.%r run -n 3 "$examples/armw_tickets" >/dev/null && "$tofu_sim" trace --goal armw.goal armw.[0-2]
expect "atomics ask and are answered" 0 "$(unmatched armw.goal)"
TOFU_SIM_TRACE=session run -n 3 "$examples/session_pipeline" >/dev/null && "$tofu_sim" trace --json session.json session.[0-2]
expect "what a put starts in a queue of session mode arrives" yes \
    "$([ "$(grep -c '"cat":"arrival","name":"put"' session.json)" -gt 3 ] && echo yes)"
TOFU_SIM_TRACE=chaos run -n 2 --chaos 7 "$examples/put_pingpong_mrq" >/dev/null &&
    "$tofu_sim" trace --json chaos.json chaos.[01]
expect "late puts arrive" yes "$([ "$(grep -c '"cat":"arrival","name":"put"' chaos.json)" -gt 100 ] && echo yes)"
if command -v python3 >/dev/null; then
    for file in gates session chaos; do
        read -r bad _ < <(python3 judge.py $file.json)
        expect "$file: slices nest, arrows have both ends" 0 "$bad"
    done
fi

# Parts. What a program does before its first message does not belong to the picture.
mkdir part
TOFU_SIM_CLOCK=tofud TOFU_SIM_TRACE=part run -n 2 "$examples/put_pingpong_mrq" >/dev/null
"$tofu_sim" trace part >summary
expect "the picture begins with the first message" 1 \
    "$(grep -c '^from the first message between processes to the end: .*; --from start shows all$' summary)"
operations=$(sed -n '2s/ operations, .*//p' summary)
"$tofu_sim" trace --from start part >summary
expect "or with the first process" "0 $operations" "$(grep -c '^from ' summary) $(sed -n '2s/ operations, .*//p' summary)"
"$tofu_sim" trace --from 20us --to 2ms --json part.json part
expect "a part is written" 0 $?
"$tofu_sim" trace --from 20 --to 2000us part >summary
expect "and named" 1 "$(grep -c '^from 20.* us to 2.* ms: .* of a run of ' summary)"
some=$(sed -n '2s/ operations, .*//p' summary | tr -d ,)
expect "it has some of the operations" yes "$([ "$some" -gt 0 ] && [ "$some" -lt "${operations//,/}" ] && echo yes)"
if command -v python3 >/dev/null; then
    read -r bad _ < <(python3 judge.py part.json)
    expect "slices of a part nest, arrows have both ends" 0 "$bad"
fi
for times in "--from 5us --to 5us" "--from 30s" "--from 5us --to 2us"; do
    # shellcheck disable=SC2086
    "$tofu_sim" trace $times part 2>refusal
    expect "$times" "2 1" "$? $(grep -c 'must be earlier than --to and than the end of the run, which is' refusal)"
done
for times in "--from soon" "--to -1us" "--to 5m" "--from 1e400"; do
    # shellcheck disable=SC2086
    "$tofu_sim" trace $times part 2>refusal
    expect "$times" "2 1" "$? $(grep -c ': use a time such as 1.5ms, 200us or 3s' refusal)"
done

# By the virtual clock: a put of 1500 bytes to the next node takes what the model says, whatever this machine does.
for session in 1 2; do
    mkdir clock$session
    TOFU_SIM_CLOCK=tofud TOFU_SIM_CPU=0 TOFU_SIM_TRACE=clock$session run -n 2 "$examples/put_pingpong_mrq" >/dev/null
    "$tofu_sim" trace --json clock$session.json clock$session
done
"$tofu_sim" trace clock1 >summary
expect "the times are Tofu-D's" 1 "$(head -n 1 summary | grep -c "of Tofu-D's time: communication alone$")"
if command -v python3 >/dev/null; then
    read -r bad _ < <(python3 judge.py clock1.json)
    expect "slices nest, arrows have both ends" 0 "$bad"
    cat >flights.py <<'EOF_PY'
import json, sys
found = set()
for name in sys.argv[1:]:
    begins, ends, puts = {}, {}, set()
    for event in json.load(open(name))["traceEvents"]:
        if event["ph"] == "X" and event["name"] == "put" and event["cat"] == "post" and event["args"]["bytes"] == 1500:
            puts.add((event["pid"], event["ts"]))
        elif event["ph"] in "sf":
            (begins if event["ph"] == "s" else ends)[event["id"]] = event
    found |= {round(1000 * (ends[i]["ts"] - b["ts"])) for i, b in begins.items() if (b["pid"], b["ts"]) in puts}
# Picoseconds are cut to nanoseconds.
print(len(found) > 0 and max(found) - min(found) <= 1 and 900 < min(found) < 1600, sorted(found))
EOF_PY
    read -r same flights < <(python3 flights.py clock1.json clock2.json)
    expect "and those of all such puts of two runs are the same ($flights ns)" True "$same"
fi

# A process that is killed leaves what it did. Both wait for their input, one without end, the other until that has happened.
mkfifo never over
TOFU_SIM_TRACE=killed run -n 2 sh -c 'test $TOFU_SIM_RANK = 0 || exec '"$build/tests/show_subject"' <over >told.1
    '"$build/tests/show_subject"' <>never >told.0 & pid=$!
    exec 3>over
    until grep -q ready told.0 && grep -q ready told.1; do kill -0 $pid || exit 1; done
    kill -KILL $pid; wait $pid' >/dev/null 2>&1
"$tofu_sim" trace killed.* >summary 2>warnings
expect "a killed process is reported" yes "$(grep -q 'were killed or still run' warnings && echo yes)"
expect "and its trace read" yes "$(grep -q 'rank 0 node .*KILLED' summary && echo yes)"
expect "with all that it did" 1 "$(grep -c '^10 operations, 640 B$' summary)"

# Impossible values.
TOFU_SIM_TRACE=nowhere/at/all run -n 2 "$examples/put_stride" >/dev/null 2>said
expect "a directory that is not there is reported" yes "$(grep -q "cannot create .*use an existing directory" said && echo yes)"
mkfifo pipe
for name in /dev/null pipe; do
    TOFU_SIM_TRACE=$name run -n 2 "$examples/put_stride" >/dev/null 2>said
    status=$?
    expect "$name is no place for a trace" "yes yes" \
        "$([ $status != 0 ] && echo yes) $(grep -q "TOFU_SIM_TRACE=$name is a device, a pipe or a socket; use" said && echo yes)"
    expect "and no file is made beside it" no "$([ -e $name.0 ] || [ -e $name.1 ] && echo yes || echo no)"
done
TOFU_SIM_TRACE=x TOFU_SIM_TRACE_MIB=0 run -n 2 "$examples/put_stride" >/dev/null 2>said
expect "and a size that makes no sense" yes "$(grep -q 'TOFU_SIM_TRACE_MIB=0: use the maximal size' said && echo yes)"
"$tofu_sim" trace >/dev/null 2>said
expect "trace without files" "2 1" "$? $(grep -c 'trace needs the files' said)"
mkdir empty
"$tofu_sim" trace empty >/dev/null 2>said
expect "a directory without traces" "1 1" "$? $(grep -c 'has no file \*.trace' said)"
cp -r put mixed
touch mixed/readme.trace.txt mixed/run.trace.bak mixed/my.traces
"$tofu_sim" trace mixed >/dev/null 2>said
expect "a directory with other files, too" "0 0" "$? $(wc -c <said)"
"$tofu_sim" trace put >/dev/full 2>said
expect "a summary that cannot be written" "1 1" "$? $(grep -c 'cannot write to standard output' said)"
"$tofu_sim" trace --json - put >/dev/full 2>said
expect "nor a file that goes there" "1 1" "$? $(grep -c 'cannot write to standard output' said)"
"$tofu_sim" trace put/* killed.1 >/dev/null 2>said
expect "traces of two jobs" "1 1" "$? $(grep -c 'is of job .*use the files of one run' said)"

finish
