#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The provider of --enable-portable: it asks for nothing that glibc 2.28 has not, brings libstdc++ and libgcc along, and
# works, with no system call that Linux 4.18 has not: through libfabric's tools, and the tests of messages and of sleeping.
# And the simulator can be compiled there, and reaches memory of every kind, though it moves none.
# Called by: make check. Calls: objdump, nm, fi_info, tests/old_kernel, tests/prov_msg_processes, tests/prov_objects,
# tests/memory_processes.
set -u
build=${TOFU_TOP_BUILDDIR:?set by make check}
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/lib/expect"
newest=2.28

look() # MODULE
{
    [ -e "$1" ] || { expect "$1 was built" yes no; return; }
    local later libraries
    later=$(objdump -T "$1" | awk -v newest="$newest" '
        match($0, /GLIBC_[0-9.]+/) {
            split(substr($0, RSTART + 6, RLENGTH - 6), version, ".")
            split(newest, limit, ".")
            if (version[1] + 0 > limit[1] + 0 || (version[1] == limit[1] && version[2] + 0 > limit[2] + 0))
                print $NF
        }' | tr '\n' ' ')
    expect "no symbol beyond glibc $newest" "" "$later"
    libraries=$(objdump -p "$1" | awk '$1 == "NEEDED" {print $2}')
    # The loader before glibc 2.30 looks for a name in the library that it was linked with, and nowhere else.
    expect "threads and loading are asked for in their old libraries" "" "$( (objdump -p "$1"; readelf -W --dyn-syms "$1") | awk '
        /required from/ {library = $3}
        /^ *0x[0-9a-f]+ 0x[0-9a-f]+ [0-9]+ / {of[$3 + 0] = library}
        / UND (__)?(pthread_(create|join|detach|once|.*key.*|.*specific|mutex_trylock|sig.*|set.*|testcancel)|dl[a-z]*)@GLIBC_/ {
            if (of[substr($NF, 2) + 0] !~ /^lib(pthread|dl)\.so/)
                print $8
        }' | tr '\n' ' ')"
    expect "some are looked at" yes "$(objdump -T "$1" | grep -q 'GLIBC_.* memcpy$' && echo yes)"
    expect "no libstdc++ or libgcc of the machine" "" "$(grep -E 'stdc|gcc' <<<"$libraries")"
    expect "libfabric and the C library" 2 "$(grep -cE '^lib(fabric\.so\.1|c\.so\.6)$' <<<"$libraries")"
    expect "it exports its one function" "fi_prov_ini " "$(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | tr '\n' ' ')"
    expect "it loads with every symbol bound" 0 "$(LD_BIND_NOW=1 LD_PRELOAD=$1 true >/dev/null 2>&1; echo $?)"
}

portable=$build/tests/prov/.libs
look "$portable/libtofu-fi.so"
[ "${TOFU_PORTABLE:-no}" = no ] || look "$build/prov/tofu/.libs/libtofu-fi.so"

# The simulator is compiled on the old system itself: what it calls must be there, in whatever version. Left out are
# what the C library has only renewed since, 2.33 and 2.34 as a whole, and what libstdc++ asks for.
renewed='exp|log2?|pow|fmod|pthread_(getattr_np|sigmask|cond_clockwait)|__libc_single_threaded|arc4random|__isoc23_.*'
later=$(objdump -T "$build/tofu_sim/.libs/libtofucom.so" "$build/check/tofu-check" |
    sed -n 's/.*(\?GLIBC_2\.\(29\|3[0-2]\|3[6-9]\|[4-9][0-9]\))\? *//p' | sort -u | grep -vxE "$renewed" | tr '\n' ' ')
expect "the simulator calls nothing that glibc $newest has not" "" "$later"

export FI_PROVIDER_PATH=$portable FI_PROVIDER=tofu
old=$build/tests/old_kernel
"$old" true 2>/dev/null
case $? in
0) ;;
77) echo "no filter of system calls here: over this kernel as it is"; old=env ;;
*) expect "what came after Linux 4.18 is refused" yes no ;;
esac
if command -v fi_info >/dev/null; then
    expect "libfabric finds it" 0 "$("$old" timeout 20 fi_info -p tofu >/dev/null 2>&1; echo $?)"
fi
for each in 'prov_msg_processes Message.A*-Message.AllToAll*:Message.AStorm*' 'prov_objects *-*DeathTest*' \
    'memory_processes *'; do
    read -r program filter <<<"$each"
    if [ -x "$build/tests/$program" ]; then
        said=$("$old" "$build/tests/$program" --gtest_filter="$filter" 2>&1)
        expect "$program over it" 0 $?
        [ "$failures" = 0 ] || tail -n 40 <<<"$said"
    fi
done
exit $((failures != 0))
