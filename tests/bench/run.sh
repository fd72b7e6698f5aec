#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The benchmarks run: one short round, with every kind of file at the end. Nothing is said about speed.
# Called by: make check. Calls: bench/run, tests/bench_check.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
build=${TOFU_TOP_BUILDDIR:?set by make check}
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
parts=transports,memory,gates,instructions,wire,footprint,trace,threads,overlap

"$top/bench/run" --quick --only $parts --results "$results" >"$results/table" 2>"$results/said"
status=$?
cat "$results/said"
[ $status = 0 ] || { tail -n 30 "$results/table"; exit 1; }
wanted=('"transport": "memory"' '"transport": "utofu"' '"transport": "tofu"' 'tagged ping-pong' 'barrier, a round'
    'fi_tsend, 1 MiB' 'posted receive' 'one endpoint for all' 'the sender computes' '"bar": ')
! command -v valgrind >/dev/null || wanted+=('fi_cq_read, empty')
"$build/tests/bench_check" "$results/bench.json" "$results/bench.svg" "${wanted[@]}" || exit 1
grep -q '^| RMA' "$results/bench.md" || { echo "no table in bench.md"; exit 1; }

# The tables find their place in a document, again and again.
mkdir "$results/docs" "$results/bench"
cp "$top/bench/docs" "$results/bench/docs"
printf 'before\n<!-- bench: RMA -->\n<!-- bench end -->\nafter\n<!-- bench: not measured -->\nkept\n<!-- bench end -->\n' \
    >"$results/docs/performance.md"
"$results/bench/docs" "$results" && cp "$results/docs/performance.md" "$results/once" && "$results/bench/docs" "$results" &&
    cmp "$results/once" "$results/docs/performance.md" && grep -q '^| RMA' "$results/once" && grep -q '^kept$' "$results/once" &&
    grep -q '^after$' "$results/once" || { echo "bench/docs does not keep a document"; exit 1; }
