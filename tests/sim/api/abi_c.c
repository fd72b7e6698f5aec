// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The uTofu header and its twins as a C11 program sees them.
 * Linked into tests/utofu_abi_test, which calls the one function here.
 * May call: nothing.
 */
#include "abi.h"

#include <putofu.h>

unsigned utofu_abi_functions_seen_by_c(void);

// Counts the functions whose twin has the same type: a C compiler refuses the choice otherwise.
unsigned utofu_abi_functions_seen_by_c(void)
{
    unsigned count = 0;
#define COUNT(name) count += _Generic(&utofu_##name, __typeof__(&putofu_##name) : 1);
    UTOFU_FOR_EACH_FUNCTION(COUNT)
#undef COUNT
    return count;
}
