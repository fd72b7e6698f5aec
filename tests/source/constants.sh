#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# No page and no line of x86 in the sources: pages have up to 64 KiB, a processor's lines 64 or 256 bytes. Sizes stand in
# two named places (core/limits.h, job/shared_word.h); what else is aligned is so to 256, a line of Tofu, or to 65536.
# Called by: make check. Reads the sources.
set -u
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/sources"

# What would be one: alignment, the rounding to pages, constants with such a name, calls that take pages.
size='(\(?size_t[{)(]|std::size_t[{(])?(64|4096|8192)\b'
assumed="alignas\\((64|4096)\\)|aligned\\((64|4096)\\)|[-+&~] ?(std::)?(size_t\\{|uint64_t\\{)?(4095|63)\\}?\\) *& *~"
assumed+="|[&~] *(std::)?(u?int64_t\\{|size_t\\{)?4095"
assumed+="|\\b[a-z_]*(page|line)(_size|_bytes)? *(=|\\{) *$size[;},]"
assumed+="|\\b(mmap|munmap|mprotect|mincore|madvise|aligned_alloc|posix_memalign|align_val_t)\\b[^;]*[({, +]$size"
assumed+="|hardware_(con|de)structive"
named='prov/tofu/src/core/limits.h:.* least_line = 64;|prov/tofu/src/core/limits.h:.* processor_line = *64;'
# Lines of 64 bytes in which the simulator's clock notes what has arrived: its own unit, of no processor.
named+='|tofu_sim/clock/arrivals.h:.* line_bytes = 64;'

found_in() { without_comments "$1" | grep -nE "$assumed" | sed "s,^,$1:,"; }

expect_lines_are_found <<'END'
struct alignas(64) Record {
} table __attribute__((aligned(64)));
constexpr size_t page = 4096;
static constexpr std::size_t line = 64;
void* p = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, -1, 0);
mprotect(all + 4096, bytes, PROT_READ);
auto* q = std::aligned_alloc(4096, size);
return (bytes + 4095) & ~size_t{4095};
alignas(std::hardware_destructive_interference_size) int x;
END
expect "sizes of pages and lines" "" "$(found_in_sources "$assumed" | grep -vE "$named")"
exit $((failures != 0))
