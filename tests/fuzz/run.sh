#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Builds the fuzz targets with clang's libFuzzer, AddressSanitizer and UBSan and runs each for a while.
# Called by: make fuzz, by hand. Calls: clang++, tests/fuzz/*.cc, the sources of simulator and provider.
#
# usage: run.sh [TARGET ...]
# FUZZ_SECONDS: how long each runs (default 60); FUZZ_DIR: where objects and corpora go (default fuzz-build here);
# CLANGXX: the compiler. A finding is left there as crash-* or timeout-*; `run.sh pack` adds the inputs found to the
# corpus that `make check` replays, after making it as small as they allow.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
directory=${FUZZ_DIR:-$PWD/fuzz-build}
compiler=${CLANGXX:-clang++}
config=${FUZZ_CONFIG:-$PWD}     # where config.h is
flags="-std=c++20 -g -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -DHAVE_CONFIG_H
 -I$config -I$top/include -I$top/analysis -I$top/tofu_sim -I$top/tests -I$top/tests/fuzz -pthread"
simulator="barrier descriptor job mrq post stag trace"
tools="analysis/traces/chrome.cc analysis/traces/goal.cc analysis/traces/reader.cc analysis/traces/run.cc
 analysis/traces/summary.cc analysis/pictures/bundles.cc analysis/pictures/cables.cc analysis/pictures/network.cc
 analysis/pictures/page.cc analysis/pictures/sizes.cc analysis/pictures/svg.cc analysis/pictures/time.cc"
provider="keys packet visit words"
all="$simulator $provider"
provider_sources="mem/mr_directory mem/bounce_pool tx/remote_memory msg/wire core/system utofu/vcq utofu/tni_allocator
 utofu/vcq"

compile() # SOURCE OBJECT [FLAGS]
{
    if [ ! -e "$2" ] || [ -n "$(find "$top/analysis" "$top/tofu_sim" "$top/prov" "$top/tests/fuzz" -name '*.h' -newer "$2")" ] ||
        [ "$1" -nt "$2" ]; then
        # shellcheck disable=SC2086
        "$compiler" $flags ${3:-} -c "$1" -o "$2"
    fi
}

build()
{
    mkdir -p "$directory"
    local objects=()
    local source object
    for source in $(cd "$top" && ls tofu_sim/{api,barrier,clock,job,memory,tni,topology}/*.cc | grep -v clock/preload) \
        tofu_sim/trace/recorder.cc tofu_sim/tools/job_files.cc analysis/traces/link_loads.cc $tools \
        $(printf 'tests/fuzz/%s.cc ' $simulator); do
        object=$directory/$(echo "$source" | tr / - | sed 's/cc$/o/')
        compile "$top/$source" "$object"
        objects+=("$object")
    done
    local theirs=()
    for source in $(printf 'prov/tofu/src/%s.cc ' $provider_sources) $(printf 'tests/fuzz/%s.cc ' ${provider/visit/}); do # packet.cc has it
        object=$directory/$(echo "$source" | tr / - | sed 's/cc$/o/')
        compile "$top/$source" "$object" "-I$top/prov/tofu/src ${LIBFABRIC_CFLAGS:-}"
        theirs+=("$object")
    done
    for target in $all; do
        compile "$top/tests/fuzz/entry.cc" "$directory/entry-$target.o" "-DTOFU_FUZZ_TARGET=$target"
        local rest=()
        case " $provider " in
        *" $target "*)
            parts=("${theirs[@]}")
            rest=("$config/prov/tofu/.libs/libprov.a" -lfabric -ldl) # what these call besides: logs, errors, numbers
            ;;
        *) parts=("${objects[@]}") ;;
        esac
        "$compiler" -fsanitize=fuzzer,address,undefined -pthread "${parts[@]}" "$directory/entry-$target.o" "${rest[@]}" \
            -o "$directory/$target"
    done
}

unpack() # TARGET: the lines of the corpus as files
{
    mkdir -p "$directory/corpus-$1"
    local number=0
    while read -r line; do
        # shellcheck disable=SC2059
        printf "$(echo "$line" | sed 's/../\\x&/g')" >"$directory/corpus-$1/kept-$((number++))"
    done <"$top/tests/fuzz/corpus/$1.hex"
}

pack() # TARGET
{
    rm -rf "$directory/small-$1"
    mkdir "$directory/small-$1"
    "$directory/$1" -merge=1 -max_len=512 "$directory/small-$1" "$directory/corpus-$1" >/dev/null 2>&1
    # Some sixty of all sizes.
    count=$(find "$directory/small-$1" -type f | wc -l)
    for file in $(ls -Sr "$directory/small-$1" | awk -v n="$count" 'n <= 60 || NR % int(n / 60 + 1) == 0'); do
        od -An -v -tx1 "$directory/small-$1/$file" | tr -d ' \n'
        echo
    done >"$top/tests/fuzz/corpus/$1.hex"
}

build
if [ "${1:-}" = pack ]; then
    for target in $all; do
        pack "$target"
    done
    exit
fi
status=0
started=$directory/started
touch "$started"
for target in ${*:-$all}; do
    unpack "$target"
    echo "== $target"
    (cd "$directory" && ASAN_OPTIONS=detect_leaks=0 "./$target" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 \
        -max_len=2048 -print_final_stats=1 "corpus-$target") 2>&1 |
        grep -E '^(stat::|==|SUMMARY|fuzz:|Test unit|.*(ERROR|runtime error))' || true
    found=$(find "$directory" -maxdepth 1 \( -name 'crash-*' -o -name 'timeout-*' -o -name 'oom-*' \) -newer "$started")
    [ -z "$found" ] || status=1
done
exit $status
