#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# tofu-sim show and clean, on a job that runs, one that was killed, and rubbish.
# Called by: make check. Calls: tofu-sim, tests/show_subject.
set -u
# Any job of this user that starts beside sweeps away what a killed one has left. So in a /dev/shm of our own, where we
# may have one.
if [ -z "${TOFU_SHOW_ALONE:-}" ] && unshare --mount true 2>/dev/null; then
    TOFU_SHOW_ALONE=1 exec unshare --mount sh -c 'mount -t tmpfs tmpfs /dev/shm; exec "$@"' sh bash "$0"
fi
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
subject=$build/tests/show_subject
job=${TOFU_TEST_JOB_PREFIX:?set by tests/run_limited}-a
base=/dev/shm/tofu-sim-$(id -u)
shown()
{
    "$tofu_sim" show --vcqs "$1" >shown 2>&1
    cat shown
}

# Output that cannot be written is a failure, with a line.
for words in --help show "node a64fx" "replay --pattern gates" "replay --pattern pingpong"; do
    # shellcheck disable=SC2086
    "$tofu_sim" $words >/dev/full 2>err
    expect "$words to a full device" "1 1" "$? $(grep -c '^tofu-sim: cannot write to standard output: ' err)"
    # shellcheck disable=SC2086
    "$tofu_sim" $words >&- 2>err
    expect "$words without an output" "1 1" "$? $(grep -c '^tofu-sim: cannot write to standard output: ' err)"
done

for name in .. / . a/b; do
    "$tofu_sim" show "$name" >out 2>err
    expect "show $name: no job" "1 0 1" "$? $(wc -c <out) $(grep -c "^tofu-sim: no job '$name'" err)"
done

mkfifo input output
UTOFU_NUM_MRQ_ENTRIES_SESSION=2048 "$tofu_sim" run -n 1 --timeout 60 --job "$job" --shape 1x2x1 --torus y "$subject" \
    <input >output &
launcher=$!
exec 5>input 6<output
read -r -t 30 word <&6
expect "the subject runs" ready "${word:-}"

shown "$job"
expect "the job's shape" 1 "$(grep -c "^$job: shape 1x2x1 (24 nodes), torus 'y', 1 processes" shown)"
expect "the process and its place" 1 "$(grep -c '^  rank 0 pid [0-9]* show_subject node 0 (0,0,0,0,0,0) 3 vcqs' shown)"
expect "counts of the TNI it used" 1 "$(grep -c '^    tni 2: 5 operations, 320 bytes' shown)"
expect "the VCQ with its unread notices" 1 "$(grep -c 'tni 2 cq [0-9]* component 0 free mrq 4/131072' shown)"
expect "the VCQ of session mode, whose queue is smaller" 1 \
    "$(grep -c 'tni 2 cq [0-9]* component 0 session mrq 0/2048$' shown)"
expect "the VCQ of component 5" 1 "$(grep -c 'tni 3 cq [0-9]* component 5 free mrq 0/131072' shown)"
expect "it is listed" 1 "$("$tofu_sim" show | grep -c "^$job: ")"
"$tofu_sim" clean "$job" >/dev/null
expect "clean leaves a living job alone" "1 yes" "$? $([ -e "$base/$job" ] && echo yes)"

# As if an older simulator had made it: the version is the third word.
version=$(od -An -tu1 -j8 -N1 "$base/$job/job" | tr -d ' ')
put_version()
{
    printf "\\$(printf %o "$1")" | dd of="$base/$job/job" bs=1 seek=8 conv=notrunc status=none
}
put_version 99
"$tofu_sim" clean "$job" >/dev/null
expect "nor one of another version" "1 yes" "$? $([ -e "$base/$job/job" ] && echo yes)"
[ ! -e "$base/$job/job" ] || put_version "$version"

# Processes of another PID namespace cannot find out whether it lives: they leave it alone and stay out of it.
if unshare --pid --fork --mount-proc true 2>/dev/null; then
    TOFU_SIM_JOB="$job-b" unshare --pid --fork --mount-proc "$subject" </dev/null >/dev/null 2>errors
    expect "a job of its own starts there" 0 $?
    expect "and sweeps no job of this namespace away" yes "$([ -e "$base/$job/job" ] && echo yes)"
    TOFU_SIM_JOB="$job" TOFU_SIM_SHAPE=1x2x1 TOFU_SIM_TORUS=y unshare --pid --fork --mount-proc "$subject" \
        </dev/null >/dev/null 2>errors
    expect "no process joins from there" "1 1" "$? $(grep -c 'runs in another PID namespace' errors)"
    unshare --pid --fork --mount-proc "$tofu_sim" clean "$job" >/dev/null 2>&1
    expect "nor cleans it" yes "$([ -e "$base/$job/job" ] && echo yes)"
