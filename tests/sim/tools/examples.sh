#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The examples under tofu-sim run, in order and with an adversary: each checks its own result.
# Called by: make check. Calls: tofu-sim, tofu_sim/examples/*.
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/sim/tools/start"
examples=$build/tofu_sim/examples

try()
{
    local name=$1 said
    shift
    if said=$("$tofu_sim" run --timeout 60 "$@" "$examples/$name" 2>&1 </dev/null) && [ -n "$said" ]; then
        echo "ok: $name $*: $said"
    else
        echo "FAIL: $name $*: $said"
        failures=$((failures + 1))
    fi
}

for name in put_pingpong_mrq put_pingpong_memory get_status armw_tickets put_stride session_pipeline barrier_ring; do
    try $name -n 2
    try $name -n 5
    try $name -n 3 --chaos 11
done
try barrier_ring -n 12
try session_pipeline -n 12
"$tofu_sim" run -n 4 --ppn 2 --timeout 60 "$examples/armw_tickets" 2>said </dev/null
expect "two on a node: which is reported at once" "1 yes" "$? $(grep -q '^start one process on a node' said && echo yes)"
finish
