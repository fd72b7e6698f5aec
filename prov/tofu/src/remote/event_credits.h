// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Flow control of RMA events (FI_RMA_EVENT): each is a notice in the target's MRQ, whose overflow ends the target's
// process (guide, chapter 7). A domain keeps a pool of credits, one for each notice that it has room for; an endpoint
// takes some by ARMW and pays one for each event. Called by rma and atomic (initiator) and by the domain (target);
// calls vcq. Layout and argument: docs/wire-protocol.md, "Receive queues".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "memory/event_pool.h"
#include "provider/array.h"
#include "provider/error.h"
#include "provider/spare_node.h"
#include "vcq/vcq.h"

namespace tofu {

struct Peer;

/// A communication failed in such a way that it left no notice at the target.
inline bool left_no_event(int utofu_code) noexcept
{
    return says_stale(utofu_code) || (utofu_code <= UTOFU_ERR_TCQ_OTHER && utofu_code >= UTOFU_ERR_TCQ_LENGTH);
}

/// What a context has of one domain's credits.
struct EventAccount : vcq::Waiter {
    class EventCredits* owner = nullptr;
    std::uint64_t home = 0;
    std::uint64_t nonce = 0;
    utofu_stadd_t pool = 0;
    std::uint32_t held = 0;
    std::uint32_t owed = 0;   ///< to be given back
    std::uint32_t moving = 0; ///< taken by the ARMW under way; 0 where that looks, or gives back
    std::uint32_t batch = 1;  ///< to take next; 0: look first
    std::uint32_t skips = 0;  ///< looks that found nothing, as the number of rounds to let pass
    std::uint32_t skip = 0;
    bool under_way = false;   ///< an ARMW is: one at a time
    bool giving = false;      ///< it gives back
    bool used = false;        ///< since the last tick
    std::uint8_t idle = 0;    ///< ticks
    int err = 0;              ///< positive FI_E*: the pool can't be asked
    int prov_errno = 0;

    /// The event that was paid for will not come.
    void refund() noexcept { held++; }
};

/// All accounts of a context; under its lock.
class EventCredits {
  public:
    /// 1/64 of what is left is taken at a time, at least 1, so that holders who rest leave most to others; at most
    /// this, which dies with its holder.
    static constexpr std::int64_t most_at_once = 64;
    static constexpr std::int64_t fraction = 64;

    explicit EventCredits(vcq::Vcq& vcq) noexcept : vcq_(vcq) {}
    /// Nothing has been done yet at a peer that counts events.
    [[nodiscard]] bool empty() const noexcept { return accounts_.empty(); }

    /// Pays for one event at `peer`: 0, and `account` has paid; -FI_EAGAIN: credits have been asked for, or there are
    /// none; -FI_ENOMEM; another -FI_E*: an error of the operation, with `prov_errno`.
    [[nodiscard]] int pay(const Peer& peer, EventAccount*& account, int& prov_errno) noexcept;
    /// Gives back what has not been used for a while. Once per round.
    void progress() noexcept
    {
        if (++rounds_ % rounds_per_look == 0) [[unlikely]]
            tick();
    }
    /// Gives back everything; before the VCQ is drained.
    void close() noexcept;

  private:
    static constexpr unsigned rounds_per_look = 64;
    [[nodiscard]] EventAccount* account_of(const Peer& peer) noexcept;
    void ask(EventAccount& account) noexcept;
    void give(EventAccount& account) noexcept;
    [[nodiscard]] bool post(EventAccount& account, std::int64_t credits) noexcept;
    static void on_answer(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    void judge(EventAccount& account, std::uint64_t word) noexcept;
    [[gnu::noinline]] void tick() noexcept;

    vcq::Vcq& vcq_;
    EventAccount* last_ = nullptr;
    SpareNodeMap<std::map, std::uint64_t, EventAccount*> by_home_; ///< the latest of each
    Array<std::unique_ptr<EventAccount>> accounts_;
    std::size_t next_ = 0; ///< looked at next by tick()
    std::uint32_t rounds_ = 0;
    std::uint64_t last_tick_ = 0; ///< milliseconds
};

} // namespace tofu
