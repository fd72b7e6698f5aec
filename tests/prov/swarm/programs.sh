#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Repeats the programs in programs/, each of which a defect has failed once. Called by: make check. Calls: replay.
set -u
shopt -s nullglob
programs=("${TOFU_TOP_SRCDIR:?set by make check}"/tests/prov/swarm/programs/*.txt)
exec "${TOFU_TOP_BUILDDIR:?set by make check}/tests/replay" "${programs[@]}"
