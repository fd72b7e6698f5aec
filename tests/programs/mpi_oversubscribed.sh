#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Many more ranks than processors: everyone talks to everyone, by small and by large messages.
# Called by: make check, with 64 ranks. Calls: tools/mpi, fabtests/mpi/mpi_conformance.
#
# TOFU_OVERSUBSCRIBED_RANKS=256: so many ranks, and what is short alone. Their start takes two minutes on two processors, so that
# is for soaks: make check TESTS=tests/programs/mpi_oversubscribed.sh TOFU_OVERSUBSCRIBED_RANKS=256
set -u
top=${TOFU_TOP_SRCDIR:?set by make check}
. "$top/tools/mpi"
ranks=${TOFU_OVERSUBSCRIBED_RANKS:-64}
tests="coll_short p2p_wildcards coll_basic coll_vectors coll_large"
seconds=200
if [ "$ranks" -gt 64 ]; then
    tests=coll_short
    seconds=280
fi
# shellcheck disable=SC2086
TOFU_SIM_SHAPE=2x2x2 run_mpi "$seconds" "$ranks" "$TOFU_TOP_BUILDDIR/fabtests/mpi/mpi_conformance" $tests
