#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The virtual clock's figures keep within their bars, and docs/time-model.md says what they are.
# Called by: make check. Calls: bench/time.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
build=${TOFU_TOP_BUILDDIR:?set by make check}
said=$(mktemp)
trap 'rm -f "$said"' EXIT
"$build/bench/time" >"$said" || { grep 'beyond its bar' "$said"; exit 1; }
sed -n '/^<!-- time -->$/,/^<!-- time end -->$/p' "$top/docs/time-model.md" | sed '1d;$d' | diff -B - "$said" || {
    echo "docs/time-model.md has other figures: put in what bench/time prints"
    exit 1
}
