// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one door to peers' memory: turns an address and a key of a call into the target of a communication, and says
// whether the communication may go there now. rma and atomic have one each and reach remote memory only through it, on
// their short ways too. Under the context's lock; calls keys, event_credits and vcq_order.
//
// A short way carries out an operation as one communication that is never retried. What a short way must not do is
// decided here, in one place: an operation that finds the door shut goes the long way, which does it or says why not.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_errno.h>

#include "address/peers.h"
#include "remote/event_credits.h"
#include "remote/keys.h"
#include "transfer/request.h"
#include "transfer/vcq_order.h"

namespace tofu {

/// True for errors with which a call is refused, and nothing has happened. Other errors of resolve() end the operation.
constexpr bool refuses_call(int ret) noexcept { return ret == -FI_EAGAIN || ret == -FI_ENOMEM; }

/// The remote side of an operation: pieces of one peer's memory, as the call names them and as targets; and the RMA
/// event that the operation causes at a peer that counts events.
struct RemoteSide {
    struct Piece {
        Target at;
        std::size_t length;
        std::uint64_t key;
        std::uint64_t address; ///< as the application gave it; `at` follows from it and the key
    };
    static constexpr std::size_t most = 8;

    Peer peer{};
    std::uint64_t access = 0;        ///< the access that the regions must allow
    std::uint8_t align = 1;          ///< required alignment of each piece
    EventAccount* account = nullptr; ///< has paid for the event; null: no event, or not paid for
    bool event_posted = false;       ///< the communication that causes the event is posted and has not failed
    bool by_directory = false;       ///< a key was looked up in a directory, and may have to be looked up again
    bool retried = false;            ///< the operation has been retried with keys looked up anew
    std::uint8_t targets = 0;        ///< entries of target[]
    Piece target[most];

    /// Takes the payment for the event back, unless the event was posted.
    void refund() noexcept
    {
        if (account != nullptr && !event_posted)
            account->refund();
        account = nullptr;
    }
};

/// Result of RemoteAccess::resolve(): a piece is not aligned.
inline constexpr int misaligned = 1;

/// The keys of peers that a context knows, and its credits for events at peers. The engines of the context share both.
struct PeerMemory {
    PeerMemory(vcq::Vcq& vcq, bool provider_keys) noexcept : keys(vcq, provider_keys), credits(vcq) {}
    RemoteKeys keys;
    EventCredits credits;
};

class RemoteAccess {
  public:
    RemoteAccess(vcq::Vcq& vcq, const Peers& peers, PeerMemory& memory) noexcept
        : peers_(peers),
          at_once_(!memory.keys.by_directory()),
          keys_(memory.keys),
          credits_(memory.credits),
          vcq_order_(vcq)
    {
    }
    /// From now on reads are ordered behind writes. This shuts the short ways, which do not look at earlier operations.
    void order_reads() noexcept
    {
        vcq_order_.order_reads();
        at_once_ = false;
    }

    /// Are the short ways open that need no lookup of keys? Once an annex has been met they stay shut.
    [[nodiscard]] bool at_once() const noexcept { return at_once_; }
    /// The peer, and the target for `address`. Null: shut for this peer (it counts events, which have to be paid for)
    /// or for this key (it has to be looked up).
    [[nodiscard, gnu::always_inline]] const Peer* resolve_at_once(fi_addr_t to, std::uint64_t key, std::uint64_t address,
                                                                  Target& target) const noexcept
    {
        const Peer* const peer = peers_.find(to);
        if (!at_once_ || peer == nullptr || peer->counts_events || directory::is_listed(key)) [[unlikely]]
            return nullptr;
        target = RemoteKeys::by_bias(*peer, key, address);
        return peer;
    }
    /// The same where keys are looked up; null also where this key is not known yet.
    [[nodiscard]] const Peer* resolve_known(fi_addr_t to, std::uint64_t key, std::uint64_t address, std::size_t length,
                                            std::uint64_t access, Target& target) noexcept
    {
        const Peer* const peer = peers_.find(to);
        return peer != nullptr && !peer->counts_events && resolve(*peer, key, address, length, access, target) == 0
                   ? peer
                   : nullptr;
    }

