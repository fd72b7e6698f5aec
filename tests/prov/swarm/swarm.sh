#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Random programs over the deterministic network: 15 s of fixed seeds, then 10 s of new ones, whose first is printed. A
# few run over libfabric's tcp;ofi_rxm, and by real processes over tofu_sim.
# Called by: make check. Calls: swarm.
set -u
swarm=${TOFU_TOP_BUILDDIR:?set by make check}/tests/swarm
export SWARM_KNOWN=renew # docs/testing.md
"$swarm" 15 1 && "$swarm" 10 && "$swarm" -p tcp 2 10 || exit 1
[ ! -e "${FI_TOFU_BACKEND:?set by make check}" ] || "$swarm" -p sim 3 1
