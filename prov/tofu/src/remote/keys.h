// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From a key of fi_mr and a remote address to where a communication goes: VCQ and steering address at the peer. Used by
// rma and atomic under the endpoint's lock; calls vcq.
//
// Remote addressing is one addition: STADD of the target = bias + remote address, where bias comes from the key. A key
// of ours (FI_MR_PROV_KEY) *is* the bias: STADD minus base address with FI_MR_VIRT_ADDR, the STADD itself with offsets.
// A key of the user's choice, and one of ours for a region that the home VCQ does not reach, is looked up in the
// directory of the peer's regions (memory/directory.h) by one-sided Get, and remembered.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include <rdma/fi_errno.h>

#include "address/peers.h"
#include "memory/directory.h"
#include "provider/array.h"
#include "provider/spare_node.h"
#include "vcq/vcq.h"

namespace tofu {

/// Where a communication goes.
struct Target {
    utofu_vcq_id_t vcq;
    utofu_stadd_t stadd;
};

/// Brings the resolving of a call's keys to an answer. `ret` is what the first attempt said. While a lookup is under
/// way, `again` (progress, and another attempt) is called for some rounds. An answer "outside the region" or "not
/// allowed" may concern a region that has been replaced under the same key since; so it only counts once the key has
/// been read anew. `forget` drops what is known of the keys for that, and answers false where keys never change.
/// Returns what the last attempt said; -FI_EAGAIN: the caller has to be called again.
template <class Again, class Forget>
[[nodiscard]] int settle_keys(int ret, Again&& again, Forget&& forget)
{
    unsigned polls = 64;
    const bool final = ret == 0 || ret == -FI_EAGAIN || ret == -FI_ENOMEM || ret == -FI_EKEYREJECTED;
    if (!final && forget()) [[unlikely]] {
        ret = -FI_EAGAIN;
        polls = 1u << 16; // enough to get the answer now: a later call would start by forgetting again
    }
    for (; ret == -FI_EAGAIN && polls != 0; polls--)
        ret = again();
    return ret;
}

/// What peers' keys stand for, as one endpoint knows it. Under the endpoint's lock. A key of the provider's
/// choice is resolved by an addition; others are read from the peer's directory by a Get with the endpoint's VCQ and
/// remembered in a bounded table.
class RemoteKeys {
  public:
    RemoteKeys(vcq::Vcq& vcq, bool provider_keys) noexcept;
    ~RemoteKeys();

    /// Where [address, address + length) of the peer is, for an access with FI_REMOTE_READ and/or
    /// FI_REMOTE_WRITE: at its home VCQ, or at an annex. 0; -FI_EAGAIN while a lookup is under way (nothing has
    /// happened, try again after progress); -FI_EKEYREJECTED no such key; -FI_EACCES not allowed; -FI_EINVAL outside
    /// the region. The last three become an error entry of the operation. -FI_ENOMEM.
    [[nodiscard]] int resolve(const Peer& peer, std::uint64_t key, std::uint64_t address,
                              std::size_t length, std::uint64_t access, Target& target) noexcept
    {
        if (!by_directory(key)) [[likely]] {
            target = by_bias(peer, key, address);
            return 0;
        }
        return resolve_by_directory(peer, key, address, length, access, target);
    }
    /// The peer's TNI refused what resolve() answered (UTOFU_ERR_MRQ_RMT_*), or it is doubted: forgets it. True where
    /// it came from the directory and may have changed there: resolve again and retry, once.
    bool refuted(const Peer& peer, std::uint64_t key) noexcept;
    /// All keys have to be looked up (they are the user's): an operation may have to be retried after refuted().
    [[nodiscard]] bool by_directory() const noexcept { return !provider_keys_; }
    /// This key has to be looked up: it is the user's, or one of ours that is no bias.
    [[nodiscard]] bool by_directory(std::uint64_t key) const noexcept
    {
        return !provider_keys_ || directory::is_listed(key);
    }

  private:
    friend class ShortWay;
    /// Where a key that is a bias leads.
    static Target by_bias(const Peer& peer, std::uint64_t key, std::uint64_t address) noexcept
    {
        return {peer.home, key + address};
    }
    struct Lookup;
    struct Known;
    /// An annex of a peer, by its number.
    struct Annex {
        std::uint64_t home;
        std::uint64_t nonce;
        unsigned number;
        auto operator<=>(const Annex&) const = default;
    };
    [[nodiscard]] int resolve_by_directory(const Peer& peer, std::uint64_t key,
                                           std::uint64_t address, std::size_t length,
                                           std::uint64_t access, Target& target) noexcept;
    [[nodiscard]] int look_up(const Peer& peer, std::uint64_t key) noexcept;
    [[nodiscard]] Lookup* free_lookup(int& error) noexcept;
    [[nodiscard]] int ask_directory(Lookup& lookup, utofu_vcq_id_t vcq, std::size_t offset,
                                    std::size_t size) noexcept;
    [[nodiscard]] int ask(Lookup& lookup, utofu_stadd_t stadd, std::size_t size) noexcept;
    static void on_answer(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    [[nodiscard]] int next_step(Lookup& lookup) noexcept;
    [[nodiscard]] int read_bucket(Lookup& lookup) noexcept;
    [[nodiscard]] int learn(Lookup& lookup) noexcept;
    [[nodiscard]] bool remember(const Known& known) noexcept;
    [[nodiscard]] Known* group_of(std::uint64_t home, std::uint64_t nonce, std::uint64_t key) noexcept;
    [[nodiscard]] Known* recall(std::uint64_t home, std::uint64_t nonce, std::uint64_t key) noexcept;

    vcq::Vcq& vcq_;
    bool provider_keys_;
    std::unique_ptr<Known[]> known_; ///< in groups; grows to max_known
    std::size_t known_size_ = 0;
    std::size_t known_count_ = 0;
    unsigned evicted_ = 0;
    Array<std::unique_ptr<Lookup>> lookups_;
    SpareNodeMap<std::map, Annex, utofu_vcq_id_t> annexes_; ///< of peers, proved to be theirs
};

/// The door to peers' memory for what is a single communication and is never tried again. All short ways of rma and
/// atomic go through it, so that what they may not do is decided in one place; who finds it shut goes the long way,
/// which does it or says why not. An engine has one, under the endpoint's lock.
class ShortWay {
  public:
    /// Open where keys are the provider's.
    void open(const Peers& av, const RemoteKeys& keys) noexcept
    {
        av_ = &av;
        open_ = !keys.by_directory();
    }
    /// For good: an annex was met, and the short ways do not look where the last operation went.
    void shut() noexcept { open_ = false; }
    [[nodiscard]] bool is_open() const noexcept { return open_; }
    /// The peer, and where [address, ...) of it is; null: shut for this peer or this key. A key that is no bias has to
    /// be looked up, an event at a peer that counts them has to be paid for.
    [[nodiscard, gnu::always_inline]] const Peer* resolve(fi_addr_t to, std::uint64_t key, std::uint64_t address,
                                                          Target& target) const noexcept
    {
        const Peer* const peer = av_->find(to);
        if (!open_ || peer == nullptr || peer->counts_events || directory::is_listed(key)) [[unlikely]]
            return nullptr;
        target = RemoteKeys::by_bias(*peer, key, address);
        return peer;
    }

  private:
    const Peers* av_ = nullptr;
    bool open_ = false;
};

} // namespace tofu
