#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Open MPI over libfabric's lnx, which links shm and this provider (fi_peer(3)): with shm within the node, as it is used,
# and without, where every message is this provider's and every receive lnx's.
# Called by: make check. Calls: fi_info, mpirun, fabtests/mpi/mpi_conformance.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
program=$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_conformance
# What lnx 2.1 cannot do by whatever provider is left out: cancel, probe, and by shm messages that are too long.
parts="p2p_modes p2p_sizes p2p_order p2p_sendrecv p2p_persistent p2p_wildcards p2p_self p2p_many coll comm
    datatype_vector datatype_struct datatype_indexed"

command -v fi_info >/dev/null || { echo "skipped: no fi_info (install libfabric-bin)"; exit 77; }
fi_info -l 2>/dev/null | grep -q '^lnx:' || { echo "skipped: this libfabric has no lnx (2.0 or later has)"; exit 77; }
[ "$(mpi_major)" -ge 5 ] || { echo "skipped: Open MPI's libfabric may be another one (Open MPI 5 is wanted)"; exit 77; }

unset FI_PROVIDER # of several there is none
export FI_LNX_PROV_LINKS=shm+tofu FI_TOFU_STATS=1
name=$(timeout 20 fi_info -p lnx -c FI_TAGGED 2>/dev/null | sed -n 's/^provider: //p' | head -n 1)
[ -n "$name" ] || { echo "FAIL: lnx does not link shm and tofu"; timeout 20 fi_info -p lnx; exit 1; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for without_shm in 0 1; do
    export FI_LNX_DISABLE_SHM=$without_shm
    timeout --foreground --kill-after=15 60 mpirun --oversubscribe --allow-run-as-root -n 4 \
        --mca pml cm --mca mtl ofi --mca btl self --mca mtl_ofi_provider_include "$name" \
        "$program" $parts </dev/null >"$scratch/out" 2>&1
    status=$?
    # By shm this provider has sent nothing.
    sent=$(grep -c '^  send_slot ' "$scratch/out")
    grep -E '^(ok|FAIL)|failed' "$scratch/out"
    echo "FI_LNX_DISABLE_SHM=$without_shm: status $status, $sent processes have sent by tofu"
    if [ "$status" != 0 ] || [ "$sent" != $((4 * without_shm)) ]; then
        echo "FAIL: see above"
        tail -n 60 "$scratch/out"
        exit 1
    fi
done
