#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Every environment variable and option of the code stands in its manual page, and none besides.
# Called by: make check. Calls: man where it is there. Reads the sources.
set -u
cd "${TOFU_TOP_SRCDIR:?set by make check}" || exit 99
failures=0
fail()
{
    echo "FAIL: $*"
    failures=$((failures + 1))
}
in_page()
{
    grep -qw -- "$2" "man/$1" || fail "$2 is not in man/$1"
}

params=$(grep -oE '"FI_TOFU_[A-Z_]+"' prov/tofu/src/core/params.cc | tr -d '"')
sim=$(grep -rhoE '"(TOFU_SIM|UTOFU)_[A-Z_]+"' --include='*.cc' tofu_sim/job tofu_sim/memory tofu_sim/tni |
    tr -d '"' | grep -v '^UTOFU_ERR\|^UTOFU_SUCCESS' | sort -u)
[ "$(echo "$params" | wc -l)" -ge 1 ] && [ "$(echo "$sim" | wc -l)" -ge 8 ] || fail "found too few variables in the sources"
for name in $params; do in_page fi_tofu.7 "$name"; done
for name in $sim; do in_page tofu_sim.7 "$name"; done
# And none that the code does not read.
for name in $(grep -ohE '\bFI_TOFU_[A-Z_]+' man/fi_tofu.7 | sort -u); do
    echo "$params" | grep -qx "$name" || grep -qrw "$name" include/rdma || fail "man/fi_tofu.7 has $name, which nothing reads"
done
for name in $(grep -ohE '\b(TOFU_SIM|UTOFU_NUM|UTOFU_SWAP)_[A-Z_]+' man/tofu_sim.7 | sort -u); do
    echo "$sim" | grep -qx "$name" || fail "man/tofu_sim.7 has $name, which nothing reads"
done
for name in $(grep -ohE '"TOFU_MPI_[A-Z]+"' mpi/preload.cc | tr -d '"'); do in_page tofu-mpi.7 "$name"; done
for name in $(grep -ohE '\bTOFU_MPI_[A-Z]+' man/tofu-mpi.7 | sort -u); do
    grep -q "\"$name\"" mpi/preload.cc || fail "man/tofu-mpi.7 has $name, which nothing reads"
done
# Options of tofu-sim: as its help lists them.
for option in $(sed -n 's/^ *"  \(--[a-z-]*\) .*/\1/p' tofu_sim/tools/main.cc); do
    grep -q -- "$(echo "$option" | sed 's/-/\\\\-/g')" man/tofu-sim.1 || fail "$option is not in man/tofu-sim.1"
done
# Those of tofu-check: as its table of options has them, but for what it tells its own workers.
options=$(sed -n 's/.*{"\([a-z-]*\)", \(no\|required\)_argument.*/\1/p' check/main.cc | grep -vx worker)
[ "$(echo "$options" | wc -l)" -ge 9 ] || fail "found too few options of tofu-check"
for option in $options; do
    grep -q -- "^\.BI* \\\\-\\\\-$(echo "$option" | sed 's/-/\\\\-/g')" man/tofu-check.1 || fail "--$option is not in man/tofu-check.1"
done
if command -v man >/dev/null; then
    for page in man/*.[17]; do
        warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
        [ -z "$warnings" ] || fail "$page: $warnings"
    done
fi
[ "$failures" = 0 ] || exit 1
echo "manual pages: $(echo "$params" "$sim" | wc -w) variables"
