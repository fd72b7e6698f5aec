// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See stats.h.
#include "core/stats.h"

#include <cstdio>
#include <utility>

#include <unistd.h>

namespace tofu {

const std::array<StatisticsBook::Row, stats>& StatisticsBook::rows() noexcept
{
    static constexpr std::array<Row, stats> all{{
        {"send_short", "sends by one piggyback Put"},
        {"send_slot", "sends by one slot of the peer's ring"},
        {"send_long", "sends by several slots"},
        {"send_rendezvous", "sends by rendezvous: the peer read the bytes"},
        {"send_anonymous", "anonymous packets: packets of sends that used no ring"},
        {"send_waited", "sends that were accepted and had to wait, for room at the peer or for first contact"},
        {"anonymous_lost",
         "anonymous slots still reserved but unfilled when the endpoint was closed: their senders died"},
        {"ring_granted", "ring leases obtained at peers"},
        {"ring_returned", "ring leases returned, since peers needed the rings for others"},
        {"ring_lost", "ring leases lost with their peer"},
        {"again_post", "posts that failed: the TNI's queue was full, or no completion tag was free"},
        {"again_ring", "attempts of a send without room in the peer's ring"},
        {"again_contact", "attempts of a send before first contact was complete"},
        {"again_operations", "calls that failed: tx_attr.size operations were under way"},
        {"again_behind", "attempts of a call behind waiting ones to the same peer"},
        {"again_key", "attempts of an access while a key was looked up"},
        {"again_credit", "attempts of an access without a credit of the peer's receive queue"},
        {"again_fence", "calls with FI_FENCE that failed: earlier operations were under way"},
        {"again_stag", "transfers that found no free steering tag for their buffer"},
        {"unexpected", "messages kept, since no receive was posted for them"},
        {"unexpected_bytes", "their bytes"},
        {"registration", "registrations of buffers that lay in no region, for one transfer or to be kept"},
        {"cache_hit", "buffers found in the registration cache"},
        {"rail", "rails: further VCQs that were opened, on TNIs that no process posted from, for long transfers with "
                 "several peers"},
        {"by_rail", "long transfers by one of the rails"},
        {"key_lookup", "keys looked up at peers"},
        {"key_stale", "keys that a peer had revoked, looked up again"},
        {"loop_retry", "CSWAPs of atomics repeated, since another access had changed the word"},
        {"wake_up", "wake-ups of threads that slept on a queue, a counter or a descriptor"},
        {"collective_gates", "collectives that barrier gates executed"},
        {"collective_puts", "collectives by Puts"},
    }};
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
    block.next_ = std::exchange(first_, &block);
}

void StatisticsBook::remove(Statistics& block) noexcept
{
    std::lock_guard guard(mutex_);
    for (Statistics** link = &first_; *link != nullptr; link = &(*link)->next_) {
        if (*link != &block)
            continue;
        *link = block.next_;
        for (std::size_t i = 0; i < stats; i++)
            count(static_cast<Stat>(i), block.values_[i].exchange(0, std::memory_order_relaxed));
        return;
    }
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
    for (const Statistics* block = first_; block != nullptr; block = block->next_)
        add(*block);
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
