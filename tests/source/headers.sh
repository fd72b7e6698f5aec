#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Every header compiles alone and may be included twice; the public ones as C99 and C11 too. The one that a source
# includes before anything else, its own, compiles alone if the source does: tests/source/alone.
# Called by: make check. Calls: the compilers that configure found (TOFU_CXX, TOFU_CC).
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
folders="include tofu_sim prov/tofu/src tests . bench bench/frame check mpi" # of quoted includes
export top scratch folders

check()
{
    local header=$1 unit
    unit=$scratch/$(echo "$header" | tr / _)
    printf '#include "%s"\n#include "%s"\n' "$top/$header" "$top/$header" >"$unit.cc"
    local includes=()
    for folder in $folders; do
        includes+=(-I"$top/$folder")
    done
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
find tofu_sim check prov tests fabtests bench mpi -name '*.cc' -exec grep -H -m 1 '^#include' {} + |
    sed -n 's/^\([^:]*\):#include "\(.*\)"$/\1 \2/p' |
    while read -r source header; do
        for folder in "${source%/*}" $folders; do
            [ ! -e "$folder/$header" ] || { realpath --relative-to=. "$folder/$header"; break; }
        done
    done | grep -v '^include/' | sort -u >"$scratch/first"
twice=$(xargs grep -L '^#pragma once' <"$scratch/first")
[ -z "$twice" ] || { echo "FAIL no #pragma once: $twice"; exit 1; }
find include tofu_sim check prov tests fabtests bench mpi -name '*.h' | sort | comm -23 - "$scratch/first" >"$scratch/all"
if [ "${TOFU_HAVE_MPI:-yes}" = yes ]; then
    cp "$scratch/all" "$scratch/list"
else
    grep -vE '^(fabtests/)?mpi/' "$scratch/all" >"$scratch/list"
fi
if ! [ -s "$scratch/list" ]; then
    echo "no headers found in $top"
    exit 99
fi
xargs -P 2 -I{} bash -c 'check {}' <"$scratch/list" || exit 1
echo "$(wc -l <"$scratch/list") headers compile alone"
