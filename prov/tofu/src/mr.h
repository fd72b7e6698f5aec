// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_mr: memory that peers may reach, and the keys they reach it by. Called by the application; by rma and
// atomic (RemoteKeys); by all who need a local buffer registered (LocalMemory). Calls vcq.
//
// Remote addressing is one addition: STADD of the target = bias + remote address, where bias comes from the
// key. A key of ours (FI_MR_PROV_KEY) *is* the bias: STADD minus base address with FI_MR_VIRT_ADDR, the STADD
// itself with offsets. A key of the user, and one of ours for a region that is not reached by the home VCQ, is looked up
// in the directory of the peer's regions by one-sided Get, and remembered.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include "av.h"
#include "directory.h"
#include "vcq/vcq.h"

namespace tofu {

class Counter;
class RegistrationCache;
class Domain;
class Endpoint;

/// One region of memory (fi_mr). Registered with the domain's home VCQ, or an annex of it, where peers may reach it
/// (FI_REMOTE_READ, FI_REMOTE_WRITE), read-only unless they may write.
class MemoryRegion final : public fid_mr {
  public:
    static MemoryRegion& of(fid_mr* m) noexcept { return *static_cast<MemoryRegion*>(m); }
    /// The region behind a `desc` of the application (fi_mr_desc), or null for a null desc.
    static MemoryRegion* of_desc(void* desc) noexcept { return static_cast<MemoryRegion*>(desc); }

    [[nodiscard]] bool covers(const void* address, std::size_t length) const noexcept
    {
        auto offset = reinterpret_cast<std::uintptr_t>(address) - base_;
        return offset <= length_ && length <= length_ - offset;
    }
    [[nodiscard]] std::uintptr_t base() const noexcept { return base_; }
    [[nodiscard]] std::size_t length() const noexcept { return length_; }
    /// Tells the region apart from every other of this process, also from those closed.
    [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }

  private:
    friend class RegionTable;
    Domain* domain_ = nullptr;
    std::uintptr_t base_ = 0;
    std::size_t length_ = 0;
    utofu_stadd_t stadd_ = 0; ///< with the VCQ number home_; meaningless unless reachable_
    unsigned home_ = 0;       ///< 0: the home VCQ, else an annex (annexes.h)
    std::uint64_t access_ = 0;
    std::uint64_t serial_ = 0;
    bool reachable_ = false;
    bool published_ = false; ///< has an entry in the directory
    Counter* write_counter_ = nullptr;
    Counter* read_counter_ = nullptr;
    Endpoint* endpoint_ = nullptr; ///< that its events are of; perhaps closed: looked at while it is number endpoint_number_
    unsigned endpoint_number_ = 0;
};

/// A local buffer as the posting VCQ knows it. Give it back with LocalMemory::release when the
/// communication is over.
struct LocalRef {
    utofu_stadd_t stadd = 0;
    std::uint32_t cache_slot = 0; ///< of LocalMemory; 0: nothing to give back
};

/// Registrations of local buffers with one VCQ, under that VCQ's owner's lock.
class LocalMemory {
  public:
    explicit LocalMemory(vcq::Vcq& vcq) noexcept;
    /// Gives back whatever is still registered, released or not.
    ~LocalMemory();
    /// Registers [address, address + length) with the VCQ, or finds it registered. 0 or -FI_E* (-FI_EAGAIN: no
    /// STADD left until others are released).
    /// `desc` is the application's (fi_mr_desc) or null: a buffer inside a region keeps its registration until the
    /// region is closed, if it is one of the first max_kept. Any other is registered for this transfer, or found in the
    /// cache where there is one (registration_cache.h).
    [[nodiscard]] int acquire(const void* address, std::size_t length, bool read_only, LocalRef& ref,
                              void* desc = nullptr) noexcept;
    void release(const LocalRef& ref) noexcept;
    /// Drops what is kept for a region that is being closed.
    void forget(std::uint64_t serial) noexcept;

