// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See fence.h.
#include "tx/fence.h"

#include "av/peer_table.h"
#include "tx/tx_context.h"

namespace tofu {

bool Fence::passed(fi_addr_t to, std::uint64_t flags) noexcept
{
    const Peer* const peer = tx_.peers().find(to);
    if (peer == nullptr)
        return true; // an unknown address: the operation itself will be refused
    const bool settles = (flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0;
    const bool matched = (flags & FI_MATCH_COMPLETE) != 0;
    const Engines& engines = tx_.engines();
    const auto all_have = [&] {
        return tx_.vcq().idle() && !tx_.pending().waits_for(*peer) &&
               engines.all([&](Engine& e) { return e.idle_towards(*peer); }) && flushed(*peer) &&
               (!settles || engines.all([&](Engine& e) { return e.settled(*peer, matched); }));
    };
    for (unsigned round = 0; !all_have(); round++) {
        if (round == rounds_of_a_call) {
            (void)tx_.again(Stat::again_fence);
            return false;
        }
        tx_.progress();
    }
    return true;
}

/// Unsignaled posts (injects, messages sent at once) may still be on their way to the peer. They have ended when an
/// ARMW that was posted behind them in strong order has.
bool Fence::flushed(const Peer& peer) noexcept
{
    if (flushing_ || !tx_.vcq().has_unsignaled_to(peer.home))
        return !flushing_;
    const vcq::Post post = tx_.vcq().fence(peer.home, *this);
    flushing_ = post == vcq::Post::done;
    return post == vcq::Post::error; // the fenced operation will meet the same error
}

/// The ARMW may have failed: at a peer that can't be reached there is nothing to overtake.
void Fence::on_flush(vcq::Waiter* fence, const vcq::Notice&) noexcept
{
    static_cast<Fence*>(fence)->flushing_ = false;
}

} // namespace tofu
