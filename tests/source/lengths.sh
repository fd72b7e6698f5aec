#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# No function is longer than 60 lines, except some that are tables. Functions at the margin are counted,
# which clang-format leaves with their braces there (format.sh).
# Called by: make check. Reads the sources.
set -u
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
cd "$TOFU_TOP_SRCDIR" || exit 99
most=60
# One list or one table each: a part of it would be no easier to read.
tables="tests/prov/swarm/generator.cc:form_of tests/prov/swarm/generator.cc:scene tests/prov/swarm/generator.cc:likes_of
    tests/prov/whole/knobs_test.cc:knobs tests/sim/api/abi_test.cc:check_function_types"

# Prints "FILE:NAME LINES" for each function that is too long. The signature is all from the last line that ends
# something; the name stands before its first parenthesis.
long_functions() # FILE...
{
    awk -v most="$most" '
        FNR == 1 { begin = 0; signature = "" }
        /^\{$/ && !begin { begin = FNR; name = signature; next }
        /^\}/ && begin {
            if (FNR - begin - 1 > most) {
                sub(/\(.*/, "", name); sub(/.*[ :*&]/, "", name)
                print FILENAME ":" name, FNR - begin - 1
            }
            begin = 0; signature = ""; next
        }
        begin { next }
        /^$/ || /[;}]$/ || /^(\/\/|#|template|namespace)/ { signature = ""; next }
        { signature = signature $0 }' "$@"
}

# The test itself.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
{
    printf '// f(x) is long.\nint f(int x,\n      int y)\n{\n'
    printf 'x++;\n%.0s' {1..61}
    printf '}\n\nvoid C::g() noexcept\n{\n'
    printf 'x++;\n%.0s' {1..60}
    printf '}\n'
} >"$scratch/a.cc"
expect "a function of 61 lines is found, one of 60 is not" "a.cc:f 61" "$(long_functions "$scratch/a.cc" | sed 's|.*/||')"

mapfile -t files < <(find prov tofu_sim analysis check bench fabtests include mpi schedule tests \
    -name '*.h' -o -name '*.cc' -o -name '*.c' | sort)
found=$(long_functions "${files[@]}")
unlisted=$(while read -r name lines; do
    [[ " $(tr -s ' \n' ' ' <<<"$tables") " == *" $name "* ]] || echo "$name $lines"
done <<<"$found")
expect "functions above $most lines" "" "$(sed '/^ *$/d' <<<"$unlisted")"
for name in $tables; do
    grep -q "^$name " <<<"$found" || echo "note: $name is short enough and can go from the list"
done
exit $((failures != 0))
