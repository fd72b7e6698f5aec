#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# One version: what configure.ac says, the provider, the packages and NEWS say too.
# Called by: make check. Reads the sources.
set -u
cd "${TOFU_TOP_SRCDIR:?set by make check}" || exit 99
. tests/lib/expect
version=$(sed -n 's/^AC_INIT(\[tofu-fi\], \[\([0-9.]*\)\])/\1/p' configure.ac)
expect "configure.ac has a version of three numbers" 1 "$(grep -cE '^[0-9]+\.[0-9]+\.[0-9]+$' <<<"$version")"
pair=$(sed 's/^\([0-9]*\)\.\([0-9]*\)\..*/\1, \2/' <<<"$version")
expect "the provider" "FI_VERSION($pair)" "$(grep -oE '\.version = FI_VERSION\([0-9, ]*\)' prov/tofu/src/object/init.cc | sed 's/.*= //')"
expect "its fi_info" "FI_VERSION($pair)" "$(grep -oE 'prov_version = FI_VERSION\([0-9, ]*\)' prov/tofu/src/info/info.cc | sed 's/.*= //')"
expect "NEWS" "$version" "$(grep -m 1 -xE '[0-9.]+' NEWS)"
expect "debian/changelog" "$version" "$(sed -n '1s/^tofu-fi (\([0-9.]*\).*/\1/p' debian/changelog)"
expect "spack/" "$version" "$(grep -oE 'version\("[0-9.]+"' spack/packages/tofu-fi/package.py | head -n 1 | cut -d'"' -f2)"
exit $((failures != 0))
