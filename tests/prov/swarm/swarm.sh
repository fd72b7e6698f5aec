#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Random programs over the deterministic network: 15 s of fixed seeds, then 20 s of new ones, whose first is printed.
# Called by: make check. Calls: swarm.
set -u
swarm=${TOFU_TOP_BUILDDIR:?set by make check}/tests/swarm
"$swarm" 15 1 && "$swarm" 20
