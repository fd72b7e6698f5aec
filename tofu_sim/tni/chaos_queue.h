// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the adversarial mode has pending for a VCQ, and what was posted before what.
#pragma once

#include "job/relaxations.h"
#include "tni/descriptor.h"
#include "tni/pieces.h"
#include "tni/remote.h"
#include "tni/vcq.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

namespace tofu::sim {

enum class Start : uint8_t { not_yet, moving, complete };

struct Pending {
    Descriptor d;
    void* cbdata;
    Remote* remote; ///< nullptr: gone when it was posted
    uint32_t position;
    bool held; ///< DELAY_START
    Start data = Start::not_yet;
    bool tcq_written = false;
    bool remote_told = false;
    bool local_told = false;
    int tcq_error = UTOFU_SUCCESS;
    int mrq_error = UTOFU_SUCCESS;
    uint64_t old_value = 0;
    uint64_t origin = 0;          ///< of its stamps
    std::vector<Piece> pieces;    ///< still to move, from the back
    std::vector<std::byte> ahead; ///< what was read before the writing began, if it was

    [[nodiscard]] bool failed() const noexcept { return tcq_error != UTOFU_SUCCESS || mrq_error != UTOFU_SUCCESS; }
    [[nodiscard]] bool strong() const noexcept { return (d.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0; }
    /// Reads nothing any more, that is.
    [[nodiscard]] bool read() const noexcept
    {
        return data == Start::complete || d.op == Op::put_piggyback || !ahead.empty();
    }
    [[nodiscard]] bool written() const noexcept { return data == Start::complete; }
    [[nodiscard]] bool finished() const noexcept
    {
        return data == Start::complete && tcq_written && remote_told && local_told;
    }
};

struct ChaosQueue {
    ChaosQueue(uint64_t seed, uint32_t f) noexcept : dice(seed), relaxations(f) {}
    Dice dice;
    const uint32_t relaxations;  ///< of Relaxation
    std::deque<Pending> pending; ///< in the order of posting
    uint32_t busy_left = 0;      ///< posts still refused
    uint32_t blind_left = 0;     ///< polls that still find nothing
    uint64_t now = 0;            ///< exact mode: when the steps take place

    [[nodiscard]] bool may(Relaxation relaxation) const noexcept { return (relaxations & relaxation) != 0; }
};

inline bool same_way(const Pending& a, const Pending& b) noexcept
{
    return vcq_key(a.d.rmt_vcq_id) == vcq_key(b.d.rmt_vcq_id) && a.d.path == b.d.path &&
           (a.d.path != 0 || a.d.rmt_vcq_id == b.d.rmt_vcq_id);
}

/// Everything posted before `index` on the same way satisfies `condition`.
template <typename Condition>
bool all_before(const ChaosQueue& queue, size_t index, Condition&& condition) noexcept
{
    const Pending& p = queue.pending[index];
    return std::all_of(queue.pending.begin(), queue.pending.begin() + static_cast<ptrdiff_t>(index),
                       [&](const Pending& earlier) { return !same_way(earlier, p) || condition(earlier); });
}

/// Exact mode: something has been written there, or to a queue there; null: here.
void arrived_chaos(Vcq& vcq, const Remote* remote) noexcept;

/// Carries on with the data of the instruction at `index`: begins it, or moves a piece. False: it must wait, or is
/// done.
[[nodiscard]] bool step_data(Vcq& vcq, size_t index) noexcept;

} // namespace tofu::sim
