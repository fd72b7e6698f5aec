#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The sources are as clang-format leaves them (.clang-format), a single statement has no braces, and no line is above
# 120 columns. Other versions of clang-format break some lines in another way, so only one is asked; without it the test
# is skipped. tests/source/format.sh FILE... mends files.
# Called by: make check, a developer. Calls: clang-format.
set -u
. "${TOFU_TOP_SRCDIR:=.}/tests/lib/expect"
cd "$TOFU_TOP_SRCDIR" || exit 99
version=14
formatted=(analysis bench check fabtests include mpi prov schedule tests tofu_sim)

formatter=
for name in "clang-format-$version" clang-format; do
    "$name" --version 2>/dev/null | grep -q "version $version\." && { formatter=$name; break; }
done
[ -n "$formatter" ] || { echo "skipped: no clang-format $version here (Debian package clang-format-$version)"; exit 77; }

scratch=$(mktemp -d .format.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
{ cat .clang-format; echo "RemoveBracesLLVM: true"; } >"$scratch/without-braces"
mend() # FILE...
{
    # What has lost its braces is formatted once more.
    for style in "$scratch/without-braces" .clang-format; do
        printf '%s\n' "$@" | xargs -P "$(nproc)" -n 40 "$formatter" -i --style="file:$style"
    done
}
[ $# -eq 0 ] || { mend "$@"; exit; }

too_long() # FILE...
{
    LC_ALL=C.UTF-8 grep -HnE '^.{121}' "$@" | cut -d: -f1,2
}

# The test itself.
printf 'int  f(int i) {\nif (i) {\nreturn 1; }\nreturn 2; }\n' >"$scratch/a.cc"
mend "$scratch/a.cc"
expect "a file of another form is mended" "$(printf 'int f(int i)\n{\n    if (i)\n        return 1;\n    return 2;\n}')" \
    "$(cat "$scratch/a.cc")"
printf '// %117s\n// %118s\n' '' '' >"$scratch/a.cc"
expect "a comment of 121 columns is found, one of 120 is not" "a.cc:2" "$(too_long "$scratch/a.cc" | sed 's|.*/||')"

mapfile -t files < <(find "${formatted[@]}" -name '*.h' -o -name '*.cc' -o -name '*.c')
mkdir "$scratch/tree"
tar c "${files[@]}" | tar x -C "$scratch/tree"
mend "${files[@]/#/$scratch/tree/}"
expect "files of another form, which tests/source/format.sh FILE... mends" "" \
    "$(diff -rq "$scratch/tree" . | sed -n 's/^Files .* and \.\/\(.*\) differ$/\1/p')"
expect "lines above 120 columns" "" "$(too_long "${files[@]}")"
exit $((failures != 0))