else
    echo "skipped: no PID namespace may be made here"
fi

# Killed with its launcher: no process is left to clean up.
kill -KILL $launcher
wait $launcher 2>/dev/null
exec 5>&-
# Its output ends before its lock does, and its number stays until its parent asks for it.
for _ in $(seq 400); do
    shown "$job" >/dev/null
    ! grep -q 'rank 0 pid .* DEAD$' shown || break
    read -r -t 0.1 <> <(:)
done
shown "$job"
expect "a dead process is reported" 1 "$(grep -c 'rank 0 pid .* DEAD$' shown)"
"$tofu_sim" clean "$job" >/dev/null
# (or the start of another job just did)
expect "clean removes a dead job" no "$([ -e "$base/$job" ] && echo yes || echo no)"

# A process that leaves still uses the job's file: one that joins meanwhile may not take the job for ended and start the
# file over.
"$tofu_sim" run -n 1 --timeout 60 --job "$job" "$subject" <input >output &
launcher=$!
exec 5>input 6<output
read -r -t 30 word <&6
expect "the subject runs" ready "${word:-}"
exec 7<"$base/$job"
flock 7 # it takes this lock at the end
exec 5>&-
for _ in $(seq 400); do
    shown "$job" >/dev/null
    ! grep -q ' 0 vcqs' shown || break
    read -r -t 0.01 <> <(:)
done
expect "a process that leaves is not dead" 1 "$(grep -c 'rank 0 pid .* 0 vcqs 0 gates$' shown)"
exec 7<&-
wait $launcher
expect "and ends" "0 no" "$? $([ -e "$base/$job" ] && echo yes || echo no)"

# Two processes, neighbours along Y; the first goes to the second by way of b = 2.
"$tofu_sim" run -n 13 --timeout 60 --job "$job" --shape 1x2x1 sh -c \
    'case $TOFU_SIM_RANK in 0) exec '"$subject"' reach;; 12) exec '"$subject"' be-reached;; esac' \
    <input >output &
launcher=$!
exec 5>input 6<output
read -r -t 30 word <&6
expect "the target runs" ready "${word:-}"
echo go >&5
read -r -t 30 word <&6
expect "the first has reached it" reached "${word:-}"
shown "$job"
expect "links of the way there, and of the way back for what was got" \
    "(0,0,0,0,0,0) Y+: 0 operations, 0 bytes, 4 barrier packets
(0,0,0,0,0,0) B-: 2 operations, 100 bytes, 4 barrier packets
(0,0,0,0,2,0) Y+: 2 operations, 100 bytes, 4 barrier packets
(0,0,0,0,2,0) B+: 0 operations, 30 bytes
(0,1,0,0,0,0) B-: 0 operations, 30 bytes
(0,1,0,0,2,0) Y-: 0 operations, 30 bytes
(0,1,0,0,2,0) B+: 2 operations, 100 bytes, 4 barrier packets" "$(sed -n 's/^  link //p' shown)"
expect "an operation without a target counts for the TNI alone" 1 "$(grep -c '^    tni 4: 3 operations, 142 bytes' shown)"
exec 5>&-
kill -TERM $launcher
wait $launcher
expect "both end by a signal" 143 $?

# Rubbish instead of a job file.
mkdir -m 700 -p "$base/$job"
head -c 5000 /dev/urandom >"$base/$job/job"
shown "$job"
expect "an invalid file is reported" 1 "$(grep -c "^$job: no readable file" shown)"
"$tofu_sim" clean "$job" >/dev/null
expect "and removed" "0 no" "$? $([ -e "$base/$job" ] && echo yes || echo no)"

# The launcher removes the files of a killed process.
"$tofu_sim" run -n 2 --timeout 60 --job "$job" sh -c \
    'test $TOFU_SIM_RANK = 0 && exec '"$subject"' || { read -r _ </dev/null; kill -KILL $$; }' </dev/null \
    >/dev/null 2>&1
expect "status of a job with a killed process" 137 $?
expect "nothing is left of it" no "$([ -e "$base/$job" ] && echo yes || echo no)"

finish
