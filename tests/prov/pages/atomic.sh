#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# fi_atomic(3) on our provider, plain and with an adversarial interconnect. Called by: make check. Calls:
# fabtests/fi_atomic_pages.
set -u
program=fi_atomic_pages
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/prov/pages/pages"
run
run -k -s 2
run -n 2 -s 3
run -o -s 6
TOFU_SIM_CHAOS=11 run -s 4
TOFU_SIM_CHAOS=12 run -k -s 5
TOFU_SIM_CHAOS=13 run -o -s 7
exit $result
