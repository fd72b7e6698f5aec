// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See window.h.
#include "utofu/window.h"

#include <algorithm>
#include <iterator>

namespace tofu::vcq {

void Window::reset() noexcept
{
    first_free_ = 0;
    free_count_ = 0;
    for (unsigned n = size; --n != 0;)
        give_back(static_cast<std::uint8_t>(n));
}

bool Window::all_given_up() const noexcept
{
    return std::all_of(std::begin(places_), std::end(places_),
                       [](const Place& place) { return place.waiter == nullptr || place.waiter == &nobody; });
}

bool Window::grow_older() noexcept
{
    const bool used_up = free_count_ == 0;
    bool some = false;
    for (unsigned n = 1; n < size; n++) {
        Place& place = places_[n];
        const bool given_up = place.waiter == &nobody;
        if (place.waiter == nullptr || (place.expected == endless && !given_up))
            continue;
        if (place.age < lost_age)
            place.age++;
        if (place.age < lost_age)
            continue;
        if (!given_up)
            some = true;
        else if (used_up)
            give_back(static_cast<std::uint8_t>(n));
    }
    return some;
}

bool Window::give_up(int code, bool for_good, std::uint16_t least_age) noexcept
{
    bool some = false;
    for (unsigned n = 1; n < size; n++) {
        Place& place = places_[n];
        Waiter* const waiter = place.waiter;
        if (waiter == nullptr || waiter == &nobody || place.age < least_age)
            continue;
        some = true;
        const unsigned missing = place.expected == endless ? 1 : place.expected;
        place.waiter = &nobody;
        if (for_good)
            give_back(static_cast<std::uint8_t>(n));
        for (unsigned i = 0; i < missing; i++)
            waiter->notify(waiter, Notice{code, 0});
    }
    return some;
}

} // namespace tofu::vcq
