// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one door to peers' memory: from an address and a key of a call to where a communication goes, and whether it may
// go there now. rma and atomic have one each and reach remote memory by it alone, on their short ways too. Under the
// context's lock; calls remote_keys and vcq_order.
//
// A short way is an operation that is one communication and is never tried again. What it may not do is decided here,
// once: whoever finds the door shut goes the long way, which does it or says why not.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_errno.h>

#include "address/peers.h"
#include "remote/keys.h"
#include "transfer/vcq_order.h"

namespace tofu {

/// The call is refused, and nothing has happened. Other errors of resolve() are the operation's.
constexpr bool refuses_call(int ret) noexcept { return ret == -FI_EAGAIN || ret == -FI_ENOMEM; }

class RemoteAccess {
  public:
    /// `vcq_order`: the order of the engine's communications towards a peer with annexes.
    RemoteAccess(const Peers& peers, RemoteKeys& keys, VcqOrder& vcq_order) noexcept
        : peers_(peers), at_once_(!keys.by_directory()), keys_(keys), vcq_order_(vcq_order)
    {
    }
    /// Reads are ordered behind writes: no short way, for these do not look what was done last.
    void order_reads() noexcept
    {
        vcq_order_.order_reads();
        at_once_ = false;
    }

    /// Short ways where keys are biases are open. For good no longer once an annex was met.
    [[nodiscard]] bool at_once() const noexcept { return at_once_; }
    /// The peer, and where [address, ...) of it is; null: shut for this peer or this key. A key that is no bias has to
    /// be looked up, an event at a peer that counts them has to be paid for.
    [[nodiscard, gnu::always_inline]] const Peer* resolve_at_once(fi_addr_t to, std::uint64_t key, std::uint64_t address,
                                                                  Target& target) const noexcept
    {
        const Peer* const peer = peers_.find(to);
        if (!at_once_ || peer == nullptr || peer->counts_events || directory::is_listed(key)) [[unlikely]]
            return nullptr;
        target = RemoteKeys::by_bias(*peer, key, address);
        return peer;
    }
    /// The same where keys are looked up, and this one is known.
    [[nodiscard]] const Peer* resolve_known(fi_addr_t to, std::uint64_t key, std::uint64_t address, std::size_t length,
                                            std::uint64_t access, Target& target) noexcept
    {
        const Peer* const peer = peers_.find(to);
        return peer != nullptr && !peer->counts_events && resolve(*peer, key, address, length, access, target) == 0
                   ? peer
                   : nullptr;
    }

    /// As RemoteKeys::resolve(), for every other way.
    [[nodiscard]] int resolve(const Peer& peer, std::uint64_t key, std::uint64_t address, std::size_t length,
                              std::uint64_t access, Target& target) noexcept
    {
        const int ret = keys_.resolve(peer, key, address, length, access, target);
        if (ret == 0 && target.vcq != peer.home) [[unlikely]]
            meet_annex();
        return ret;
    }
    /// As RemoteKeys::refuted().
    bool refuted(const Peer& peer, std::uint64_t key) noexcept { return keys_.refuted(peer, key); }
    /// Operations with this key may have to be tried again after refuted().
    [[nodiscard]] bool by_directory(std::uint64_t key) const noexcept { return keys_.by_directory(key); }

    /// May a communication of an operation in order with others go to `vcq` of the peer at `home` now? False: try again
    /// after a poll. As VcqOrder::pass().
    [[nodiscard]] bool may_go_to(utofu_vcq_id_t home, utofu_vcq_id_t vcq, bool reads = false) noexcept
    {
        return vcq_order_.pass(home, vcq, reads);
    }

    /// Brings the resolving of a call's keys to an answer. `ret` is what the first attempt said. While a lookup is under
    /// way, `again` (progress, and another attempt) is called for some rounds. An answer "outside the region" or "not
    /// allowed" may concern a region that has been replaced under the same key since; so it only counts once the key has
    /// been read anew. `forget` drops what is known of the keys for that, and answers false where keys never change.
    /// Returns what the last attempt said; -FI_EAGAIN: the caller has to be called again.
    template <class Again, class Forget>
    [[nodiscard]] static int settle(int ret, Again&& again, Forget&& forget)
    {
        unsigned polls = 64;
        const bool final = ret == 0 || refuses_call(ret) || ret == -FI_EKEYREJECTED;
        if (!final && forget()) [[unlikely]] {
            ret = -FI_EAGAIN;
            polls = 1u << 16; // enough to get the answer now: a later call would start by forgetting again
        }
        for (; ret == -FI_EAGAIN && polls != 0; polls--)
            ret = again();
        return ret;
    }

  private:
    [[gnu::noinline, gnu::cold]] void meet_annex() noexcept
    {
        vcq_order_.begin();
        at_once_ = false;
    }

    const Peers& peers_;
    bool at_once_;
    RemoteKeys& keys_;
    VcqOrder& vcq_order_;
};

} // namespace tofu
