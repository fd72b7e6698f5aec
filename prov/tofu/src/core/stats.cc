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
        {"send_short", "sends that one piggyback Put carried"},
        {"send_slot", "sends by one slot of the peer's ring"},
        {"send_long", "sends by several slots"},
        {"send_rendezvous", "sends whose bytes the peer fetched"},
        {"send_visit", "packets of sends that went without a ring"},
        {"send_waited", "sends that were taken and had to wait, for room at the peer or for first contact"},
        {"visit_lost", "slots handed to visitors that nobody had filled when their endpoint was closed: of the dead"},
        {"ring_claimed", "rings won at peers"},
        {"ring_returned", "rings given back, since peers wanted them for others"},
        {"ring_lost", "rings lost with their peer"},
        {"again_post", "posts refused: the TNI's queue or the window of notices is full"},
        {"again_ring", "tries of a send without room in the peer's ring"},
        {"again_contact", "tries of a send before first contact was over"},
        {"again_operations", "calls refused: tx_attr.size operations are under way"},
        {"again_behind", "tries of a call behind others to the same peer that wait"},
        {"again_key", "tries of an access while a key was looked up"},
        {"again_credit", "tries of an access that the peer's receive queue had no credit for"},
        {"again_fence", "calls with FI_FENCE refused: what came before is under way"},
        {"again_stag", "transfers that found no steering tag free for their buffer"},
        {"unexpected", "messages kept, since no receive waited for them"},
        {"unexpected_bytes", "their bytes"},
        {"registration", "registrations of buffers that lay in no region, for one transfer or to be kept"},
        {"cache_hit", "buffers found in the registration cache"},
        {"branch", "further VCQs opened, on TNIs that nobody posted from, for long transfers with several peers"},
        {"by_branch", "long transfers by one of them"},
        {"key_lookup", "keys asked for at peers"},
        {"key_stale", "keys that a peer had closed meanwhile, looked up anew"},
        {"loop_retry", "CSWAPs of atomics repeated, since another had changed the word"},
        {"wake_up", "wake-ups of threads that slept on a queue, a counter or a descriptor"},
        {"collective_gates", "collectives that barrier gates carried out"},
        {"collective_puts", "collectives by Puts"},
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
            length += std::snprintf(text + length, sizeof text - static_cast<std::size_t>(length), "  %-18s %12llu  %s\n",
                                    rows()[i].name, static_cast<unsigned long long>(all[i]), rows()[i].meaning);
    (void)!::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
}

} // namespace tofu
