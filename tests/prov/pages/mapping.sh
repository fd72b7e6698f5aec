#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# docs/mapping.md does what it says: its examples run, plain and with an adversarial interconnect; every row names a
# case that there is, and every example has its row. Called by: make check. Calls: fabtests/fi_mapping and the programs
# that the document names.
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
rows=0
while IFS= read -r row; do
    case $row in
        '|---'* | '| kfabric |'* | '| UCX |'* | '| call |'*) continue ;;
    esac
    test=$(sed -n 's/.*| `\([a-z_]*\/[a-z0-9_]*\)` |$/\1/p' <<<"$row")
    rows=$((rows + 1))
    named[${test:-none}]=1
    if [ -z "$test" ] || [ -z "${cases[$test]:-}" ]; then
        echo "FAIL this row names no case (${test:-none}): $row"
        result=1
    fi
done < <(grep '^|' "$document")
for one in "${!cases[@]}"; do
    if [ "${one%%/*}" = fi_mapping ] && [ -z "${named[$one]:-}" ]; then
        echo "FAIL no row of docs/mapping.md names $one"
        result=1
    fi
done
echo "docs/mapping.md: $rows rows"
[ "$rows" -ge 80 ] || { echo "FAIL rows are missing"; result=1; }
exit $result
