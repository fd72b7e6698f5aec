#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The probes of fi_tofu(7) are in the provider, if it was built with systemtap's header, and none is there that the page
# does not have.
# Called by: make check. Calls: readelf.
set -u
build=${TOFU_TOP_BUILDDIR:?set by make check}
source=${TOFU_TOP_SRCDIR:?set by make check}
. "$source/tests/lib/expect"

if ! echo '#include <sys/sdt.h>' | ${CC:-cc} -E - >/dev/null 2>&1; then
    echo "skipped: no sys/sdt.h here (package systemtap-sdt-dev)"
    exit 77
fi
there=$(readelf -nW "$build/prov/tofu/.libs/libtofu-fi.so" | awk '/Provider: / {tofu = $NF == "tofu"} $1 == "Name:" && tofu {print $2}' | sort -u)
told=$(awk '/^\.SH/ {probes = $2 == "PROBES"} probes && /^\.BR [a-z_]+ "/ {print $2}' "$source/man/fi_tofu.7" | sort -u)
expect "the page names some" yes "$([ -n "$told" ] && echo yes)"
expect "those of the page are in the module" "$told" "$there"
exit $((failures != 0))
