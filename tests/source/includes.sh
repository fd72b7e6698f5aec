#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The rooms of the provider include each other in one direction: the order is read from docs/architecture.md, and an
# include against it fails. What documents, comments and tofu-check name of the rooms, as ROOM/FILE, is there.
# Called by: make check.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}

# The line may be continued, up to the next empty line.
order=$(sed -n '/^    order of rooms: /,/^$/p' "$top/docs/architecture.md" | sed 's/order of rooms://' | tr -s '<, \n' ' ')
[ -n "$order" ] || { echo "FAIL: docs/architecture.md has no line 'order of rooms: ...'"; exit 1; }

result=0
for room in "$top"/prov/tofu/src/*/; do
    room=$(basename "$room")
    [[ " $order " == *" $room "* ]] || { echo "FAIL: room $room is not in the order of docs/architecture.md"; result=1; }
done

found=$(cd "$top/prov/tofu/src" && grep -o '^#include "[a-z_]*/[^"]*"' -r --include='*.h' --include='*.cc' . |
    sed 's|^\./||; s|:#include "| |; s|"$||' | sort | awk -v order="$order" '
        BEGIN { n = split(order, rooms, " "); for (i = 1; i <= n; i++) level[rooms[i]] = i }
        { from = $1; sub("/.*", "", from); to = $2; sub("/.*", "", to)
          if (level[to] > level[from]) print $1 ": " $2 }')

while read -r line; do
    [ -z "$line" ] || { echo "FAIL: against the order: $line"; result=1; }
done <<<"$found"

# Provider, simulator and schedules: the first two include the last, which includes nothing of the tree but itself.
between=$(cd "$top" && {
    grep -rnE '^#include "(tofu_sim|tools|replay|topology|clock|tni)/' --include='*.h' --include='*.cc' prov/tofu/src
    grep -rnE '^#include "(prov|vcq|plan|coll|collective|provider)/' --include='*.h' --include='*.cc' tofu_sim
    grep -rnE '^#include "' schedule | grep -v '"schedule/'
})
[ -z "$between" ] || { echo "FAIL: a library includes another one: $between"; result=1; }

rooms=$(echo $order | tr ' ' '|')
while IFS=: read -r file line name; do
    name=${name//[^a-z_0-9\/]/}
    for top_of in prov/tofu/src tofu_sim; do
        compgen -G "$top/$top_of/${name}.*" >/dev/null && continue 2
    done
    echo "FAIL: $file:$line: there is no $name"
    result=1
done < <(cd "$top" && grep -rnoE "(^|[ \`(\"])($rooms)/[a-z_0-9]+" check docs/*.md prov/tofu/src README.md)
exit $result
