// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The endpoints that addresses name: the numbers of a domain's own endpoints (EndpointNumbers); the peers behind the
// addresses of an address vector, which engines look up to post to a peer or to report the sender of a message (Peers).
// The calls of fi_av (api/av.cc) fill the peers in.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <rdma/fi_domain.h>

#include "av/address.h"
#include "av/shared_table.h"
#include "core/containers.h"
#include "core/object.h"

namespace tofu {

// --- EndpointNumbers: what addresses and reserved STags of a domain's endpoints name. A peer that was stopped may
// write to the area of an endpoint that is closed, so a number is free for a successor only when no peer can do so
// ("Writes that outlive their endpoint" in docs/wire-protocol.md).

class EndpointNumbers {
  public:
    using Set = std::bitset<max_endpoints>;

    /// The numbers of a domain. Fewer in tests in which numbers are used again.
    static inline unsigned most = max_endpoints;
    /// In a test: the domains that give numbers back now are remains of a process that was killed, which writes
    /// nothing.
    static inline bool killed_of_test = false;

    ~EndpointNumbers();

    /// Reads from a file of the node which numbers earlier domains with this target VCQ have left unsettled; they may
    /// have been killed, or belong to other processes. `job` names the process's job where VCQ IDs are unique within
    /// a job only, else null. Where there can be no such file the first number follows from `random`. 0, or -FI_EMFILE.
    [[nodiscard]] int open(const char* job, std::uint64_t target_vcq, std::uint64_t random) noexcept;
    /// Takes `count` numbers in a row, for an endpoint or the receive contexts of a scalable endpoint: numbers that
    /// this domain has not used, then those that were released first, unsettled ones last. `incarnation` distinguishes
    /// this use of them from others (endpoint_nonce). 0 or -FI_ENOSPC.
    [[nodiscard]] int alloc(unsigned count, unsigned& first, std::uint16_t& incarnation) noexcept;
    /// A peer may still write to the area of this number, which is in use.
    void set_unsettled(unsigned number) noexcept;
    void release(unsigned first, unsigned count) noexcept;

  private:
    void save() const noexcept;

    Mutex mutex_;
    Set taken_;                                           ///< in use
    Set unsettled_;                                       ///< of these numbers, in use or not
    std::array<std::uint32_t, max_endpoints> released_{}; ///< when, counted in calls; 0: never used by this domain
    std::uint32_t calls_ = 0;
    std::uint16_t incarnations_ = 0; ///< counts calls of alloc()
    unsigned start_ = 0;             ///< the first number of a domain without history
    std::uint64_t key_ = 0;          ///< of the history in the node's file; 0: there is none
    bool may_outlive_ = true;        ///< the history outlives the last process of the node
};

// --- Peers: behind the application's addresses (fi_addr_t), the part of an address vector that the data path uses

class DomainBase;

/// An entry is filled before its number becomes known, so find() needs no lock.
class Peers : public Object<Peers, fid_av, DomainBase> {
  public:
    explicit Peers(RefCounted& domain) noexcept;
    ~Peers();
    static constexpr int max_rx_bits = 32; ///< even so there are more addresses than indices
    /// Reserves `bits` bits of addresses, at most max_rx_bits, for receive contexts (fi_av(3), rx_ctx_bits). Called
    /// before the first insertion.
    void set_rx_bits(int bits) noexcept;

