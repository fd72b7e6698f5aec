#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Every header compiles alone and may be included twice; the public ones as C99 and C11 too.
# Called by: make check. Calls: the compilers that configure found (TOFU_CXX, TOFU_CC).
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export top scratch

check()
{
    local header=$1 unit
    unit=$scratch/$(echo "$header" | tr / _)
    printf '#include "%s"\n#include "%s"\n' "$top/$header" "$top/$header" >"$unit.cc"
    local includes=(-I"$top/include" -I"$top/tofu_sim" -I"$top/prov/tofu/src" -I"$top/tests" -I"$top"
        -I"$top/bench/frame")
    # shellcheck disable=SC2086
    ${TOFU_CXX:-c++ -std=gnu++20} ${TOFU_HEADER_FLAGS:-} ${TOFU_MPI_CFLAGS:-} -Wall -Wextra -Werror -fsyntax-only \
        "${includes[@]}" "$unit.cc" || { echo "FAIL C++ $header"; return 1; }
    case $header in
    include/*)
        cp "$unit.cc" "$unit.c"
        for standard in c99 c11 gnu17; do
            ${TOFU_CC:-cc} -std=$standard -Wall -Wextra -Werror -fsyntax-only "${includes[@]}" \
                "$unit.c" || { echo "FAIL $standard $header"; return 1; }
        done
        ;;
    esac
    echo "ok $header"
}
export -f check

cd "$top" || exit 99
find include tofu_sim prov tests fabtests bench -name '*.h' 2>/dev/null | sort >"$scratch/all"
if [ "${TOFU_HAVE_MPI:-yes}" = yes ]; then
    cp "$scratch/all" "$scratch/list"
else
    grep -v '^fabtests/mpi/' "$scratch/all" >"$scratch/list"
fi
if ! [ -s "$scratch/list" ]; then
    echo "no headers found in $top"
    exit 99
fi
xargs -P 2 -I{} bash -c 'check {}' <"$scratch/list" || exit 1
echo "$(wc -l <"$scratch/list") headers compile alone"
