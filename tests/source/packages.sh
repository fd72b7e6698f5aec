#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# One version: what configure.ac says, the provider, the packages and NEWS say too. And what is installed is in a package.
# Called by: make check. Reads the sources.
set -u
cd "${TOFU_TOP_SRCDIR:?set by make check}" || exit 99
. tests/lib/expect
version=$(sed -n 's/^AC_INIT(\[tofu-fi\], \[\([0-9.]*\)\])/\1/p' configure.ac)
expect "configure.ac has a version of three numbers" 1 "$(grep -cE '^[0-9]+\.[0-9]+\.[0-9]+$' <<<"$version")"
pair=$(sed 's/^\([0-9]*\)\.\([0-9]*\)\..*/\1, \2/' <<<"$version")
expect "the provider" "FI_VERSION($pair)" "$(grep -oE '\.version = FI_VERSION\([0-9, ]*\)' prov/tofu/src/api/provider.cc | sed 's/.*= //')"
expect "its fi_info" "FI_VERSION($pair)" "$(grep -oE 'prov_version = FI_VERSION\([0-9, ]*\)' prov/tofu/src/api/getinfo.cc | sed 's/.*= //')"
expect "NEWS" "$version" "$(grep -m 1 -xE '[0-9.]+' NEWS)"
expect "debian/changelog" "$version" "$(sed -n '1s/^tofu-fi (\([0-9.]*\).*/\1/p' debian/changelog)"
expect "spack/" "$version" "$(grep -oE 'version\("[0-9.]+"' spack/packages/tofu-fi/package.py | head -n 1 | cut -d'"' -f2)"

# dh_missing would say so, minutes later.
mapfile -t patterns < <(cat debian/*.install)
left_out=
while read -r kind file; do
    name=$(basename "$file" .la)
    case $kind in
    bin_PROGRAMS) path=usr/bin/$name ;;
    lib_LTLIBRARIES) path=usr/lib/any/$name.so ;;
    prov_LTLIBRARIES) path=usr/lib/any/libfabric/$name.so ;;
    dist_man_MANS) path=usr/share/man/man${name##*.}/$name ;;
    esac
    found=no
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053
        if [[ $path == $pattern || $path == $pattern/* ]]; then found=yes; fi
    done
    [ $found = yes ] || left_out+="$path "
done < <(grep -rhE '^(bin_PROGRAMS|lib_LTLIBRARIES|prov_LTLIBRARIES|dist_man_MANS) \+?= [^ ]' --include=Makefile.include . | sed 's/ +*= / /')
expect "all that is installed is in a package" "" "$left_out"
exit $((failures != 0))
