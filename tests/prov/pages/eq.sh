#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# fi_eq(3) on our provider. Called by: make check. Calls:
# fabtests/fi_eq_pages.
set -u
program=fi_eq_pages
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/prov/pages/pages"
run
exit $result
