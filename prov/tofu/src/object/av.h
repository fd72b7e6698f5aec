// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_av: addresses of peers, by index (FI_AV_TABLE and FI_AV_MAP alike: fi_addr_t is the index). Called by
// the application and, by find() and lookup(), by the protocols. Calls nothing below.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fi_domain.h>

#include "address/address.h"
#include "provider/lock.h"

namespace tofu {

class Domain;
class EventQueue;

/// One peer as the data path wants it. `home` 0 marks a free place.
struct Peer {
    std::uint64_t home;
    std::uint64_t nonce;
    std::uint16_t index;      ///< endpoint number in its domain
    std::uint8_t further;     ///< receive contexts behind the first, at the numbers that follow
    bool counts_events;       ///< operations that target it carry a notice (address_counts_events)
    std::uint32_t generation; ///< number of this use of the place, unique in the vector: tells caches of a removal
};

class AddressVector final : public fid_av {
  public:
    /// fi_av_open(3); holds the domain. 0, -FI_EINVAL, -FI_EBADFLAGS, -FI_ENOSYS (a name: vectors are not shared
    /// between processes), -FI_ENOMEM.
    static int open(fid_domain* domain, fi_av_attr* attr, fid_av** av, void* context) noexcept;
    static AddressVector& of(fid_av* a) noexcept { return *static_cast<AddressVector*>(a); }

    /// The peer behind an address of the application, whichever receive context it names, or null where it is
    /// none. Safe beside insertions: places never move (they lie in chunks).
    [[nodiscard]] const Peer* find(fi_addr_t address) const noexcept
    {
        const Peer* peer = place(address & place_mask_);
        return peer != nullptr && peer->home != 0 ? peer : nullptr;
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
    /// Who sent: the address of endpoint `index` of the domain at `home`, or FI_ADDR_NOTAVAIL. Slow path (a
    /// hash table made at first use): channels keep the answer together with generation().
    [[nodiscard]] fi_addr_t lookup(std::uint64_t home, std::uint64_t nonce, std::uint32_t index) noexcept;
    /// Changes with every insertion and removal.
    [[nodiscard]] std::uint32_t generation() const noexcept
    {
        return generation_.load(std::memory_order_acquire);
    }
    /// One past the highest address in use.
    [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }

    [[nodiscard]] const Domain& domain() const noexcept { return *domain_; }
    void hold() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { users_.fetch_sub(1, std::memory_order_relaxed); }

    /// Addresses are text (FI_ADDR_STR) instead of EndpointAddress.
    [[nodiscard]] bool textual() const noexcept { return textual_; }

    // --- the calls of fi_av's operation table
    int insert(const void* addresses, std::size_t count, fi_addr_t* places, std::uint64_t flags,
               void* context) noexcept;
    int insert_named(const char* node, const char* service, fi_addr_t* place, std::uint64_t flags,
                     void* context) noexcept;
    int remove(const fi_addr_t* places, std::size_t count, std::uint64_t flags) noexcept;
    int copy(fi_addr_t place, void* address, std::size_t* length) const noexcept;
    int bind(EventQueue& events) noexcept;
    int close() noexcept;

  private:
    struct Index;
    static constexpr std::size_t chunk_size = 1024; ///< peers in a chunk
    static constexpr std::size_t max_chunks = 4096; ///< 4 Mi peers
    static constexpr int max_rx_bits = 32;          ///< leaves more places than there can be
    static constexpr int max_context_bits = 8;      ///< no peer has more
    static_assert(max_endpoints <= 1u << max_context_bits);

    AddressVector(Domain& domain, bool textual) noexcept;
    ~AddressVector();
    [[nodiscard]] Peer* place(std::size_t number) const noexcept
    {
        // acquire: the chunk's zeroes, and a filled place, come before its number is known (partner: take())
        Peer* chunk = number / chunk_size < max_chunks
                          ? chunks_[number / chunk_size].load(std::memory_order_acquire)
                          : nullptr;
        return chunk != nullptr ? chunk + number % chunk_size : nullptr;
    }
    [[nodiscard]] Peer* take(fi_addr_t& number) noexcept;
    [[nodiscard]] static bool text_at(const void* addresses, std::size_t number, char* text) noexcept;
    void note(std::size_t number) noexcept;
    void make_index() noexcept;
    [[nodiscard]] int may_insert(std::uint64_t flags) const noexcept;
    [[nodiscard]] int* errors_at(std::uint64_t flags, void* context) const noexcept;
    [[nodiscard]] int insert_one(const EndpointAddress& address, fi_addr_t* result, void* context,
                                 std::size_t number) noexcept;
    [[nodiscard]] int finish(int inserted, void* context) noexcept;

    Domain* domain_;
    fi_addr_t place_mask_ = ~fi_addr_t{0}; ///< without the bits of receive contexts
    int rx_bits_ = 0;                      ///< how many those are (fi_av(3), rx_ctx_bits)
    bool textual_;
    bool duplicates_ = false;   ///< a peer has more than one place in the index's answer
    bool asynchronous_ = false; ///< FI_EVENT: insertions report to the event queue
    EventQueue* events_ = nullptr;
    std::size_t free_places_ = 0;
    std::size_t first_free_ = 0; ///< no free place lies below it
    std::uint32_t uses_ = 0;     ///< of places, ever
    Lock lock_;
    std::atomic<std::uint32_t> generation_{0};
    std::atomic<std::size_t> size_{0};
    std::atomic<int> users_{0};
    std::unique_ptr<std::atomic<Peer*>[]> chunks_;
    std::unique_ptr<Index> index_;
};

} // namespace tofu
