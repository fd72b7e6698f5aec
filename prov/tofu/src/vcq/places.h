// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which TNI a VCQ is made on, by what the processes of the node have already. Each VCQ holds a place: the lowest that
// nobody holds. Places of VCQs that peers send to count upward over the TNIs, those to post from downward, so that each
// kind alone and both together lie evenly. The kernel arbitrates (locks on bytes of a file) and takes back what a
// process held that was killed. Where there is no such file the launcher's number of the process on its node does,
// which knows nothing of other jobs. Called by vcq.cc; calls the kernel and the backend.
#pragma once

#include <cstddef>

#include "vcq/backend.h"

namespace tofu::vcq::places {

enum class Traffic : unsigned { in, out };

/// A place of the node that this process holds from now on. Any thread.
struct Place {
    Traffic traffic;
    unsigned number;
    bool held; ///< give() takes it back
};
[[nodiscard]] Place take(const Backend& backend, Traffic traffic) noexcept;
void give(const Place& place) noexcept;

/// Index of the TNI, of `count`.
[[nodiscard]] constexpr std::size_t tni_of(const Place& place, std::size_t count) noexcept
{
    const std::size_t up = place.number % count;
    return place.traffic == Traffic::in ? up : count - 1 - up;
}

/// Remembers whose place it is, until forget() gives it back.
void keep(const Place& place, utofu_vcq_hdl_t vcq) noexcept;
void forget(utofu_vcq_hdl_t vcq) noexcept;

} // namespace tofu::vcq::places
