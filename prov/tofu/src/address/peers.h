// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The peers that addresses of the application name (fi_addr_t), as the data path wants them: an address vector as
// those see it who post to a peer or say who sent. Filled by the calls of fi_av (object/av.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <rdma/fi_domain.h>

#include "address/address.h"
#include "address/store.h"
#include "fid/object.h"
#include "provider/array.h"

namespace tofu {

class DomainBase;

/// A place is filled before its number is told to anybody: find() needs no lock.
class Peers : public Object<Peers, fid_av, DomainBase> {
  public:
    explicit Peers(Counted& domain) noexcept;
    ~Peers();
    static constexpr int max_rx_bits = 32; ///< leaves more places than there can be
    /// Addresses have `bits` bits, at most max_rx_bits, for receive contexts (fi_av(3), rx_ctx_bits). Before the first
    /// insertion.
    void set_rx_bits(int bits) noexcept;

    /// The peer behind an address of the application, whichever receive context it names, or null where it is
    /// none. Any thread, beside insertions too.
    [[nodiscard]] const Peer* find(fi_addr_t address) const noexcept
    {
        Peer* const peer = store_.at(place_of(address));
        // acquire: the other members (partner: insert())
        return peer != nullptr && std::atomic_ref(peer->home).load(std::memory_order_acquire) != 0 ? peer : nullptr;
    }
    /// The place that an address names.
    [[nodiscard]] std::uint64_t place_of(fi_addr_t address) const noexcept { return address & place_mask_; }
    /// The receive context that an address names (fi_rx_addr).
    [[nodiscard]] unsigned context_of(fi_addr_t address) const noexcept
    {
        return static_cast<unsigned>(std::rotl(address, rx_bits_) & ~(~std::uint64_t{0} << rx_bits_));
    }
    /// How many receive contexts of a peer addresses can tell apart, as a binary logarithm.
    [[nodiscard]] int context_bits() const noexcept { return std::min(rx_bits_, max_context_bits); }
    /// Who sent: the address of endpoint `index` of the domain at `home`, or what the user has named that
    /// (FI_AV_USER_ID), or FI_ADDR_NOTAVAIL. Slow path (a hash table made at first use): channels keep the answer together
    /// with generation(). Any thread.
    [[nodiscard]] fi_addr_t lookup(std::uint64_t home, std::uint64_t nonce, std::uint32_t index) noexcept;
    /// Changes with every insertion and removal.
    [[nodiscard]] std::uint32_t generation() const noexcept
    {
        return store_.head().generation.load(std::memory_order_acquire);
    }
    /// One past the highest address in use.
    [[nodiscard]] std::size_t size() const noexcept { return store_.head().size.load(std::memory_order_acquire); }

    // --- insertion and removal, any thread. Whoever has changed something calls changed() once behind it.
    /// A sound address gets a place: 0, or a positive FI_ENOMEM (also where there are as many as there can be) or FI_EBUSY
    /// (another process changes the vector, and is stopped).
    [[nodiscard]] int insert(const EndpointAddress& address, fi_addr_t& number) noexcept;
    /// Of one who is there already the place, which has to be removed once more: 0. Else as insert(). Of a vector that is
    /// the process's own.
    [[nodiscard]] int insert_once(const EndpointAddress& address, fi_addr_t& number) noexcept;
    /// All or none: 0, -FI_EINVAL where one names no peer, or -FI_EBUSY.
    [[nodiscard]] int remove(const fi_addr_t* places, std::size_t count) noexcept;
    void changed() noexcept;
    /// FI_AV_USER_ID of fi_av_insert(3): what lookup() says of this place until it is filled anew. 0, or a positive
    /// FI_ENOMEM.
    [[nodiscard]] int name(fi_addr_t number, fi_addr_t user_id) noexcept;

    /// Somebody who is told of each change of this process, in changed().
    struct Watcher {
        void (*told)(void* self) noexcept = nullptr;
        void* self = nullptr;
        Watcher* next = nullptr;
    };
    void watch(Watcher& watcher) noexcept;
    void unwatch(Watcher& watcher) noexcept;

  protected:
    [[nodiscard]] PeerStore& store() noexcept { return store_; }

  private:
    struct Index;
    static constexpr int max_context_bits = 8;      ///< no peer has more
    static_assert(max_endpoints <= 1u << max_context_bits);

    [[nodiscard]] Peer* take(fi_addr_t& number) noexcept;
    void update_index() noexcept;
    void forget_name(fi_addr_t number) noexcept;
    [[nodiscard]] bool has_more_uses(fi_addr_t number) noexcept;
    [[nodiscard]] fi_addr_t find_number(std::uint64_t home, std::uint64_t nonce, std::uint32_t index) noexcept;

    fi_addr_t place_mask_ = ~fi_addr_t{0}; ///< without the bits of receive contexts
    int rx_bits_ = 0;                      ///< how many those are
    PeerStore store_;
    std::unique_ptr<Index> index_; ///< in turn among the threads
    std::mutex user_mutex_;
    Array<fi_addr_t> user_ids_;      ///< by place; those beyond have none
    Array<std::uint32_t> more_uses_; ///< of places by insert_once(); those beyond have none
    std::mutex watch_mutex_;    ///< before the locks of those who are told
    Watcher* watchers_ = nullptr;
};

} // namespace tofu
