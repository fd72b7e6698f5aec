// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which TNI a VCQ is made on, by what the processes of the node have already. Each VCQ holds a place: the lowest that
// nobody holds. Places of VCQs that peers send to count upward over the TNIs, those to post from downward, so that each
// kind alone and both together lie evenly. The kernel arbitrates (locks on bytes of a file) and takes back what a
// process held that was killed. Where there is no such file the launcher's number of the process on its node does,
// which knows nothing of other jobs. Which CQ of the TNI a VCQ gets is the library's choice; two processes must not have
// the same one (guide 4.1.2), so each CQ that was got is locked, too. With FI_TOFU_PPN a process keeps to TNIs of its
// own. Called by vcq.cc; calls the kernel, the parameters and the backend.
#pragma once

#include <cstddef>

#include <sys/types.h>

#include "vcq/backend.h"

namespace tofu::vcq::places {

enum class Traffic : unsigned { in, out };

struct Place {
    Traffic traffic;
    unsigned number;
    pid_t holder; ///< the process that has to give() it; 0: nobody
    unsigned first;
    unsigned span; ///< 0: there is none, as was complained of
};
/// A place of the node that this process holds from now on, on one of its `span` TNIs from `first` on. Any thread.
[[nodiscard]] Place take(const Backend& backend, Traffic traffic) noexcept;
void give(const Place& place) noexcept;

/// No VCQ to post from was on its TNI before: places are taken from the lowest on.
[[nodiscard]] constexpr bool is_first_of_tni(const Place& place) noexcept { return place.number < place.span; }

/// Index of the i-th TNI to be tried.
[[nodiscard]] constexpr std::size_t tni_of(const Place& place, std::size_t i = 0) noexcept
{
    const std::size_t up = place.number % place.span;
    return place.first + ((place.traffic == Traffic::in ? up : place.span - 1 - up) + i) % place.span;
}

/// The CQ of a new VCQ is this process's, until release(). False: another process of the node has it, as is complained
/// of unless the VCQ is one to do without.
[[nodiscard]] bool claim(const Backend& backend, utofu_vcq_id_t vcq, bool spare) noexcept;
void release(const Backend& backend, utofu_vcq_id_t vcq) noexcept;
/// No other process of the node has claimed a CQ of this TNI.
[[nodiscard]] bool is_own(const Backend& backend, utofu_tni_id_t tni) noexcept;

} // namespace tofu::vcq::places
