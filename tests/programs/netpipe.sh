#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# NetPIPE (netpipe-openmpi of Debian, unmodified): every size, contents checked by -i.
# Called by: make check. Calls: tools/mpi, NPopenmpi.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
netpipe=$(command -v NPopenmpi) || { echo "skipped: no NPopenmpi (install netpipe-openmpi)"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

# Speed first, by all sizes up to 8 MiB; NetPIPE writes np.out with a line for each.
run_mpi 200 2 "$netpipe" -u 8388608 -n 10 -o "$scratch/np.out" >"$scratch/log" 2>&1
status=$?
tail -n 5 "$scratch/log"
[ $status = 0 ] || { echo "NetPIPE failed with status $status"; tail -n 40 "$scratch/log"; exit 1; }
sizes=$(wc -l <"$scratch/np.out")
largest=$(tail -n 1 "$scratch/np.out" | awk '{print $1}')
echo "NetPIPE: $sizes sizes up to $largest bytes"
[ "$sizes" -ge 100 ] && [ "$largest" -ge 8388608 ] || { echo "some sizes are missing"; exit 1; }

# Then the contents: NetPIPE's integrity mode stops at the first wrong byte.
run_mpi 100 2 "$netpipe" -i -u 1048576 -o "$scratch/np2.out" >"$scratch/log2" 2>&1
status=$?
tail -n 3 "$scratch/log2"
[ $status = 0 ] || { echo "NetPIPE -i failed with status $status"; tail -n 40 "$scratch/log2"; exit 1; }
if grep -qi 'error\|mismatch' "$scratch/log2"; then
    echo "NetPIPE found wrong data"
    exit 1
fi
