/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Extensions of the provider `tofu` to libfabric's interfaces: statistics (fi_tofu(7), "STATISTICS").
 */
#ifndef FI_EXT_TOFU_H
#define FI_EXT_TOFU_H

#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Name for fi_open_ops(3) on a domain, which returns a `struct fi_tofu_ops_statistics*`. The provider owns the
 * structure, which is valid as long as the provider is loaded. Errors: -FI_EINVAL (a null pointer), -FI_ENOSYS (another
 * object), -FI_EBADFLAGS (flags are not 0).
 */
#define FI_TOFU_STATISTICS "tofu_statistics"

/** One number. The texts are valid as long as the provider is loaded. */
struct fi_tofu_statistic {
    const char* name;    /**< such as "ring_granted"; names are kept, and new ones may be added */
    const char* meaning; /**< in a few words */
    uint64_t value;      /**< counted since the domain was opened */
};

struct fi_tofu_ops_statistics {
    size_t size; /**< size of this structure in the provider */
    /**
     * Reads the numbers of all endpoints of the domain, including closed ones.
     *
     * @param domain the domain's fid
     * @param list   out: the first *count numbers; owned by the caller; may be NULL if *count is 0
     * @param count  in: length of the list; out: how many numbers there are
     * @return 0; -FI_EINVAL for a null pointer or another object
     *
     * Any thread, at any time while the domain is open. Events during the call may be missing.
     */
    int (*read)(struct fid* domain, struct fi_tofu_statistic* list, size_t* count);
};

#ifdef __cplusplus
}
#endif

#endif
