/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the provider `tofu` offers beyond libfabric's interfaces: statistics (fi_tofu(7), "STATISTICS").
 */
#ifndef FI_EXT_TOFU_H
#define FI_EXT_TOFU_H

#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The name for fi_open_ops(3), on a domain: `struct fi_tofu_ops_statistics`. */
#define FI_TOFU_STATISTICS "tofu_statistics"

/** One number. The texts live as long as the provider is loaded. */
struct fi_tofu_statistic {
    const char* name;    /**< such as "ring_granted"; names stay, further ones may be added */
    const char* meaning; /**< in a few words */
    uint64_t value;      /**< counted since the domain was opened */
};

struct fi_tofu_ops_statistics {
    size_t size; /**< of this structure, as the provider knows it */
    /**
	 * Reads what was counted by all endpoints of the domain, closed ones included.
	 *
	 * @param domain the domain's fid
	 * @param list   filled with the first *count numbers; may be NULL where *count is 0
	 * @param count  in: room in the list; out: how many numbers there are
	 * @return 0; -FI_EINVAL for a null pointer or another object
	 *
	 * Any thread, at any time while the domain is open. Numbers that are counted meanwhile may be missing.
	 */
    int (*read)(struct fid* domain, struct fi_tofu_statistic* list, size_t* count);
};

#ifdef __cplusplus
}
#endif

#endif
