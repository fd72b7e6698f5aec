// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: what the queues say about an instruction: error codes and the fields of notices (guide 3.1.2.1, 3.7.6.1).
// Called by: tni/engine, tni/session, tni/chaos. Calls: nothing.
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

// The origin's own memory, found out before anything was sent.
[[nodiscard]] int local_tcq_error(AccessStatus status) noexcept;
// The origin's own memory, found out when the answer came.
[[nodiscard]] int local_mrq_error(AccessStatus status) noexcept;
// The target's memory.
[[nodiscard]] int remote_mrq_error(AccessStatus status) noexcept;

// Fields as seen on real systems. `origin` and the target's ID carry their own A, B, C as path.
[[nodiscard]] MrqEntry remote_entry(const Descriptor& d, uint64_t origin) noexcept;
[[nodiscard]] MrqEntry local_entry(const Descriptor& d, uint64_t old_value, int mrq_error) noexcept;

[[nodiscard]] inline bool is_put(Op op) noexcept
{
    return op == Op::put || op == Op::put_piggyback;
}

} // namespace tofu::sim
