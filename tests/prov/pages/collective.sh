#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# fi_collective(3) and fi_av_set(3) on our provider, plain and with an adversarial interconnect. Called by: make check.
# Calls: fabtests/fi_collective_pages.
set -u
program=fi_collective_pages
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/prov/pages/pages"
run
run -n 3 -s 3
TOFU_SIM_CHAOS=21 run -k -s 4
exit $result
