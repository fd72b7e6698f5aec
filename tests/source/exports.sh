#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What our libraries export, and what they want from others: as a program compiled on a real system,
# a profiling tool, or another libfabric finds it.
# Called by: make check. Calls: nm, objdump, readelf. Reads include/putofu.h.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
build=${TOFU_TOP_BUILDDIR:?set by make check}
failures=0
fail()
{
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# A variable of a thread that is allocated at its first access ends the process where there is no memory for it. TLSDESC
# is the form of aarch64.
for each in "$build"/tofu_sim/.libs/libtofucom.so "$build"/prov/tofu/.libs/libtofu-fi.so "$build"/tofu_sim/.libs/libtofu-sim-clock.so; do
    [ -e "$each" ] || continue
    ! readelf -rW "$each" | grep -qE 'DTPMOD|TLSDESC' || fail "${each##*/} allocates variables of threads at their first access"
done

library=$build/tofu_sim/.libs/libtofucom.so
if [ -e "$library" ]; then
    symbols=$(nm -D --defined-only "$library" | awk '{print $3, $2}')
    functions=$(sed -n 's/^    X(\([a-z0-9_]*\)).*/\1/p' "$top/include/putofu.h")
    [ "$(echo "$functions" | wc -l)" = 66 ] || fail "putofu.h no longer lists 66 functions"
    for name in $functions; do
        echo "$symbols" | grep -qx "utofu_$name W" || fail "utofu_$name is not a weak symbol"
        echo "$symbols" | grep -qx "putofu_$name T" || fail "putofu_$name is not a strong symbol"
    done
    # What tofu_sim.h has had since version 1.0 stays.
    promised='version job wait wake give_way query_statistics seen time moved'
    for name in $promised; do
        echo "$symbols" | grep -qx "tofu_sim_$name T" || fail "tofu_sim_$name, promised for version 1, is not exported"
    done
    # Nothing else: each exported name may collide with one of a program, and names that are not promised get used.
    others=$(echo "$symbols" | awk '{print $1}' | grep -vE "^p?utofu_[a-z0-9_]+\$|^tofu_sim_(${promised// /|})\$")
    [ -z "$others" ] || fail "exported besides: $(echo "$others" | tr '\n' ' ')"
    soname=$(objdump -p "$library" | awk '$1 == "SONAME" {print $2}')
    [ "$soname" = libtofucom.so ] || fail "soname is $soname, not libtofucom.so"
    echo "libtofucom.so: $(echo "$functions" | wc -l) functions and their twins"
fi

provider=$build/prov/tofu/.libs/libtofu-fi.so
if [ -e "$provider" ]; then
    exported=$(nm -D --defined-only "$provider" | awk '{print $3}' | sed 's/@.*//' | sort | tr '\n' ' ')
    [ "$exported" = "fi_prov_ini " ] || fail "the provider exports: $exported"
    if nm -D --undefined-only "$provider" | grep -qw 'utofu_[a-z0-9_]*'; then
        fail "the provider is linked to uTofu instead of looking it up"
    fi
    # Newer symbols of libfabric would keep the binary from loading on 1.17.
    newer=$(nm -D --undefined-only "$provider" | grep -o 'FABRIC_1\.[0-9]*' | sort -u |
        awk -F. '$2 > 6')
    [ -z "$newer" ] || fail "the provider wants $newer"
    if objdump -p "$provider" | grep -q 'NEEDED.*libtofucom'; then
        fail "the provider needs libtofucom.so to be loaded"
    fi
    echo "libtofu-fi.so: exports fi_prov_ini only"
fi
node=$build/tofu_sim/.libs/libtofu-sim-node.so
if [ -e "$node" ]; then
    exported=$(nm -D --defined-only "$node" | awk '{print $3}' | sort | tr '\n' ' ')
    [ "$exported" = "hwloc_topology_get_support " ] || fail "libtofu-sim-node.so exports: $exported"
    # Programs without hwloc get it, too.
    ! objdump -p "$node" | grep -q 'NEEDED.*hwloc' || fail "libtofu-sim-node.so brings hwloc along"
    echo "libtofu-sim-node.so: exports the one function that it replaces"
fi
preload=$build/mpi/.libs/libtofu-mpi.so
if [ -e "$preload" ]; then
    exported=$(nm -D --defined-only "$preload" | awk '{print $3}' | sort | tr '\n' ' ')
    [ "$exported" = "MPI_Allreduce MPI_Barrier MPI_Bcast MPI_Finalize MPI_Init MPI_Init_thread MPI_Reduce " ] ||
        fail "libtofu-mpi.so exports: $exported"
    # A call of MPI_* would reach this library again.
    if nm -D --undefined-only "$preload" | grep -qw 'MPI_[A-Za-z_]*'; then
        fail "libtofu-mpi.so calls MPI by names that are not those for profiling"
    fi
    echo "libtofu-mpi.so: exports what it takes over"
fi
[ -e "$library" ] || [ -e "$provider" ] || { echo "neither library was built"; exit 77; }
[ "$failures" = 0 ] || exit 1
