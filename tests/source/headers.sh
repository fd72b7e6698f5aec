#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The public headers compile alone and may be included twice, as C99, C11, C17 and C++20. Every other header has a
# #pragma once or guards; that it compiles alone is checked by tests/source/alone.
# Called by: make check. Calls: the compilers that configure found (TOFU_CXX, TOFU_CC).
set -u
cd "${TOFU_TOP_SRCDIR:?set by make check}" || exit 99
. tests/lib/expect
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

compiles() # HEADER COMPILER ENDING
{
    printf '#include "%s"\n#include "%s"\n' "$PWD/$1" "$PWD/$1" >"$scratch/unit.$3"
    # shellcheck disable=SC2086
    $2 ${TOFU_HEADER_FLAGS:-} -Wall -Wextra -Werror -fsyntax-only -Iinclude "$scratch/unit.$3" && echo yes
}

for header in include/*.h include/*/*.h; do
    expect "$header in C++20" yes "$(compiles "$header" "${TOFU_CXX:-c++ -std=gnu++20}" cc)"
    for standard in c99 c11 gnu17; do
        expect "$header in $standard" yes "$(compiles "$header" "${TOFU_CC:-cc} -std=$standard" c)"
    done
done
mapfile -t headers < <(find analysis tofu_sim check prov schedule tests fabtests bench mpi -name '*.h')
expect "there are others" 1 "$((${#headers[@]} > 100))"
expect "all have #pragma once, or guards" "" "$(grep -LE '^#pragma once|^#ifndef [A-Z_]*_H$' "${headers[@]}")"
exit $((failures != 0))
