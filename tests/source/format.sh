#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The sources are as clang-format leaves them (.clang-format). Other versions of clang-format break some lines in another
# way, so only one is asked; without it the test is skipped. `clang-format -i FILE` mends a file.
# It leaves comments as they are, so their lines are measured here.
# Called by: make check. Calls: clang-format.
set -u
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
cd "$TOFU_TOP_SRCDIR" || exit 99
version=14
formatted=(analysis bench check fabtests include mpi prov schedule tests tofu_sim)

formatter=
for name in "clang-format-$version" clang-format; do
    "$name" --version 2>/dev/null | grep -q "version $version\." && { formatter=$name; break; }
done
[ -n "$formatter" ] || { echo "skipped: no clang-format $version here (Debian package clang-format-$version)"; exit 77; }

# The test itself.
scratch=$(mktemp -d .format.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
printf 'int  f( ) {return 1;}\n' >"$scratch/a.cc"
expect "a file of another form is found" 1 "$("$formatter" --dry-run "$scratch/a.cc" 2>&1 | grep -c 'a.cc:1:.*Wclang-format' | sed 's/[1-9].*/1/')"

too_long() # FILE...
{
    LC_ALL=C.UTF-8 grep -HnE '^.{121}' "$@" | cut -d: -f1,2
}
printf '// %117s\n// %118s\n' '' '' >"$scratch/a.cc"
expect "a comment of 121 columns is found, one of 120 is not" "a.cc:2" "$(too_long "$scratch/a.cc" | sed 's|.*/||')"

mapfile -t files < <(find "${formatted[@]}" -name '*.h' -o -name '*.cc' -o -name '*.c')
expect "files that clang-format would change" "" \
    "$(printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 40 "$formatter" --dry-run 2>&1 |
        sed -n 's/^\([^ :]*\):[0-9]*:.*Wclang-format-violations.*/\1/p' | sort -u)"
expect "lines above 120 columns" "" "$(too_long "${files[@]}")"
exit $((failures != 0))