    /// The peer behind an address of the application, whichever receive context it names; null: there is none. Any
    /// thread, also during insertions.
    [[nodiscard]] const Peer* find(fi_addr_t address) const noexcept
    {
        Peer* const peer = store_.at(index_of(address));
        // acquire: the other members (partner: insert())
        return peer != nullptr && std::atomic_ref(peer->target_vcq).load(std::memory_order_acquire) != 0 ? peer
                                                                                                         : nullptr;
    }
    /// The index that an address names.
    [[nodiscard]] std::uint64_t index_of(fi_addr_t address) const noexcept { return address & index_mask_; }
    /// The receive context that an address names (fi_rx_addr).
    [[nodiscard]] unsigned context_of(fi_addr_t address) const noexcept
    {
        return static_cast<unsigned>(std::rotl(address, rx_bits_) & ~(~std::uint64_t{0} << rx_bits_));
    }
    /// The address of a sender, endpoint `index` of the domain at `target_vcq`: its index, or the user's ID for it
    /// (FI_AV_USER_ID), or FI_ADDR_NOTAVAIL. Slow path (a hash table made at first use), so callers keep the answer
    /// together with generation(). Any thread.
    [[nodiscard]] fi_addr_t lookup(std::uint64_t target_vcq, std::uint64_t nonce, std::uint32_t index) noexcept;
    /// Changes with every insertion and removal.
    [[nodiscard]] std::uint32_t generation() const noexcept
    {
        return store_.head().generation.load(std::memory_order_acquire);
    }
    /// One past the highest address in use.
    [[nodiscard]] std::size_t size() const noexcept { return store_.head().size.load(std::memory_order_acquire); }

    // --- insertion and removal, any thread. After changes the caller calls changed() once.
    /// Gives a valid address an index. 0, or a positive FI_ENOMEM (also if all entries are in use) or FI_EBUSY (another
    /// process is changing the vector and has been stopped).
    [[nodiscard]] int insert(const EndpointAddress& address, fi_addr_t& number) noexcept;
    /// As insert(), but an address that is there already gives its index, which then has to be removed once more. Only
    /// for a vector of the process's own.
    [[nodiscard]] int insert_once(const EndpointAddress& address, fi_addr_t& number) noexcept;
    /// Removes all of the addresses, or none: 0, -FI_EINVAL if one names no peer, or -FI_EBUSY.
    [[nodiscard]] int remove(const fi_addr_t* fi_addrs, std::size_t count) noexcept;
    void changed() noexcept;
    /// FI_AV_USER_ID of fi_av_insert(3): sets what lookup() answers for this index until it is filled again. 0, or a
    /// positive FI_ENOMEM.
    [[nodiscard]] int name(fi_addr_t number, fi_addr_t user_id) noexcept;

    /// An observer, which changed() notifies of changes by this process.
    struct Watcher {
        void (*notify)(void* self) noexcept = nullptr;
        void* self = nullptr;
        Watcher* next = nullptr;
    };
    void watch(Watcher& watcher) noexcept;
    void unwatch(Watcher& watcher) noexcept;

  protected:
    [[nodiscard]] PeerStore& store() noexcept { return store_; }

  private:
    struct Index;

    [[nodiscard]] Peer* alloc_index(fi_addr_t& number) noexcept;
    [[nodiscard]] Peer* reuse_index(fi_addr_t& number) noexcept;
    void note_removed(std::size_t number) noexcept;
    void update_index() noexcept;
    void remove_name(fi_addr_t number) noexcept;
    [[nodiscard]] bool has_more_uses(fi_addr_t number) noexcept;
    [[nodiscard]] fi_addr_t find_number(std::uint64_t target_vcq, std::uint64_t nonce, std::uint32_t index) noexcept;

    fi_addr_t index_mask_ = ~fi_addr_t{0}; ///< without the bits of receive contexts
    int rx_bits_ = 0;                      ///< number of these bits
    PeerStore store_;
    std::unique_ptr<Index> index_; ///< used only by the thread that has the turn
    /// Places that were removed here, a heap with the lowest first: hints only, since there may be no memory for one,
    /// and other processes may fill entries of a shared vector. Used in turn.
    Array<std::uint32_t> removed_;
    Mutex user_mutex_;
    Map<fi_addr_t, fi_addr_t> user_ids_;      ///< of entries that have one
    Map<fi_addr_t, std::uint32_t> more_uses_; ///< of entries: further uses by insert_once()
    Mutex watch_mutex_;                       ///< taken before the observers' locks
    List<Watcher, &Watcher::next> watchers_;
};

} // namespace tofu
