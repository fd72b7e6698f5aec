#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# fi_getinfo(3), fi_fabric(3) and fi_domain(3) on our provider. Called by: make check. Calls:
# fabtests/fi_getinfo_pages.
set -u
program=fi_getinfo_pages
. "${TOFU_TOP_SRCDIR:?set by make check}/tests/prov/pages/pages"
run
run -k
exit $result
