#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A program of others, NetPIPE over Open MPI, in virtual time: it prints the latency and the bandwidth of Tofu-D.
# Called by: make check. Calls: tools/mpi, NPopenmpi.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
build=${TOFU_TOP_BUILDDIR:?set by make check}
. "$top/tools/mpi"
. "$top/tests/lib/expect"
netpipe=$(command -v NPopenmpi) || { echo "skipped: no NPopenmpi (install netpipe-openmpi)"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

export TOFU_SIM_CLOCK=tofud TOFU_SIM_CPU=0 TOFU_SIM_PPN=1
TOFU_MPIRUN_FLAGS="-x LD_PRELOAD=$build/tofu_sim/.libs/libtofu-sim-clock.so"
run_mpi 100 2 "$netpipe" -u 1048576 -n 10 -o np.out >log 2>&1 || { tail -n 40 log; exit 1; }
# Lines of np.out: bytes, Mbit/s, seconds of one way.
awk '$1 == 8 || $1 == 1024 || $1 == 1048576 { printf "%d B: %.2f us, %.2f GB/s\n", $1, $3 * 1e6, $2 / 8 * 1048576 / 1e9 }' np.out
within() # BYTES LOW HIGH, in nanoseconds
{
    awk -v bytes="$1" -v low="$2" -v high="$3" '$1 == bytes { ns = $3 * 1e9; if (ns >= low && ns <= high) print "yes" }' np.out
}
expect "8 bytes take some 0.9 us" yes "$(within 8 800 1000)"
expect "1 MiB comes at 5.4 to 6.4 GB/s" yes "$(within 1048576 163840 194000)"
[ "$failures" = 0 ] || exit 1
