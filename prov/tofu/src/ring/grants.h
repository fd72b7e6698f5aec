// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rings of our area: granted to who asks for one, reported on, asked back where there are too few, and free again when
// their owners have left or died. The cases are numbered in turnover.cc. Part of Inbound; calls vcq.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "provider/array.h"
#include "ring/channel.h"
#include "ring/port.h"

namespace tofu::proto {

class Grants {
  public:
    /// Where the next packet of a ring is looked for.
    struct Poll {
        std::uint64_t* word; ///< control word of its slot
        std::uint32_t seq;
        std::uint32_t ring;
        /// acquire: pairs with the sender's Put, whose last 8 bytes are written last
        [[nodiscard]] std::uint64_t read() const noexcept
        {
            return std::atomic_ref<std::uint64_t>(*word).load(std::memory_order_acquire);
        }
        [[nodiscard]] bool arrived(std::uint64_t control) const noexcept
        {
            return static_cast<std::uint32_t>(control >> 32) == seq;
        }
    };
    explicit Grants(Port& port) noexcept : port_(port) {}
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int open(const Geometry& geometry) noexcept;
    /// Of all rings that are granted.
    [[nodiscard]] Array<Poll>& polls() noexcept { return polls_; }
    [[nodiscard]] Ring& operator[](const Poll& poll) noexcept { return *rings_[poll.ring]; }

    /// The answer to a visitor that asks for a ring. False: no room in the queue of the TNI.
    [[nodiscard]] bool answer(const Envelope& who, utofu_stadd_t area) noexcept;
    /// The answer to a BYE, likewise.
    [[nodiscard]] bool answer_bye(Ring& ring) noexcept;
    /// Tells the sender how far we are. Where it can't be told now, report_late() tries again.
    void report(Ring& ring) noexcept;
    [[nodiscard]] bool reports_due() const noexcept { return reports_due_; }
    void report_late() noexcept;
    /// The owner has left or died: the ring is free for the next one.
    void close(Ring& ring) noexcept;
    /// Rings whose owners died and whose packets have all been taken.
    void close_gone() noexcept;
    /// Some rings, if there were none for somebody.
    void ask_back() noexcept;
    /// Asks one owner after the other for a sign of life.
    void watch() noexcept;
    void peer_failed(utofu_vcq_id_t home) noexcept;

  private:
    void start_probe(Ring& ring) noexcept;
    void set_gone(Ring& ring) noexcept;
    static void on_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    Port& port_;
    Geometry geometry_{};
    std::unique_ptr<std::unique_ptr<Ring>[]> rings_; ///< by number
    Array<Poll> polls_;
    unsigned gone_ = 0; ///< rings of owners that are no more
    bool reports_due_ = false;
    bool wanted_ = false;           ///< there was none for somebody
    std::size_t ask_hand_ = 0;      ///< where rings are asked back next
    std::size_t next_watched_ = 0;
    std::unique_ptr<Ring> retired_; ///< closed last; still looked at while its last packet is handled
};

} // namespace tofu::proto
