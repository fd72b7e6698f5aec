#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# `make dist` packs every source file: what a Makefile.include does not name is missing only for users of the archive.
# Called by: make check. Calls: make, for the list of what is distributed.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
build=${TOFU_TOP_BUILDDIR:?set by make check}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

printf 'include Makefile\nshow-distributed:\n\t@printf "%%s\\n" $(DISTFILES:$(srcdir)/%%=%%)\n' |
    make -s -C "$build" -f - show-distributed 2>"$scratch/said" | sort -u >"$scratch/packed"
[ -s "$scratch/packed" ] || { cat "$scratch/said"; echo "FAIL: make does not list what it distributes"; exit 1; }

# Sources by their endings, scripts by their first line; a build inside the tree leaves neither.
cd "$top" || exit 99
{
    find analysis bench check docs fabtests include man mpi prov schedule tests tofu_sim tools -name '*.*' -type f \
        -regex '.*\.\(cc\|c\|h\|sh\|md\|hex\|map\|svg\|include\|exclude\|test\|known\|[17]\)'
    grep -rlIE --exclude='*.*' -m 1 '^#!/bin/' bench tests tools
    git ls-files NEWS debian spack 2>/dev/null
} | grep -vE '/\.(libs|deps)/' | sort -u >"$scratch/there"
missing=$(comm -13 "$scratch/packed" "$scratch/there")
[ -z "$missing" ] || { printf 'FAIL: not in EXTRA_DIST nor any _SOURCES:\n%s\n' "$missing"; exit 1; }
echo "$(wc -l <"$scratch/there") files are packed"
