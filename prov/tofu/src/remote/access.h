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
#include "remote/event_credits.h"
#include "remote/keys.h"
#include "transfer/request.h"
#include "transfer/vcq_order.h"

namespace tofu {

/// The call is refused, and nothing has happened. Other errors of resolve() are the operation's.
constexpr bool refuses_call(int ret) noexcept { return ret == -FI_EAGAIN || ret == -FI_ENOMEM; }

/// The remote side of an operation: pieces of one peer's memory, as the call names them and where they are, and the event
/// that the operation is to a target that counts.
struct RemoteSide {
    struct Piece {
        Target at;
        std::size_t length;
        std::uint64_t key;
        std::uint64_t address; ///< what the application said; `at` follows from it and the key
    };
    static constexpr std::size_t most = 8;

    Peer peer{};
    std::uint64_t access = 0;        ///< that its regions must allow
    std::uint8_t align = 1;          ///< of each piece at the peer
    EventAccount* account = nullptr; ///< that has paid for the event; null where nobody has to
    bool event_posted = false;       ///< and has not failed
    bool by_directory = false;       ///< a key was looked up, and may have to be once more
    bool retried = false;            ///< with keys looked up anew
    std::uint8_t targets = 0;        ///< entries of target[]
    Piece target[most];

    /// The event that was paid for will not come, unless it was posted.
    void refund() noexcept
    {
        if (account != nullptr && !event_posted)
            account->refund();
        account = nullptr;
    }
};

/// An answer of RemoteAccess::resolve(): a piece is not aligned.
inline constexpr int misaligned = 1;

/// What a context knows of its peers' memory, and the credits that it has there. Its engines share both.
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

    /// Where all pieces are, for every other way: as RemoteKeys::resolve(), or `misaligned`.
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
    /// The same for a new call, whose caller makes `progress` as long as a lookup is under way, for some rounds. An answer
    /// "outside the region", "not allowed" or "misaligned" may concern a region that has been replaced under the same key since; so it
    /// only counts once the key has been read anew. -FI_EAGAIN: the caller has to be called again.
    template <class Progress>
    [[nodiscard]] int resolve_now(RemoteSide& side, Progress&& progress) noexcept
    {
        int ret = resolve(side);
        unsigned polls = rounds_of_a_call;
        const bool final = ret == 0 || refuses_call(ret) || ret == -FI_EKEYREJECTED;
        if (!final && refuted(side)) [[unlikely]] {
            ret = -FI_EAGAIN;
            polls = 1u << 16; // enough to get the answer now: a later call would start by forgetting again
        }
        for (; ret == -FI_EAGAIN && polls != 0; polls--) {
            progress();
            ret = resolve(side);
        }
        return ret;
    }
    /// Pays for the event that an operation is to a peer that counts them: as EventCredits::pay().
    [[nodiscard]] int pay(RemoteSide& side, int& prov_errno) noexcept
    {
        return credits_.pay(side.peer, side.account, prov_errno);
    }
    /// The same for a new call, as resolve_now().
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
    /// As RemoteKeys::refuted(), for all keys: true where some may have changed.
    bool refuted(const RemoteSide& side) noexcept
    {
        bool some = false;
        for (unsigned i = 0; i < side.targets; i++)
            some |= keys_.refuted(side.peer, side.target[i].key);
        return some;
    }

    /// One more piece of the side, unless it is empty. Whether a key has to be looked up, and perhaps once more after
    /// refuted(), is noted.
    void add(RemoteSide& side, std::uint64_t address, std::size_t length, std::uint64_t key) const noexcept
    {
        if (length != 0)
            side.target[side.targets++] = {{}, length, key, address};
        side.by_directory |= keys_.by_directory(key);
    }
    /// The order across VCQs of a peer has to be seen to.
    [[nodiscard]] bool is_ordering() const noexcept { return vcq_order_.begun(); }
    /// May a communication of an operation in order with others go to `vcq` of the peer at `home` now? False: try again
    /// after a poll. As VcqOrder::pass().
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
    VcqOrder vcq_order_; ///< of the engine's communications towards a peer with annexes
};

} // namespace tofu
