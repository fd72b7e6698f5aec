#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Figures of documents: where a document names a constant of the code with its value, as in "`slot_size` = 256", the
# code has the same value. A name that several files define with different values is written as `file.h: name`.
# Called by: make check. Reads docs/, README.md and the sources.
set -u
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
cd "$TOFU_TOP_SRCDIR" || exit 99
shopt -s globstar

sources=(prov/tofu/src/**/*.{h,cc} tofu_sim/**/*.{h,cc} schedule/*.h include/*.h)

# The sizes of types that an expression may ask for; others make it unknown.
sizes=(OverflowEntry=16 CompletionWord=8 utofu_vcq_id_t=8 Bucket=256 Entry=48 Control=8 Envelope=32)

# Prints the value of a constant, from the files whose path ends with FILE (empty: any). Several values are separated by
# spaces; nothing for an unknown one.
values_of() # NAME FILE DEPTH
{
    local name=$1 file=$2 depth=${3:-0} path expression definition inner value all=()
    [ "$depth" -lt 12 ] || return
    while IFS= read -r definition; do
        path=${definition%%:*}
        [ -z "$file" ] || [[ $path == *"$file" ]] || continue
        expression=$(sed -E "s/.*[^A-Za-z_0-9]$name *= *//; s/[;].*//; s/, *[a-z_]+ *=.*//; s/([0-9])'([0-9])/\1\2/g; s/([0-9])'([0-9])/\1\2/g
            s/(std::)?(size_t|u?int[0-9]+_t)\{([^}]*)\}/(\3)/g; s/\b([0-9]+)[uUlL]+\b/\1/g; s/std:://g; s/[a-z_]+::([a-z_]+)/\1/g" <<<"${definition#*:}")
        for inner in "${sizes[@]}"; do
            expression=${expression//sizeof(${inner%=*})/${inner#*=}}
        done
        expression=${expression//sizeof(uint64_t)/8}
        while [[ $expression =~ ([A-Za-z_][A-Za-z_0-9]*) ]]; do
            inner=${BASH_REMATCH[1]}
            value=$(values_of "$inner" "${path##*/}" $((depth + 1)))
            [[ $value =~ ^[0-9-]+$ ]] || value=$(values_of "$inner" "" $((depth + 1)))
            [[ $value =~ ^[0-9-]+$ ]] || continue 2
            expression=$(sed -E "s/\b$inner\b/$value/g" <<<"$expression")
        done
        [[ $expression =~ ^[-+*/%0-9\ ()\<\>]+$ ]] && all+=("$((expression))")
    done < <(grep -E "constexpr [^;=(]*\b$name *= |constexpr [^;(]*, $name *= " "${sources[@]}")
    printf '%s\n' "${all[@]}" | sort -un | tr '\n' ' ' | sed 's/ $//'
}

# Prints "FILE:LINE: what is wrong" for each figure of the documents that is not the code's, and the number of figures
# to descriptor 3.
wrong_figures() # DOCUMENT...
{
    local found place said file name value
    while IFS= read -r found; do
        place=$(cut -d : -f 1,2 <<<"$found")
        said=${found#"$place":}
        name=${said#\`} name=${name%%\`*} value=${said##*= } value=${value//,/}
        file=
        [[ $name != *:\ * ]] || { file=${name%%: *} name=${name#*: }; }
        echo . >&3
        case $(values_of "$name" "$file") in
        "$value") ;;
        "") echo "$place: \`$name\` is no constant of the code" ;;
        *) echo "$place: \`$name\` is $(values_of "$name" "$file") in the code, not $value" ;;
        esac
    done < <(grep -noHE '`([a-z_]+\.(h|cc): )?[a-z][a-z_0-9]*` = [0-9][0-9,]*' "$@")
}

# The test itself: it finds a wrong value, an unknown name, and an ambiguous one.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf '%s\n' '`slot_size` = 256 and `max_eager` = 8,193' '`no_such_constant` = 1' '`wide.cc: no_such` = 3' >"$scratch/x.md"
expect "wrong figures are found" "1: \`max_eager\` is 8192 in the code, not 8193
2: \`no_such_constant\` is no constant of the code
3: \`no_such\` is no constant of the code" "$(wrong_figures "$scratch/x.md" 3>/dev/null | sed "s|.*x.md:||")"
expect "a value that is computed" 65792 "$(values_of completions_offset wire.h)"

expect "figures of docs/ and README.md" "" "$(wrong_figures README.md docs/*.md 3>"$scratch/count")"
expect "there are some" yes "$([ "$(wc -l <"$scratch/count")" -gt 30 ] && echo yes)"
exit $((failures != 0))
