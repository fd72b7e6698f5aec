// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Statistics (fi_tofu(7), "STATISTICS"): each VCQ has a block of counts (Statistics), written under its owner's lock; a
// domain's book (StatisticsBook) adds up the blocks, those of closed VCQs included. api/domain reads it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace tofu {

/// Names and meanings: stats.cc, in this order.
enum class Stat : std::uint8_t {
    send_short,
    send_slot,
    send_long,
    send_rendezvous,
    send_anonymous,
    send_waited,
    anonymous_lost,
    ring_granted,
    ring_returned,
    ring_lost,
    again_post,
    again_ring,
    again_contact,
    again_operations,
    again_behind,
    again_key,
    again_credit,
    again_fence,
    again_stag,
    unexpected,
    unexpected_bytes,
    registration,
    cache_hit,
    rail,
    by_rail,
    key_lookup,
    key_stale,
    loop_retry,
    wake_up,
    collective_gates,
    collective_puts,
    count
};
inline constexpr std::size_t stats = static_cast<std::size_t>(Stat::count);

class StatisticsBook;

/// The counts of one VCQ. Written under the lock of its owner; any thread may read meanwhile.
class Statistics {
  public:
    void count(Stat stat, std::uint64_t n = 1) noexcept
    {
        std::atomic<std::uint64_t>& value = at(stat);
        value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); // one writer: no lock prefix
    }

  private:
    friend class StatisticsBook;
    [[nodiscard]] std::atomic<std::uint64_t>& at(Stat stat) noexcept { return values_[static_cast<std::size_t>(stat)]; }

    std::atomic<std::uint64_t> values_[stats] = {};
    Statistics* next_ = nullptr;
};

/// The counts of a domain. Any thread.
class StatisticsBook {
  public:
    using Sums = std::array<std::uint64_t, stats>;
    struct Row {
        const char* name;
        const char* meaning;
    };
    [[nodiscard]] static const std::array<Row, stats>& rows() noexcept;
    /// A name of an earlier version, which programs may still look for.
    struct OldName {
        Stat stat;
        Row row;
    };
    static constexpr std::size_t old_names_count = 5;
    [[nodiscard]] static const std::array<OldName, old_names_count>& old_names() noexcept;

    void add(Statistics& block) noexcept;
    /// Removes a block. Its counts stay in the sums; the block begins at 0 again.
    void remove(Statistics& block) noexcept;
    /// Counts something that belongs to no VCQ.
    void count(Stat stat, std::uint64_t n = 1) noexcept { kept_.at(stat).fetch_add(n, std::memory_order_relaxed); }
    [[nodiscard]] Sums sums() noexcept;
    /// Writes a table of the counts that are not 0 to stderr, in one write, since all ranks of a job do so at the same
    /// time.
    void print() noexcept;

  private:
    std::mutex mutex_;
    Statistics* first_ = nullptr; ///< of open VCQs
    Statistics kept_;             ///< of closed ones
};

} // namespace tofu
