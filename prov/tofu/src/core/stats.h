// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Statistics (fi_tofu(7), "STATISTICS"): each VCQ has a block of counts (Statistics), written under its owner's lock; a
// domain's book (StatisticsBook) adds up the blocks, those of closed VCQs included. api/domain reads it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/containers.h"
#include "core/system.h"

namespace tofu {

/// The statistics: names and meanings.
#define TOFU_STATISTICS(X)                                                                                             \
    X(send_short, "sends by one piggyback Put")                                                                        \
    X(send_slot, "sends by one slot of the peer's ring")                                                               \
    X(send_long, "sends by several slots")                                                                             \
    X(send_rendezvous, "sends by rendezvous: the peer read the bytes")                                                 \
    X(send_anonymous, "anonymous packets: packets of sends that used no ring")                                         \
    X(send_waited, "sends that were accepted and had to wait, for room at the peer or for first contact")              \
    X(anonymous_lost, "anonymous slots still reserved but unfilled when the endpoint was closed: their senders died")  \
    X(ring_granted, "ring leases obtained at peers")                                                                   \
    X(ring_returned, "ring leases returned, since peers needed the rings for others")                                  \
    X(ring_lost, "ring leases lost with their peer")                                                                   \
    X(again_post, "posts that failed: the TNI's queue was full, or no completion tag was free")                        \
    X(again_ring, "attempts of a send without room in the peer's ring")                                                \
    X(again_contact, "attempts of a send before first contact was complete")                                           \
    X(again_operations, "calls that failed: tx_attr.size operations were under way")                                   \
    X(again_behind, "attempts of a call behind waiting ones to the same peer")                                         \
    X(again_key, "attempts of an access while a key was looked up")                                                    \
    X(again_credit, "attempts of an access without a credit of the peer's receive queue")                              \
    X(again_fence, "calls with FI_FENCE that failed: earlier operations were under way")                               \
    X(again_stag, "transfers whose buffer could not be registered yet")                                                \
    X(unexpected, "messages kept, since no receive was posted for them")                                               \
    X(unexpected_bytes, "their bytes")                                                                                 \
    X(registration, "registrations of buffers that lay in no region, for one transfer or to be kept")                  \
    X(cache_hit, "buffers found in the registration cache")                                                            \
    X(rail, "rails: further VCQs that were opened, on TNIs that no process posted from, for long transfers with "      \
            "several peers")                                                                                           \
    X(by_rail, "long transfers by one of the rails")                                                                   \
    X(key_lookup, "keys looked up at peers")                                                                           \
    X(key_stale, "keys that a peer had revoked, looked up again")                                                      \
    X(loop_retry, "CSWAPs of atomics repeated, since another access had changed the word")                             \
    X(wake_up, "wake-ups of threads that slept on a queue, a counter or a descriptor")                                 \
    X(collective_gates, "collectives that barrier gates executed")                                                     \
    X(collective_puts, "collectives by Puts")

#define TOFU_NAME(name, meaning) name,
enum class Stat : std::uint8_t { TOFU_STATISTICS(TOFU_NAME) count };
#undef TOFU_NAME
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
    Mutex mutex_;
    List<Statistics, &Statistics::next_> blocks_; ///< of open VCQs
    Statistics kept_;                             ///< of closed ones
};

} // namespace tofu
