// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests that are a network themselves: what Backend::get() returns in place of a library. Set by them before the first
// call, read by library.cc. Calls nothing.
#pragma once

#include "utofu/library.h"

namespace tofu::vcq {

inline constinit const Backend* backend_of_test = nullptr;

} // namespace tofu::vcq