  private:
    struct Kept {
        std::uint64_t serial;
        std::uintptr_t base;
        utofu_stadd_t stadd;
        bool read_only;
    };
    struct Transient {
        utofu_stadd_t stadd;
        std::uint32_t next_free; ///< 0: the last; or in_use
    };
    static constexpr std::uint32_t in_use = ~0u;
    static constexpr std::size_t max_kept = 256;
    /// -FI_ENOSPC: not among those that are kept.
    [[nodiscard]] int acquire_region(const MemoryRegion& region, const void* address, bool read_only,
                                     LocalRef& ref) noexcept;
    [[nodiscard]] int acquire_cached(const void* address, std::size_t length, bool read_only,
                                     LocalRef& ref) noexcept;
    static constexpr std::uint32_t cached = 0x80000000; ///< in cache_slot: a number of the cache's
    vcq::Vcq& vcq_;
    std::unique_ptr<RegistrationCache> cache_;
    bool cache_asked_for_ = false;
    std::vector<Kept> kept_;
    std::vector<Transient> transient_; ///< [0] unused
    std::uint32_t first_free_ = 0;
};

/// Where a communication goes.
struct Target {
    utofu_vcq_id_t vcq;
    utofu_stadd_t stadd;
};

/// Settles what the first attempt of a call to resolve its keys said, `ret`. A look-up under way gets some rounds of
/// `again`: progress, and another attempt. "Outside" and "not allowed" may have been said of a region that another has
/// replaced under its key since: they count when the key has been read anew within the call. `forget` does so; false: keys
/// do not change. What `again` said last; -FI_EAGAIN: the caller has to come back.
template <class Again, class Forget>
[[nodiscard]] int settle_keys(int ret, Again&& again, Forget&& forget)
{
    unsigned polls = 64;
    const bool final = ret == 0 || ret == -FI_EAGAIN || ret == -FI_ENOMEM || ret == -FI_EKEYREJECTED;
    if (!final && forget()) [[unlikely]] {
        ret = -FI_EAGAIN;
        polls = 1u << 16; // who comes back would doubt again
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
    /// FI_REMOTE_WRITE: at its home VCQ, or at an annex. 0; -FI_EAGAIN while a lookup is under way (nothing has happened,
    /// try again after progress); -FI_EKEYREJECTED no such key; -FI_EACCES not allowed; -FI_EINVAL outside the region. The
    /// last three become an error entry of the operation. -FI_ENOMEM.
    [[nodiscard]] int resolve(const Peer& peer, std::uint64_t key, std::uint64_t address,
                              std::size_t length, std::uint64_t access, Target& target) noexcept
    {
        if (!by_directory(key)) [[likely]] {
            target = {peer.home, key + address};
            return 0;
        }
        return resolve_by_directory(peer, key, address, length, access, target);
    }
    /// The peer's TNI refused what resolve() answered (UTOFU_ERR_MRQ_RMT_*), or it is doubted: forgets it. True where
    /// it came from the directory and may have changed there: resolve again and retry, once.
    bool refuted(const Peer& peer, std::uint64_t key) noexcept;
    /// All keys are the user's: an operation may have to be retried after refuted().
    [[nodiscard]] bool by_directory() const noexcept { return !provider_keys_; }
    /// This one is, or is one of ours that says nothing by itself.
    [[nodiscard]] bool by_directory(std::uint64_t key) const noexcept
    {
        return !provider_keys_ || directory::is_listed(key);
    }

  private:
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
    void remember(const Known& known) noexcept;
    [[nodiscard]] Known* group_of(std::uint64_t home, std::uint64_t nonce, std::uint64_t key) noexcept;
    [[nodiscard]] Known* recall(std::uint64_t home, std::uint64_t nonce, std::uint64_t key) noexcept;

    vcq::Vcq& vcq_;
    bool provider_keys_;
    std::vector<Known> known_; ///< in groups; grows to max_known
    std::size_t known_count_ = 0;
    unsigned evicted_ = 0;
    std::vector<std::unique_ptr<Lookup>> lookups_;
    std::map<Annex, utofu_vcq_id_t> annexes_; ///< of peers, proved to be theirs
};

} // namespace tofu
