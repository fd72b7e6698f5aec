#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Random programs over the deterministic network: 15 s of fixed seeds, then 60 s of new ones, whose first is printed. A
# few run by real processes over tofu_sim. A seed gives the same run alone in its process
# as behind other programs.
# Called by: make check. Calls: swarm.
set -u
swarm=${TOFU_TOP_BUILDDIR:?set by make check}/tests/swarm
digests() {
    SWARM_DIGEST=1 SWARM_BATCH=$1 "$swarm" 2 1 | grep '^swarm: seed [0-9]*: '
}
alone=$(digests 1)
together=$(digests 1000)
common=$(printf '%s\n%s\n' "$alone" "$together" | sort | uniq -d | wc -l)
[ "$common" -gt 0 ] &&
    { [ "$common" = "$(wc -l <<<"$alone")" ] || [ "$common" = "$(wc -l <<<"$together")" ]; } ||
    { echo "swarm.sh: a seed gives another run behind other programs"; diff <(echo "$alone") <(echo "$together"); exit 1; }
"$swarm" 15 1 && "$swarm" 60 || exit 1
[ ! -e "${FI_TOFU_BACKEND:?set by make check}" ] || "$swarm" -p sim 3 1
