// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How many events an MRQ has room for. See event_pool.h.
#include "mem/event_pool.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>

namespace tofu {

namespace event_pool {

std::int64_t entries_of(const char* text) noexcept
{
    static constexpr std::int64_t allowed[] = {2048, 8192, 32768, 131072, 524288, most_entries};
    static constexpr std::int64_t usual = 131072;
    if (text == nullptr || std::isdigit(static_cast<unsigned char>(*text)) == 0)
        return usual;
    char* end = nullptr;
    // More than the largest is the largest, whatever the unit.
    std::int64_t value =
        static_cast<std::int64_t>(std::min<unsigned long long>(std::strtoull(text, &end, 10), most_entries));
    const int unit = std::tolower(static_cast<unsigned char>(end[0]));
    if ((unit == 'k' || unit == 'm') && std::tolower(static_cast<unsigned char>(end[1])) == 'i' && end[2] == 0)
        value *= unit == 'k' ? 1024 : 1024 * 1024;
    else if (unit != 0)
        return usual;
    // The nearest; of two equally near the higher (guide 4.3.2.3).
    return *std::min_element(std::begin(allowed), std::end(allowed), [&](std::int64_t a, std::int64_t b) {
        const std::int64_t to_a = std::abs(a - value), to_b = std::abs(b - value);
        return to_a != to_b ? to_a < to_b : a > b;
    });
}

std::int64_t capacity() noexcept
{
    return entries_of(std::getenv("UTOFU_NUM_MRQ_ENTRIES")) / 2;
}

} // namespace event_pool

} // namespace tofu
