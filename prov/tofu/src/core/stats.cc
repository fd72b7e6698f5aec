// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See stats.h.
#include "core/stats.h"

#include <cstdio>

#include <unistd.h>

namespace tofu {

const std::array<StatisticsBook::Row, stats>& StatisticsBook::rows() noexcept
{
#define TOFU_ROW(name, meaning) Row{#name, meaning},
    static constexpr std::array<Row, stats> all{{TOFU_STATISTICS(TOFU_ROW)}};
#undef TOFU_ROW
    return all;
}

const std::array<StatisticsBook::OldName, StatisticsBook::old_names_count>& StatisticsBook::old_names() noexcept
{
    static constexpr std::array<OldName, old_names_count> all{{
        {Stat::send_anonymous, {"send_visit", "old name of send_anonymous"}},
        {Stat::anonymous_lost, {"visit_lost", "old name of anonymous_lost"}},
        {Stat::ring_granted, {"ring_claimed", "old name of ring_granted"}},
        {Stat::rail, {"branch", "old name of rail"}},
        {Stat::by_rail, {"by_branch", "old name of by_rail"}},
    }};
    return all;
}

void StatisticsBook::add(Statistics& block) noexcept
{
    std::lock_guard guard(mutex_);
    blocks_.push_front(block);
}

void StatisticsBook::remove(Statistics& block) noexcept
{
    std::lock_guard guard(mutex_);
    if (!blocks_.remove(block))
        return;
    for (std::size_t i = 0; i < stats; i++)
        count(static_cast<Stat>(i), block.values_[i].exchange(0, std::memory_order_relaxed));
}

StatisticsBook::Sums StatisticsBook::sums() noexcept
{
    std::lock_guard guard(mutex_);
    Sums sums{};
    const auto add = [&](const Statistics& block) {
        for (std::size_t i = 0; i < stats; i++)
            sums[i] += block.values_[i].load(std::memory_order_relaxed);
    };
    add(kept_);
    blocks_.each(add);
    return sums;
}

void StatisticsBook::print() noexcept
{
    char text[stats * 160];
    int length = std::snprintf(text, sizeof text, "tofu: statistics of process %d\n", static_cast<int>(getpid()));
    const Sums all = sums();
    for (std::size_t i = 0; i < stats; i++)
        if (all[i] != 0)
            length +=
                std::snprintf(text + length, sizeof text - static_cast<std::size_t>(length), "  %-18s %12llu  %s\n",
                              rows()[i].name, static_cast<unsigned long long>(all[i]), rows()[i].meaning);
    (void)!::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
}

} // namespace tofu
