// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Copies that receivers fetch: of messages that were reported as sent, and whose senders need not wait for the receiver
// (Copy, Copies); and what closed endpoints have left to their receivers (OrphanedCopies).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "core/lock.h"
#include "core/pool.h"
#include "mem/bounce_pool.h"
#include "msg/rx_area.h"
#include "utofu/vcq.h"

namespace tofu {
class DomainBase;
}

namespace tofu::proto {

// --- Copies: their blocks are registered with the target VCQ of the domain, so that they can outlive their endpoint
// (OrphanedCopies). The sending half makes the object with its first copy.

/// A copy and its receiver.
struct Copy {
    Bounce block{};
    bool live = false;
    std::uint32_t word = 0; ///< the completion word that its receiver writes,
    std::uint32_t seq = 0;  ///< and the operation that it belongs to
    PeerArea receiver{};
};

class Copies {
  public:
    /// The destructor takes the target lock.
    Copies(vcq::Vcq& target_vcq, Lock& target_lock) noexcept
        : blocks_(target_vcq, {BouncePool::small_size, small_ones}, {BouncePool::large_size, large_ones}, &target_lock)
    {
    }
    /// Null: none is free now.
    [[nodiscard]] Copy* alloc(std::size_t size) noexcept
    {
        const Bounce block = blocks_.alloc(size);
        if (block.data == nullptr)
            return nullptr;
        Copy* const copy = pool_.alloc();
        if (copy == nullptr) {
            blocks_.release(block);
            return nullptr;
        }
        *copy = {.block = block, .live = true};
        return copy;
    }
    void release(Copy& copy) noexcept
    {
        copy.live = false;
        blocks_.release(copy.block);
        pool_.release(&copy);
    }
    [[nodiscard]] std::size_t in_use() const noexcept { return pool_.in_use(); }
    /// Calls `visit` with each copy in use; `visit` may release() it.
    template <class Visit>
    void each(Visit&& visit) noexcept
    {
        pool_.each([&](Copy& copy) {
            if (copy.live)
                visit(copy);
        });
    }

    // --- of an endpoint that is closed (OrphanedCopies)
    std::unique_ptr<Copies> next;
    std::optional<ReceiveArea> area; ///< with the completion words
    unsigned number = 0;             ///< of the endpoint

  private:
    static constexpr unsigned small_ones = 192, large_ones = 24;

    BouncePool blocks_;
    Pool<Copy> pool_{small_ones + large_ones};
};

// --- OrphanedCopies: what closed endpoints have left to their receivers: copies of messages that were reported as sent
// and have not been fetched, and the areas with the completion words that end them. Each stays until its receiver has
// fetched it, or is gone, or the domain is closed.

/// Any thread may call; it holds neither the target lock nor an endpoint's.
class OrphanedCopies {
  public:
    explicit OrphanedCopies(DomainBase& domain) noexcept;
    ~OrphanedCopies() { drop(std::move(first_)); }

    /// Takes over the copies of a closed endpoint, and its area. The endpoint's number stays in use until they are
    /// freed.
    void adopt(std::unique_ptr<Copies> copies, ReceiveArea&& area, unsigned number) noexcept;
    [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
    /// How many have not been fetched, as far as progress() has seen.
    [[nodiscard]] std::size_t messages() noexcept;
    /// Frees what has been fetched, and what belongs to receivers that are gone.
    void progress() noexcept;
    /// Frees everything and returns how many messages are lost by that. Called after the last poll, before the
    /// target VCQ is closed.
    [[nodiscard]] std::size_t close() noexcept;

  private:
    /// Reads the header of a receiver's area. Guarded by the target lock.
    struct Probe : vcq::CompletionHandler {
        Bounce answer{};
        PeerArea receiver{};
        bool under_way = false;
        bool gone = false; ///< the last one has shown that the receiver is gone
    };
    static void on_probe(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    [[nodiscard]] std::size_t count_messages() const noexcept;
    void watch() noexcept;
    void release_for(const Probe& gone) noexcept;
    void start_probe() noexcept;
    [[nodiscard]] std::unique_ptr<Copies> collect_ended() noexcept;
    void drop(std::unique_ptr<Copies> all) noexcept;

    DomainBase& domain_;
    Mutex mutex_; ///< taken before the target lock
    std::unique_ptr<Copies> first_;
    std::atomic<unsigned> count_{0};    ///< endpoints; a hint without the mutex
    std::optional<BouncePool> answers_; ///< guarded by the target lock; until close()
    Probe probe_{};
    std::uint64_t probed_at_ = 0; ///< milliseconds
    std::size_t turn_ = 0;        ///< the copy whose receiver is checked next
};

} // namespace tofu::proto
