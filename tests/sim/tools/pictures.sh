#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Pictures of a job that runs and of traces, with 12 and with 4,116 nodes; a browser says whether they can be read.
# Called by: make check. Calls: tofu-sim, tests/trace_maker, tests/show_subject, python3, chromium where it is there.
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
wellformed()
{
    python3 -c 'import sys, xml.dom.minidom as d; [d.parse(f) for f in sys.argv[1:]]' "$@"
}
browser=$(command -v chromium || command -v chromium-browser)

# A job that runs.
mkfifo input output
job=${TOFU_TEST_JOB_PREFIX:?set by tests/run_limited}-p
"$tofu_sim" run -n 13 --timeout 60 --job "$job" --shape 1x2x1 sh -c \
    'case $TOFU_SIM_RANK in 0) exec '"$build/tests/show_subject"' reach;; 12) exec '"$build/tests/show_subject"' be-reached;; esac' \
    <input >output 2>/dev/null &
launcher=$!
exec 5>input 6<output
read -r -t 30 _ <&6
echo go >&5
read -r -t 30 word <&6
expect "the job runs" reached "${word:-}"
"$tofu_sim" show --svg live.svg "$job"
expect "a picture of a job that runs" 0 $?
expect "names its hottest link" 1 "$(grep -c '>(0,0,0,0,0,0) B-<' live.svg)"
"$tofu_sim" show --counters "$job" >counters
expect "what a port sends the next one receives" "2 7 2 2|2 2 2 7" \
    "$(awk '/^  \(0,0,0,0,2,0\) +Y\+/ { a = $3 - 4 " " $4 " " $5 + 1 " " $6 } /^  \(0,1,0,0,2,0\) +Y-/ { b = $3 + 1 " " $4 " " $5 - 4 " " $6 } END { print a "|" b }' counters)"
expect "without a clock credit is unknown" "1 yes" \
    "$(grep -c 'unknown without a virtual clock' counters) $(grep -v '^#' counters | grep -qv '  ? ? ? ?$' || echo yes)"
exec 5>&-
kill -TERM $launcher
wait $launcher 2>/dev/null
"$tofu_sim" show --svg 2>said
expect "--svg without a file" "2 1" "$? $(grep -c 'name the file' said)"

# Traces of few and of many processes.
for shape in "1 1 1 12" "7 7 7 4"; do
    read -r x y z steps <<<"$shape"
    mkdir "t$x"
    "$build/tests/trace_maker" "t$x" "$x" "$y" "$z" "$steps" || exit 1
    "$tofu_sim" trace --html "$x.html" --svg "p$x" --counters "$x.counters" "t$x" 2>warnings
    expect "$x: pictures are drawn" "0 0" "$? $(wc -l <warnings)"
    rm -rf "t$x"
    expect "$x: they are well-formed" "" "$(wellformed "p$x"/*.svg 2>&1)"
    expect "$x: ten links are named" 10 "$(grep -c 'DejaVu Sans Mono.*>([0-9,]*) [XYZABC][+-]\{0,1\}<' "p$x/network.svg")"
    expect "$x: all is in the page" 4 "$(grep -c '^<svg' "$x.html")"
    expect "$x: which fetches nothing" 0 "$(grep -v 'xmlns="http://www.w3.org/2000/svg"' "$x.html" | grep -cE 'https?:|src=|@import|url\(')"
    expect "$x: sent and received agree" yes \
        "$(awk '!/^#/ { s += $3; r += $5; u += $4; v += $6 } END { print (s == r && u == v && s > 100) ? "yes" : s " " r }' "$x.counters")"
    expect "$x: it is no larger than it need be" yes "$([ "$(wc -c <"$x.html")" -lt 4000000 ] && echo yes)"
    expect "$x: grey is in the legend" 1 "$(grep -c '>computing (or in other\|>none: computing' "p$x/timeline.svg")"
    [ -n "$browser" ] || continue
    # Laid out by the browser: no text over another, none beyond its picture, none smaller than 10 points of it.
    sed 's/<meta http-equiv[^>]*>//; s|</body>|<script>\
const bad = []; let texts = 0;\
document.querySelectorAll("details").forEach(d => d.open = false);\
for (const svg of document.querySelectorAll("svg")) {\
  const frame = svg.getBoundingClientRect(), boxes = [];\
  for (const text of svg.querySelectorAll("text")) {\
    const b = text.getBoundingClientRect(); texts++;\
    if (text.textContent === "") continue;\
    if (parseFloat(text.getAttribute("font-size")) < 10) bad.push("small: " + text.textContent);\
    if (b.left < frame.left \|\| b.right > frame.right \|\| b.top < frame.top \|\| b.bottom > frame.bottom) bad.push("beyond: " + text.textContent);\
    if (text.hasAttribute("transform")) continue;\
    for (const [o, other] of boxes) if (b.left < o.right - 1 \&\& o.left < b.right - 1 \&\& b.top + 3 < o.bottom - 3 \&\& o.top + 3 < b.bottom - 3) bad.push(other + " under " + text.textContent);\
    boxes.push([b, text.textContent]);\
  } }\
document.body.textContent = "JUDGED " + texts + " texts, " + bad.length + " bad: " + bad.slice(0, 9).join("; ");\
</script></body>|' "$x.html" >judged.html
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$scratch/browser" --window-size=1500,1000 \
        --dump-dom "file://$scratch/judged.html" >dom 2>browser.log
    verdict=$(grep -o 'JUDGED [^<]*' dom)
    echo "$verdict"
    expect "$x: a browser finds the page well laid out" 1 "$(grep -cE 'JUDGED [0-9]{2,} texts, 0 bad' dom)"
done
[ -n "$browser" ] || echo "skipped: no chromium to look at the pages with"

finish
