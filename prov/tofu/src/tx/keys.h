// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Turns a key of fi_mr and a remote address into the target of a communication: a VCQ and a steering address of the
// peer. Asked through remote_memory.h under the context's lock; calls vcq.
//
// Remote addressing is one addition: STADD of the target = bias + remote address, where bias comes from the key. A key
// of ours (FI_MR_PROV_KEY) *is* the bias: STADD minus base address with FI_MR_VIRT_ADDR, the STADD itself with offsets.
// A key of the user's choice, and one of ours for a region that the home VCQ does not reach, is looked up in the
// directory of the peer's regions (mem/mr_directory.h) by one-sided Get, and remembered.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "av/peer_table.h"
#include "core/containers.h"
#include "mem/mr_directory.h"
#include "utofu/vcq.h"

namespace tofu {

/// The target of a communication.
struct Target {
    utofu_vcq_id_t vcq;
    utofu_stadd_t stadd;
};

/// The domain for which keys are cached.
struct KeyReader {
    utofu_vcq_id_t home; ///< its home VCQ
    std::byte* area;     ///< its directory memory, in which peers revoke keys (directory::epochs_offset)
};

/// The keys of peers that one context knows; used under its lock. A key of the provider's choice is resolved by an
/// addition; other keys are read from the peer's directory by a Get from the context's VCQ and remembered in a bounded
/// table. Before the first key of a peer is cached, the reader is entered into the peer's table of readers
/// (memory/key_readers.h); a key that the peer has revoked since is looked up anew.
class RemoteKeys {
  public:
    RemoteKeys(vcq::Vcq& vcq, bool provider_keys, const KeyReader& reader) noexcept;
    ~RemoteKeys();

    /// Finds [address, address + length) of the peer, at its home VCQ or at an annex, for an access with FI_REMOTE_READ
    /// and/or FI_REMOTE_WRITE. 0; -FI_EAGAIN while a lookup is under way (nothing has happened; try again after
    /// progress); -FI_ENOMEM; or an error for the operation's entry: -FI_EKEYREJECTED no such key, -FI_EACCES not
    /// allowed, -FI_EINVAL outside the region.
    [[nodiscard]] int resolve(const Peer& peer, std::uint64_t key, std::uint64_t address,
                              std::size_t length, std::uint64_t access, Target& target) noexcept
    {
        if (!by_directory(key)) [[likely]] {
            target = by_bias(peer, key, address);
            return 0;
        }
        return resolve_by_directory(peer, key, address, length, access, target);
    }
    /// Forgets an answer of resolve() that the peer's TNI has refused (UTOFU_ERR_MRQ_RMT_*) or that is in doubt. True
    /// if it came from the directory and may have changed there: resolve again and retry, once.
    bool refuted(const Peer& peer, std::uint64_t key) noexcept;
    /// A call of the application begins. A reader that is not in a peer's table uses no answer of an earlier call.
    void begin_call() noexcept { calls_++; }
    /// True if this reader is not in the peer's table of readers.
    [[nodiscard]] bool looks_up_each_call(const Peer& peer) const noexcept;
    /// True if all keys have to be looked up, because the user chose them: an operation may have to be retried after
    /// refuted().
    [[nodiscard]] bool by_directory() const noexcept { return !provider_keys_; }
    /// True if this key has to be looked up, because the user chose it or it is one of ours that is no bias.
    [[nodiscard]] bool by_directory(std::uint64_t key) const noexcept
    {
        return !provider_keys_ || directory::is_listed(key);
    }
    /// The home VCQ of the peer that has this VCQ, its home or an annex that has been met.
    [[nodiscard]] utofu_vcq_id_t home_of(utofu_vcq_id_t vcq) noexcept;
    /// The target for a key that is a bias.
    static Target by_bias(const Peer& peer, std::uint64_t key, std::uint64_t address) noexcept
    {
        return {peer.home, key + address};
    }

  private:
    /// The name of a region, or of an annex by its number. The nonce tells a peer from an earlier one with its VCQ ID.
    struct Name {
        std::uint64_t home = 0; ///< the peer's
        std::uint64_t nonce = 0;
        std::uint64_t key = 0;
        auto operator<=>(const Name&) const = default;
    };
    struct Lookup;
    struct Known;
    [[nodiscard]] int resolve_by_directory(const Peer& peer, std::uint64_t key,
                                           std::uint64_t address, std::size_t length,
                                           std::uint64_t access, Target& target) noexcept;
    [[nodiscard]] int look_up(const Name& name) noexcept;
    [[nodiscard]] Lookup* free_lookup(int& error) noexcept;
    [[nodiscard]] int ask_directory(Lookup& lookup, utofu_vcq_id_t vcq, std::size_t offset,
                                    std::size_t size) noexcept;
    [[nodiscard]] int ask(Lookup& lookup, utofu_stadd_t stadd, std::size_t size) noexcept;
    [[nodiscard]] int post(Lookup& lookup) noexcept;
    [[nodiscard]] int read_first_bucket(Lookup& lookup) noexcept;
    [[nodiscard]] int enlist(Lookup& lookup) noexcept;
    [[nodiscard]] int met(Lookup& lookup, bool listed) noexcept;
    static void on_answer(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    [[nodiscard]] int next_step(Lookup& lookup, std::uint64_t value) noexcept;
    [[nodiscard]] int read_bucket(Lookup& lookup) noexcept;
    [[nodiscard]] int learn(Lookup& lookup) noexcept;
    [[nodiscard]] bool remember(const Known& known) noexcept;
    [[nodiscard]] Known* group_of(const Name& name) noexcept;
    [[nodiscard]] Known* find(const Name& name) noexcept;
    [[nodiscard]] const Known* recall(const Name& name) noexcept;
    [[nodiscard]] std::uint32_t epoch_of(utofu_vcq_id_t home) const noexcept;

    vcq::Vcq& vcq_;
    bool provider_keys_;
    KeyReader reader_;
    std::unique_ptr<Known[]> known_; ///< in groups; grows to max_known
    std::size_t known_size_ = 0;
    std::size_t known_count_ = 0;
    unsigned evicted_ = 0;
    Array<std::unique_ptr<Lookup>> lookups_;
    /// VCQs of peers by their numbers; each has been checked to be the peer's. Number 0: the home, once this reader is in
    /// its table, or `not_listed`.
    SpareNodeMap<std::map, Name, utofu_vcq_id_t> homes_;
    static constexpr utofu_vcq_id_t not_listed = 0;
    std::uint32_t calls_ = 0;
};

} // namespace tofu
