// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What closed endpoints have left to their receivers: copies of messages that were reported as sent and have not been
// fetched, and the areas with the completion words that end them. Each stays until its receiver has fetched it, or is
// gone, or the domain is closed. Owned by the domain, which calls progress(); endpoints hand over as they close; calls
// the home VCQ.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "mem/bounce_pool.h"
#include "msg/copies.h"
#include "msg/rx_area.h"
#include "utofu/vcq.h"

namespace tofu {
class DomainBase;
}

namespace tofu::proto {

/// Any thread may call; it holds neither the home lock nor an endpoint's.
class Estate {
  public:
    explicit Estate(DomainBase& domain) noexcept;
    ~Estate();
    Estate(const Estate&) = delete;
    Estate& operator=(const Estate&) = delete;

    /// Takes over the copies of a closed endpoint, and its area. The endpoint's number stays in use until they are
    /// freed.
    void take(std::unique_ptr<Copies> copies, Area&& area, unsigned number) noexcept;
    [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
    /// Frees what has been fetched, and what belongs to receivers that are gone.
    void progress() noexcept;
    /// Frees everything and returns how many messages are lost by that. Called when nobody polls any more, before the
    /// home VCQ is closed.
    [[nodiscard]] std::size_t close() noexcept;

  private:
    /// Reads the header of a receiver's area. Guarded by the home lock.
    struct Probe : vcq::Waiter {
        Bounce answer{};
        utofu_vcq_id_t home = 0;
        utofu_stadd_t area = 0;
        std::uint64_t nonce = 0;
        bool under_way = false;
        bool gone = false; ///< the last one has shown that the receiver is gone
    };
    static void on_probe(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    void watch() noexcept;
    void bury(const Probe& gone) noexcept;
    void start_probe() noexcept;
    [[nodiscard]] std::unique_ptr<Copies> take_ended() noexcept;
    void drop(std::unique_ptr<Copies> all) noexcept;

    DomainBase& domain_;
    std::mutex mutex_; ///< taken before the home lock
    std::unique_ptr<Copies> first_;
    std::atomic<unsigned> count_{0}; ///< endpoints; a hint without the mutex
    std::optional<BouncePool> answers_; ///< guarded by the home lock; until close()
    Probe probe_{};
    std::uint64_t probed_at_ = 0; ///< milliseconds
    std::size_t turn_ = 0;        ///< the copy whose receiver is asked next
};

} // namespace tofu::proto
