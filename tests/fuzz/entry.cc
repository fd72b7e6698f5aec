// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LibFuzzer's entry for one target, TOFU_FUZZ_TARGET.
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    tofu::sim::fuzz::TOFU_FUZZ_TARGET(tofu::sim::fuzz::Input(data, size));
    return 0;
}
