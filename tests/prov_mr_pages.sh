#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# fi_mr(3) on our provider: both ways of addressing memory, then with an adversarial interconnect.
# Called by: make check. Calls: fabtests/fi_mr_pages.
set -u
program=${TOFU_TOP_BUILDDIR:?set by make check}/fabtests/fi_mr_pages
export FI_PROVIDER=tofu
result=0
run()
{
    timeout 120 "$program" -p tofu "$@" || { echo "FAIL $* ${TOFU_SIM_CHAOS:+chaos $TOFU_SIM_CHAOS}"; result=1; }
}
run
run -k -s 2
run -n 1 -s 3
TOFU_SIM_CHAOS=21 run -s 4
TOFU_SIM_CHAOS=22 run -k -s 5
exit $result
