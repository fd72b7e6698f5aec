#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The virtual clock's figures keep within their bars, and the documents say what they are, and what stripes would gain.
# Called by: make check. Calls: bench/time, bench/stripes.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
build=${TOFU_TOP_BUILDDIR:?set by make check}
said=$(mktemp)
trap 'rm -f "$said"' EXIT
says() # document, program
{
    sed -n "/^<!-- $2 -->\$/,/^<!-- $2 end -->\$/p" "$top/docs/$1" | sed '1d;$d' | diff -B - "$said" || {
        echo "docs/$1 has other figures: put in what bench/$2 prints"
        exit 1
    }
}
"$build/bench/time" >"$said" || { grep 'beyond its bar' "$said"; exit 1; }
says time-model.md time
"$build/bench/stripes" >"$said" || exit 1
says architecture.md stripes
