#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# fi_atomic(3) on our provider: both ways of addressing memory, then with an adversarial interconnect.
# Called by: make check. Calls: fabtests/fi_atomic_pages.
set -u
program=${TOFU_TOP_BUILDDIR:?set by make check}/fabtests/fi_atomic_pages
export FI_PROVIDER=tofu
result=0
run()
{
    timeout 120 "$program" -p tofu "$@" || { echo "FAIL $* ${TOFU_SIM_CHAOS:+chaos $TOFU_SIM_CHAOS}"; result=1; }
}
run
run -k -s 2
run -n 2 -s 3
run -o -s 6
TOFU_SIM_CHAOS=11 run -s 4
TOFU_SIM_CHAOS=12 run -k -s 5
TOFU_SIM_CHAOS=13 run -o -s 7
exit $result
