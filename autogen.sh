#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Makes ./configure from configure.ac; needs autoconf, automake, libtool and pkg-config.
set -e
cd "$(dirname "$0")"
exec autoreconf -fi
