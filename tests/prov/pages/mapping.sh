#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# docs/mapping.md is true: its examples run, also over an adversarial interconnect. Each item names an existing case,
# and each example has an item. Called by: make check. Calls: fabtests/fi_mapping and the programs that the document names.
set -u
program=fi_mapping
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/prov/pages/pages"
document=$TOFU_TOP_SRCDIR/docs/mapping.md
run -n 3 -s 3
TOFU_SIM_CHAOS=32 run -k -s 5

declare -A cases named
for one in fi_mapping fi_atomic_pages fi_cntr_pages fi_collective_pages fi_trigger_pages; do
    for name in $("$TOFU_TOP_BUILDDIR/fabtests/$one" -l); do
        cases[$one/$name]=1
    done
done
# An item of the lists, with the lines that belong to it.
items=$(awk '/^- /{if (item != "") print item; item = $0; next} /^  /{item = item " " $0; next}
    {if (item != "") print item; item = ""} END {if (item != "") print item}' "$document")
count=0
while IFS= read -r item; do
    test=$(sed -n 's/.* Test: *`\([a-z_]*\/[a-z0-9_]*\)`$/\1/p' <<<"$item")
    count=$((count + 1))
    named[${test:-none}]=1
    if [ -z "$test" ] || [ -z "${cases[$test]:-}" ]; then
        echo "FAIL this item names no case (${test:-none}): $item"
        result=1
    fi
done <<<"$items"
for one in "${!cases[@]}"; do
    if [ "${one%%/*}" = fi_mapping ] && [ -z "${named[$one]:-}" ]; then
        echo "FAIL no item of docs/mapping.md names $one"
        result=1
    fi
done
echo "docs/mapping.md: $count items"
[ "$count" -ge 80 ] || { echo "FAIL items are missing"; result=1; }
exit $result
