#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Names of files: each file that a comment, a document or a manual page names is there, and a comment does not name the
# file that it stands in. Files were merged and moved before, and the comments kept their names. Names of classes: those
# that the head of a file of the provider has in brackets, and those that begin a chapter, are in its code.
# Names of tests: the subject is a thing.
# Called by: make check. Calls: awk, find. Reads the sources, docs/, man/ and README.md.
set -u
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
cd "$TOFU_TOP_SRCDIR" || exit 99

# Files of others: of the system, of libfabric, MPI, its tests and other programs; and names that stand for any file.
foreign='(rdma|sys|linux|uapi|ucm|netinet)/.*|include/uapi/.*|X/Y\.cc|file\.h|program\.c|[a-z]+/Y\.cc|src/mpid/.*'
foreign+='|prov/tofu/src/X/Y\.cc|x\.h|x\.y\..*|runfabtests\.sh|latency_(common|ctx)\.h|na_ofi\.c|conv-mach-opt\.h|SPACK/.*|DIR/.*|build/.*'

# Names of files in comments and documents: "FILE:LINE<tab>NAME<tab>TEXT".
named_in() # FILE...
{
    awk '
        function text_of(line,   at) {
            if (FILENAME ~ /\.(h|cc|c)$/) {
                at = match(line, /\/\/|\/\*|^ \*/)
                return at == 0 || line ~ /^#include/ ? "" : substr(line, at + RLENGTH)
            }
            if (FILENAME ~ /\.(md|[17])$/) return line
            return line ~ /^ *#/ ? line : ""
        }
        {
            text = text_of($0)
            rest = " " text
            # A name begins behind a space, a quotation mark or a bracket. Patterns and variables are no names.
            while (match(rest, /[ `"(,;:][A-Za-z0-9_.\/-]*[A-Za-z0-9_-]\.(h|cc|c|sh|md|am)/)) {
                name = substr(rest, RSTART + 1, RLENGTH - 1)
                rest = substr(rest, RSTART + RLENGTH)
                if (rest ~ /^[A-Za-z0-9_({*-]/ || rest ~ /^\.[A-Za-z0-9_({*]/) continue
                sub(/^(\.\/)+/, "", name)
                if (name ~ /^[A-Za-z0-9_]/) print FILENAME ":" FNR "\t" name "\t" text
            }
        }' "$@"
}

# Those that no file has: a name is the end of a path.
names_of_nothing() # (of named_in) FILES
{
    awk -F '\t' -v foreign="^($foreign)\$" '
        NR == FNR {
            count = split($1, parts, "/"); end = ""
            for (i = count; i > 0; i--) { end = parts[i] (end == "" ? "" : "/" end); there[end] = 1 }
            next
        }
        !($2 in there) && $2 !~ foreign { print $1 ": " $2 }' "$1" -
}

# Comments that name their own file, unless they say "See x.h". A public header begins with its name.
own_names()
{
    awk -F '\t' '{
        file = $1; sub(/:.*/, "", file)
        end = substr("/" file, length("/" file) - length($2))
        if (file ~ /\.(h|cc|c)$/ && file !~ /^include\// && end == "/" $2 && index($3, "See " $2) == 0) print $1 ": " $2
    }'
}

# Classes that a head or the title of a chapter ("// --- Name, Other: what") names and the code of the file does not:
# "FILE: NAME".
classes_of_nothing() # FILE...
{
    awk '
        function flush(   name) {
            for (name in named) if (!(name in used)) print file ": " name
            split("", named); split("", used)
        }
        function note(text,   count, words, i) {
            count = split(text, words, /[^A-Za-z_]+/)
            for (i = 1; i <= count; i++) if (words[i] ~ /^[A-Z][a-z]+[A-Z][A-Za-z]*$/) named[words[i]] = 1
        }
        FNR == 1 { if (NR > 1) flush(); file = FILENAME; head = 1; text = "" }
        FNR > 1 && head && !/^\/\// {
            head = 0
            while (match(text, /\([^()]*\)/)) { note(substr(text, RSTART, RLENGTH)); text = substr(text, RSTART + RLENGTH) }
        }
        head { text = text " " $0; next }
        /^\/\/ --- [A-Z][A-Za-z]*(, [A-Z][A-Za-z]*)*:/ { title = $0; sub(/:.*/, "", title); note(title); next }
        /^ *\/\// { next }
        {
            line = $0; sub(/\/\/.*/, "", line)
            count = split(line, words, /[^A-Za-z_]+/)
            for (i = 1; i <= count; i++) used[words[i]] = 1
        }
        END { flush() }' "$@" | sort
}

# Members that the text names and the code does not: "FILE:LINE: NAME". The text is `Class::member` in documents, and
# member() in comments of the sources; names of one letter and of two stand for any.
members_of_nothing() # FILE...
{
    awk '
        FILENAME ~ /\.(h|cc|c)$/ {
            line = $0; comment = ""
            if ((at = match(line, /\/\//)) != 0) { comment = substr(line, at); line = substr(line, 1, at - 1) }
            count = split(line, words, /[^A-Za-z0-9_]+/)
            for (i = 1; i <= count; i++) used[words[i]] = 1
            while (match(comment, /[ (:][a-z_][a-z0-9_][a-z0-9_]+\(\)/)) {
                name = substr(comment, RSTART + 1, RLENGTH - 3)
                named[FILENAME ":" FNR ": " name] = name
                comment = substr(comment, RSTART + RLENGTH)
            }
            next
        }
        {
            rest = $0
            while (match(rest, /`[A-Za-z:]+::[a-z_0-9]+/)) {
                name = substr(rest, RSTART, RLENGTH); sub(/.*::/, "", name)
                if (substr(rest, RSTART, RLENGTH) !~ /`std::/) named[FILENAME ":" FNR ": " name] = name
                rest = substr(rest, RSTART + RLENGTH)
            }
        }
        END { for (at in named) if (!(named[at] in used)) print at }' "$@" | sort
}

# Heads of sources with the callers or callees of the file (CONTRIBUTING.md, "Files"), or with the word "Role".
lists_of_callers() # FILE...
{
    awk '
        FNR == 1 { head = 1 }
        head && !/^\/\// { head = 0 }
        head && /Called by|Calls:|^\/\/ Role:/ { print FILENAME ":" FNR }' "$@"
}

# Names of tests with a person as their subject (CONTRIBUTING.md, "Prose").
persons_in_names() # FILE...
{
    grep -nE '^TEST(_F|_P)?\(.*(Nobody|Somebody|Everybody|Who(m|ever)?([A-Z]|\)))' "$@" | cut -d: -f1,2
}

# The test itself: it finds what it is for.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/msg"
printf '// As a.h says, and msg/a.h. See a.h.\nint a; // b.cc, "c.cc" and *.h, a_*.cc, https://x.y/z.htm\n' >"$scratch/msg/a.h"
printf 'int b = 1; // in `d/b.cc`\n' >"$scratch/msg/b.cc"
printf '%s\n' msg/a.h msg/b.cc >"$scratch/there"
found=$(cd "$scratch" && named_in msg/* | names_of_nothing there)
expect "files that are not there are found" $'msg/a.h:2: c.cc\nmsg/b.cc:1: d/b.cc' "$found"
printf '// SPDX\n// A thing (OneThing,\n// other) of two.\nclass OneName;\n// --- OneName, OtherName: what\n' >"$scratch/msg/a.h"
expect "classes that are not there are found" $'msg/a.h: OneThing\nmsg/a.h: OtherName' "$(cd "$scratch" && classes_of_nothing msg/a.h)"
printf '// As a.h says.\n// See a.h.\n' >"$scratch/msg/a.h"
printf '// SPDX\n// Role: a thing.\n// Called by: b.cc.\nint a; // Called by: all\n' >"$scratch/msg/b.h"
expect "lists of callers are found" $'msg/b.h:2\nmsg/b.h:3' "$(cd "$scratch" && lists_of_callers msg/b.h)"
printf 'TEST(A, WholeWordsWhoseEndIsShown)\nTEST_F(A, WhoWaits)\nTEST(A, HarmsNobody)\n' >"$scratch/msg/b.h"
expect "persons in names of tests are found" $'msg/b.h:2\nmsg/b.h:3' "$(cd "$scratch" && persons_in_names msg/b.h /dev/null)"
rm "$scratch/msg/b.h"
printf 'int one; // one() and two() of it\n' >"$scratch/msg/c.cc"
printf '`A::one` and `b::A::three_`, `std::move`\n' >"$scratch/msg/c.md"
expect "members that are not there are found" $'msg/c.cc:1: two\nmsg/c.md:1: three_' \
    "$(cd "$scratch" && members_of_nothing msg/c.*)"
rm "$scratch/msg/c".*
expect "a comment that names its file is found" "msg/a.h:1: a.h" "$(cd "$scratch" && named_in msg/* | own_names)"

find . -name .git -prune -o -path ./build -prune -o -type f -print | sed 's|^\./||' >"$scratch/there"
shopt -s globstar
files=({prov,tofu_sim,check,schedule,mpi,bench,fabtests,tests,include}/**/*.{h,cc,c} tests/**/*.sh docs/*.md man/*.[17]
    README.md CONTRIBUTING.md)
existing=()
for file in "${files[@]}"; do [ -f "$file" ] && existing+=("$file"); done
expect "there are files" 1 "$((${#existing[@]} > 600))"
named_in "${existing[@]}" >"$scratch/named"
expect "they name others" 1 "$(($(wc -l <"$scratch/named") > 500))"
expect "files that are not there" "" "$(names_of_nothing "$scratch/there" <"$scratch/named")"
expect "comments that name their own file" "" "$(own_names <"$scratch/named")"
mapfile -t sources < <(find prov tofu_sim analysis check schedule mpi bench fabtests tests include \
    -name '*.h' -o -name '*.cc' -o -name '*.c' | sort)
expect "lists of callers" "" "$(lists_of_callers "${sources[@]}")"
expect "persons in names of tests" "" "$(persons_in_names "${sources[@]}")"
expect "classes that are not there" "" "$(classes_of_nothing prov/tofu/src/*/*.{h,cc})"
exit $((failures != 0))
