// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Places where a tracer can look in (fi_tofu(7), "PROBES"): USDT, a `nop` and a note in the file where systemtap's
// header was there at build time, else nothing. Arguments are what is at hand: none may cost an instruction of its own.
// Used by the rooms above; calls nothing.
#pragma once

#if __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define TOFU_PROBE(name, ...) STAP_PROBEV(tofu, name, __VA_ARGS__)
#else
#define TOFU_PROBE(name, ...) ((void)0)
#endif
