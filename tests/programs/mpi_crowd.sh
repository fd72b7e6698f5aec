#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# 64 ranks, many more than processors: everyone talks to everyone, by small and by large messages.
# Called by: make check. Calls: tools/mpi, fabtests/mpi/mpi_conformance.
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
TOFU_SIM_SHAPE=2x2x2 run_mpi 200 64 "$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_conformance" \
    p2p_wildcards coll_basic coll_vectors coll_large
