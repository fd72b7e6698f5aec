#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# fi_mr(3) on our provider, plain and with an adversarial interconnect. Called by: make check. Calls:
# fabtests/fi_mr_pages.
set -u
program=fi_mr_pages
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/prov/pages/pages"
run_page
exit $result