    /// Finds the targets of all pieces, for every long way. As RemoteKeys::resolve(), or `misaligned`.
    [[nodiscard]] int resolve(RemoteSide& side) noexcept
    {
        int ret = 0;
        for (unsigned i = 0; i < side.targets && ret == 0; i++) {
            RemoteSide::Piece& piece = side.target[i];
            ret = resolve(side.peer, piece.key, piece.address, piece.length, side.access, piece.at);
            if (ret == 0 && (piece.at.stadd & (side.align - 1u)) != 0) [[unlikely]]
                ret = misaligned;
        }
        return ret;
    }
    /// resolve() for a new call; calls `progress` for some rounds as long as a lookup is under way. The results
    /// "outside the region", "not allowed" and "misaligned" may concern a region that has been replaced under the same
    /// key; so they count only after the key has been read anew. -FI_EAGAIN: the application has to repeat the call.
    template <class Progress>
    [[nodiscard]] int resolve_now(RemoteSide& side, Progress&& progress) noexcept
    {
        int ret = resolve(side);
        unsigned polls = rounds_of_a_call;
        const bool final = ret == 0 || refuses_call(ret) || ret == -FI_EKEYREJECTED;
        if (!final && refuted(side)) [[unlikely]] {
            ret = -FI_EAGAIN;
            polls = 1u << 16; // enough to get the answer now: a repeated call would again begin by forgetting the key
        }
        for (; ret == -FI_EAGAIN && polls != 0; polls--) {
            progress();
            ret = resolve(side);
        }
        return ret;
    }
    /// Pays for the event of an operation at a peer that counts events. As EventCredits::pay().
    [[nodiscard]] int pay(RemoteSide& side, int& prov_errno) noexcept
    {
        return credits_.pay(side.peer, side.account, prov_errno);
    }
    /// pay() for a new call; calls `progress` for some rounds as long as there are no credits.
    template <class Progress>
    [[nodiscard]] int pay_now(RemoteSide& side, int& prov_errno, Progress&& progress) noexcept
    {
        int ret = pay(side, prov_errno);
        for (unsigned polls = rounds_of_a_call; ret == -FI_EAGAIN && polls != 0; polls--) {
            progress();
            ret = pay(side, prov_errno);
        }
        return ret;
    }
    /// RemoteKeys::refuted() for all keys of the side. True if some may have changed.
    bool refuted(const RemoteSide& side) noexcept
    {
        bool some = false;
        for (unsigned i = 0; i < side.targets; i++)
            some |= keys_.refuted(side.peer, side.target[i].key);
        return some;
    }

    /// Adds a piece to the side, unless it is empty. Notes in by_directory whether its key has to be looked up.
    void add(RemoteSide& side, std::uint64_t address, std::size_t length, std::uint64_t key) const noexcept
    {
        if (length != 0)
            side.target[side.targets++] = {{}, length, key, address};
        side.by_directory |= keys_.by_directory(key);
    }
    /// True if communications have to ask may_go_to(), because some peer is reached by several VCQs.
    [[nodiscard]] bool is_ordering() const noexcept { return vcq_order_.begun(); }
    /// May a communication of an ordered operation go to `vcq` of the peer at `home` now? False: try again after a
    /// poll. As VcqOrder::pass().
    [[nodiscard]] bool may_go_to(utofu_vcq_id_t home, utofu_vcq_id_t vcq, bool reads = false) noexcept
    {
        return vcq_order_.pass(home, vcq, reads);
    }

  private:
    [[nodiscard]] int resolve(const Peer& peer, std::uint64_t key, std::uint64_t address, std::size_t length,
                              std::uint64_t access, Target& target) noexcept
    {
        const int ret = keys_.resolve(peer, key, address, length, access, target);
        if (ret == 0 && target.vcq != peer.home) [[unlikely]]
            meet_annex();
        return ret;
    }
    [[gnu::noinline, gnu::cold]] void meet_annex() noexcept
    {
        vcq_order_.begin();
        at_once_ = false;
    }

    const Peers& peers_;
    bool at_once_;
    RemoteKeys& keys_;
    EventCredits& credits_;
    VcqOrder vcq_order_; ///< orders the engine's communications to peers with annexes
};

} // namespace tofu
