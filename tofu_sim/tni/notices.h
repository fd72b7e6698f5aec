// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the queues say about an instruction: error codes and the fields of notices (guide 3.1.2.1, 3.7.6.1).
#pragma once

#include "memory/memory.h"
#include "tni/descriptor.h"
#include "tni/mrq.h"
#include "topology/ids.h"

#include <utofu.h>

namespace tofu::sim {

inline constexpr uint32_t notice_remote = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
inline constexpr uint32_t notice_local = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
inline constexpr uint32_t notice_tcq = UTOFU_ONESIDED_FLAG_TCQ_NOTICE;

/// The origin's own memory, found out before anything was sent.
[[nodiscard]] int local_tcq_error(AccessStatus status) noexcept;
/// The origin's own memory, found out when the answer came.
[[nodiscard]] int local_mrq_error(AccessStatus status) noexcept;
/// The target's memory.
[[nodiscard]] int remote_mrq_error(AccessStatus status) noexcept;

[[nodiscard]] inline bool is_put(Op op) noexcept
{
    return op == Op::put || op == Op::put_piggyback;
}

/// Fields as seen on real systems. `origin` and the target's ID carry their own A, B, C as path. Inlined: most of
/// what they ask is known where an instruction is posted.
[[nodiscard]] inline MrqEntry remote_entry(const Descriptor& d, uint64_t origin) noexcept
{
    const uint64_t rmt_end = d.rmt_stadd + d.length;
    MrqEntry entry{};
    entry.vcq_id = origin;
    entry.edata = d.edata;
    if (is_put(d.op)) {
        entry.type = UTOFU_MRQ_TYPE_RMT_PUT;
        entry.rmt_stadd = entry.rmt_value = rmt_end;
    } else if (d.op == Op::get) {
        entry.type = UTOFU_MRQ_TYPE_RMT_GET;
        entry.rmt_stadd = rmt_end;
        entry.lcl_stadd = d.lcl_stadd + d.length;
    } else {
        entry.type = UTOFU_MRQ_TYPE_RMT_ARMW;
        entry.rmt_stadd = entry.rmt_value = d.rmt_stadd;
    }
    return entry;
}

/// Filled in where it will be read: each field by a store of its width, which the reader's load can be served from.
/// Copied as a whole, by wider loads, it would wait until the stores have left the processor's buffer.
inline void fill_local_entry(MrqEntry& entry, const Descriptor& d, uint64_t old_value, int mrq_error) noexcept
{
    entry.vcq_id = with_default_path(d.rmt_vcq_id);
    entry.edata = d.edata;
    entry.result = static_cast<int16_t>(mrq_error);
    entry.reserved = 0;
    entry.rmt_value = entry.lcl_stadd = entry.rmt_stadd = 0;
    if (is_put(d.op)) {
        entry.type = UTOFU_MRQ_TYPE_LCL_PUT;
        entry.rmt_stadd = d.rmt_stadd + d.length;
    } else if (d.op == Op::get) {
        entry.type = UTOFU_MRQ_TYPE_LCL_GET;
        entry.lcl_stadd = entry.rmt_value = d.lcl_stadd + d.length;
    } else {
        entry.type = UTOFU_MRQ_TYPE_LCL_ARMW;
        entry.rmt_value = old_value;
        entry.rmt_stadd = d.rmt_stadd;
    }
}

[[nodiscard]] inline MrqEntry local_entry(const Descriptor& d, uint64_t old_value, int mrq_error) noexcept
{
    MrqEntry entry;
    fill_local_entry(entry, d, old_value, mrq_error);
    return entry;
}

} // namespace tofu::sim
