// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Probes for tracers (fi_tofu(7), "PROBES"): USDT, that is a `nop` and a note in the binary, if systemtap's header was
// there at build time; else nothing. Their arguments are values at hand, which cost no instruction of their own. Used
// by the modules above; calls nothing.
#pragma once

#if __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define TOFU_PROBE(name, ...) STAP_PROBEV(tofu, name, __VA_ARGS__)
#else
#define TOFU_PROBE(name, ...) ((void)0)
#endif
