#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The modules of the provider include each other in one direction, and so do those of the simulator and of the analysis:
# the orders are read from docs/architecture.md, and an include against them fails. A member function is defined in the
# module of its class. What documents, comments and
# tofu-check name of the modules, as MODULE/FILE, is there.
# Called by: make check. Calls: awk, tests/lib/expect.
set -u
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"

# The line may be continued, up to the next empty line.
order_of() # TITLE
{
    sed -n "/^    $1: /,/^\$/p" "$TOFU_TOP_SRCDIR/docs/architecture.md" | sed "s/$1://" | tr -s '<, \n' ' '
}

# Includes against the order: "FILE: INCLUDE".
includes_against() # FOLDER MODULE...
{
    (cd "$1" && shift && grep -o '^#include "[a-z_]*/[^"]*"' -r --include='*.h' --include='*.cc' . |
        sed 's|^\./||; s|:#include "| |; s|"$||' | sort | awk -v order="$*" '
            BEGIN { n = split(order, modules, " "); for (i = 1; i <= n; i++) level[modules[i]] = i }
            { from = $1; sub("/.*", "", from); to = $2; sub("/.*", "", to)
              if (level[to] > level[from]) print $1 ": " $2 }')
}

# Member functions that are defined outside the module of their class: "FILE: CLASS of MODULE".
strayed_members() # FOLDER
{
    (cd "$1" && find . -name '*.h' -o -name '*.cc' | sed 's|^\./||' | sort | xargs awk '
        FNR == 1 { module = FILENAME; sub("/.*", "", module) }
        match($0, /^(template <[^>]*> )?(class|struct) (\[\[[a-z_:]*\]\] )?(alignas\([^)]*\) )?[A-Z][A-Za-z]*/) && !/;$/ {
            name = substr($0, RSTART, RLENGTH); sub(/.* /, "", name); modules[name] = modules[name] " " module
        }
        # A definition begins in the first column, a call does not.
        /^[^ \/#][^(]*::/ && match($0, /^[^({]*[A-Z][A-Za-z]*::~?[A-Za-z_]*\(/) {
            name = substr($0, RSTART, RLENGTH); sub(/::~?[A-Za-z_]*\($/, "", name); sub(/.*[^A-Za-z]/, "", name); found[++count] = name " " module " " FILENAME
        }
        END {
            for (i = 1; i <= count; i++) {
                split(found[i], w, " ")
                if (w[1] in modules && index(modules[w[1]] " ", " " w[2] " ") == 0) print w[3] ": " w[1] " of" modules[w[1]]
            }
        }' | sort -u)
}

# Names MODULE/FILE that no file has.
names_of_nothing() # MODULE...
{
    local file line name top
    while IFS=: read -r file line name; do
        name=${name//[^a-z_0-9\/]/}
        for top in prov/tofu/src tofu_sim analysis; do
            compgen -G "$TOFU_TOP_SRCDIR/$top/${name}.*" >/dev/null && continue 2
        done
        echo "$file:$line: $name"
    done < <(cd "$TOFU_TOP_SRCDIR" && grep -rnoE "(^|[ \`(\"*])($(tr ' ' '|' <<<"$*"))/[a-z_0-9]+" check docs/*.md prov/tofu/src README.md)
}

# The test itself.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/low" "$scratch/high"
printf '#include "high/b.h"\nclass Low {\n};\n' >"$scratch/low/a.h"
printf '#include "low/a.h"\nint Low::count() const\n{\n}\n' >"$scratch/high/b.cc"
expect "an include upwards is found" "low/a.h: high/b.h" "$(includes_against "$scratch" low high)"
expect "a member far from its class is found" "high/b.cc: Low of low" "$(strayed_members "$scratch")"

read -ra modules <<<"$(order_of 'order of modules')"
expect "modules and folders" "$(printf '%s\n' "${modules[@]}" | sort)" "$(ls "$TOFU_TOP_SRCDIR/prov/tofu/src")"
expect "includes against the order" "" "$(includes_against "$TOFU_TOP_SRCDIR/prov/tofu/src" "${modules[@]}")"
# What puts a process together knows all that is put together, and the clock writes a trace.
read -ra simulator <<<"$(order_of 'order of the simulator')"
read -ra analysis <<<"$(order_of 'order of the analysis')"
expect "modules of the simulator and folders" "$(printf '%s\n' "${simulator[@]}" | sort)" \
    "$(cd "$TOFU_TOP_SRCDIR/tofu_sim" && for folder in */*.cc; do echo "${folder%%/*}"; done | sort -u)"
expect "includes against the order of the simulator" "" "$(includes_against "$TOFU_TOP_SRCDIR/tofu_sim" "${simulator[@]}" |
    grep -vE '^job/(process|environment)\.|^clock/clock\.cc: trace/recorder\.h$')"
expect "includes against the order of the analysis" "" "$(includes_against "$TOFU_TOP_SRCDIR/analysis" "${analysis[@]}")"
expect "includes of the analysis outside of tools/" "" "$(cd "$TOFU_TOP_SRCDIR" && {
    grep -rnE "^#include \"($(IFS='|' && echo "${analysis[*]}"))/" --include='*.h' --include='*.cc' tofu_sim | grep -v '^tofu_sim/tools/'
    grep -rnE '^#include "tools/' --include='*.h' --include='*.cc' analysis
})"
# fi_cq_read down to the VCQ is one compilation, with the endpoint.
expect "members outside the module of their class" "" \
    "$(strayed_members "$TOFU_TOP_SRCDIR/prov/tofu/src" | grep -v '^api/cq_read.cc')"
expect "names of files that are not there" "" "$(names_of_nothing "${modules[@]}")"
# Provider, simulator and schedules: the first two include the last, which includes nothing of the tree but itself.
expect "includes of another library" "" "$(cd "$TOFU_TOP_SRCDIR" && {
    grep -rnE '^#include "(tofu_sim|analysis|tools|replay|traces|pictures|topology|clock|tni)/' --include='*.h' --include='*.cc' prov/tofu/src
    grep -rnE "^#include \"(prov|$(printf '%s\n' "${modules[@]}" | grep -vx api | paste -sd'|'))/" --include='*.h' --include='*.cc' tofu_sim
    grep -rnE '^#include "' schedule | grep -v '"schedule/'
})"
exit $((failures != 0))
