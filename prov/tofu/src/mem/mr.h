// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Regions of memory that peers may reach (fi_mr): a region (MemoryRegion), the open regions of a domain by their local
// descriptors (Descs), the VCQs by which peers reach them (OverflowVcqs), and the table of regions with what peers
// reach and which of their accesses are counted (RegionTable). The calls of fi_mr (api/mr_calls.cc) and the notices of
// the target VCQ come here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include <rdma/fi_domain.h>

#include "core/containers.h"
#include "core/lock.h"
#include "core/object.h"
#include "cq/counter.h"
#include "mem/local_buffer.h"
#include "mem/mr_directory.h"
#include "utofu/vcq.h"

namespace tofu {

// --- MemoryRegion: the application holds it; api/mr_calls.cc makes and closes it, and the domain's RegionTable lists
// it. tx/remote_memory.h describes how peers reach it by its key.

/// What counts the accesses of peers to a region.
struct RmaEventBinding {
    Ref<Counter> write_counter;
    Ref<Counter> read_counter;
    unsigned endpoint = 0;    ///< number of the one endpoint that counts them ...
    std::uint64_t serial = 0; ///< ... and its serial (mem/mr_directory.h); 0: all that count everything do
    [[nodiscard]] bool empty() const noexcept
    {
        return write_counter == nullptr && read_counter == nullptr && serial == 0;
    }
};

/// One region of memory (fi_mr). Registered with the domain's target VCQ, or an overflow VCQ of it, where peers may
/// reach it (FI_REMOTE_READ, FI_REMOTE_WRITE), read-only unless they may write.
class MemoryRegion final : public Object<MemoryRegion, fid_mr, DomainBase> {
  public:
    MemoryRegion(RefCounted& domain, fi_ops& calls) noexcept : Object(&domain, FI_CLASS_MR)
    {
        fid.ops = &calls;
        mem_desc = this; // only compared (Descs)
    }
    [[nodiscard]] bool covers(const void* address, std::size_t length) const noexcept
    {
        auto offset = reinterpret_cast<std::uintptr_t>(address) - base_;
        return offset <= length_ && length <= length_ - offset;
    }
    [[nodiscard]] std::uintptr_t base() const noexcept { return base_; }
    [[nodiscard]] std::size_t length() const noexcept { return length_; }

  private:
    friend class RegionTable;
    std::uintptr_t base_ = 0;
    std::size_t length_ = 0;
    utofu_stadd_t stadd_ = 0; ///< with this VCQ; meaningless unless reachable_
    unsigned vcq_number_ = 0; ///< 0: the target VCQ, else an overflow VCQ
    std::uint8_t before_ = 0; ///< bytes before the region that are registered with it, and
    std::uint8_t behind_ = 0; ///< behind it (RegionTable::register_alone)
    std::uint64_t access_ = 0;
    bool reachable_ = false;
    bool published_ = false; ///< has an entry in the directory
    RmaEventBinding target_;
};

// --- Descs: the open regions of a domain by their local descriptors (fi_mr_desc)

/// Any thread. A region that find() has returned stays as long as the lock of a LocalMemory that RegionTable knows is
/// held: a region that is closed is removed here first, and then forgotten by each LocalMemory under its lock.
class Descs {
  public:
    /// False: no memory.
    [[nodiscard]] bool add(const MemoryRegion& region) noexcept
    {
        std::lock_guard guard(mutex_);
        return allocates([&] { regions_.emplace(region.mem_desc, &region); });
    }
    void remove(const MemoryRegion& region) noexcept
    {
        std::lock_guard guard(mutex_);
        regions_.erase(region.mem_desc);
    }
    /// The open region of the domain that has this desc, or null. The desc is compared, never followed.
    [[nodiscard]] const MemoryRegion* find(const void* desc) const noexcept
    {
        std::lock_guard guard(mutex_);
        const auto found = regions_.find(desc);
        return found != regions_.end() ? found->second : nullptr;
    }

  private:
    mutable Mutex mutex_;
    Map<const void*, const MemoryRegion*> regions_;
};

// --- OverflowVcqs: a VCQ has some 6144 steering tags. When those of the target VCQ are used up, the domain opens a
// further VCQ, an overflow VCQ, and so on as long as the node has any. The RegionTable asks for them under the target
// lock.
//
// An overflow VCQ has the domain's directory memory under the same reserved STag as the target VCQ. By the nonce there
// a peer recognises the domain, and the lock words of wide atomics are the same words through either VCQ. A region in
// an overflow VCQ is found only through the directory, with either kind of keys. An overflow VCQ stays until the domain
// is closed: peers remember its ID, which another process must not get.

class DomainBase;
class RegionTable;

class OverflowVcqs {
  public:
    OverflowVcqs(DomainBase& domain, RegionTable& regions) noexcept : domain_(domain), regions_(regions) {}

    /// Closes the overflow VCQs. All regions have been deregistered.
    void close() noexcept;

    /// Registers with the first VCQ, from `number` on, that has a tag left. `number`: 0 for the target VCQ, or the
    /// number of the overflow VCQ. 0 or -FI_E* (-FI_ENOSPC: none has, and there is no further one).
    [[nodiscard]] int reg(const void* address, std::size_t size, bool read_only, unsigned& number,
                          utofu_stadd_t& stadd) noexcept;
    void dereg(unsigned number, utofu_stadd_t stadd) noexcept;

    /// Hands the notices of the overflow VCQs to the region table. True if there were some.
    bool poll() noexcept
    {
        bool some = false;
        for (unsigned i = 0; i < count_; i++)
            some |= vcqs_[i]->vcq.poll() != 0;
        return some;
    }
    /// Writes the handles of the overflow VCQs, at most `most`, and returns how many.
    [[nodiscard]] std::size_t handles(utofu_vcq_hdl_t* to, std::size_t most) const noexcept;

  private:
    struct OverflowVcq {
        OverflowVcqs* owner;
        unsigned number; ///< from 1 on
        vcq::Vcq vcq;
    };
    [[nodiscard]] vcq::Vcq& vcq_of(unsigned number) noexcept;
    [[nodiscard]] int add() noexcept;
    void announce(const OverflowVcq& overflow) noexcept;
    static void on_remote(void* overflow, const vcq::RemoteNotice& notice) noexcept;

    DomainBase& domain_;
    RegionTable& regions_;
    unsigned count_ = 0;
    unsigned first_with_free_stag_ = 0; ///< all VCQs with lower numbers are full
    std::unique_ptr<OverflowVcq> vcqs_[directory::max_overflow_vcqs];
};

// --- RegionTable: the regions of a domain: how peers reach each, and which accesses of peers it counts

/// The regions of one domain. Slow path; its functions take the domain's target lock unless they say otherwise.
class RegionTable {
  public:
    explicit RegionTable(DomainBase& domain) noexcept;
    ~RegionTable() { close(); }
    /// Registers the directory under its STag; the target VCQ is open. 0 or -FI_E*.
    [[nodiscard]] int open() noexcept;
    /// Called before the target VCQ is closed. All regions have been closed.
    void close() noexcept;

    /// Takes a notice of the target VCQ (`target_vcq` 0) that belongs to no message area, or of an overflow VCQ: counts
    /// the event for the region that it hit, and for endpoints. Under the target lock.
    void remote_event(unsigned vcq_number, const vcq::RemoteNotice& notice) noexcept;

    /// The further VCQs of the domain; under the target lock.
    [[nodiscard]] OverflowVcqs& overflow() noexcept { return overflow_; }

    /// The directory that peers read; under the target lock.
    [[nodiscard]] OwnDirectory& directory() noexcept { return directory_; }

    /// Adds a LocalMemory, which is notified of each closed region, to end its registration. 0 or -FI_ENOMEM.
    [[nodiscard]] int attach(LocalMemory& memory, Lock& lock) noexcept;
    void detach(LocalMemory& memory) noexcept;

    /// The open regions by what applications pass to name them.
    [[nodiscard]] const Descs& descs() const noexcept { return descs_; }

    // --- regions (api/mr_calls.cc)
    /// Gives a new region what `attr` asks for. 0 or -FI_E*.
    [[nodiscard]] int add(MemoryRegion& region, const fi_mr_attr& attr) noexcept;
    /// Removes a region: from now on no peer reaches it, and no LocalMemory has a registration of it.
    void remove(MemoryRegion& region) noexcept;
    /// Lets the region count events of these rights by a counter. 0, or -FI_EINVAL: one of them has another counter.
    [[nodiscard]] int bind(MemoryRegion& region, Counter& counter, std::uint64_t rights) noexcept;
    /// From now on only the endpoint of this number counts the events of the region.
    void bind(MemoryRegion& region, unsigned endpoint) noexcept;
    /// A counter is about to be closed: events of regions that were closed before are not counted by it any more.
    void forget_counter(const Counter& counter) noexcept;

    // --- endpoints that count peers' accesses, by their numbers
    void add_endpoint(unsigned number, const RxCounters& counters) noexcept;
    /// What peers have done so far is still counted.
    void remove_endpoint(unsigned number) noexcept;
    /// From now on the endpoint counts the events of regions that are bound to no endpoint.
    void count_everything(unsigned number) noexcept;

    // --- what peers read of endpoints: `count` numbers from `first` on, and the nonce of the address
    void show_endpoint(unsigned first, unsigned count, std::uint64_t nonce) noexcept;
    /// Called when all posts of the endpoint have ended.
    void hide_endpoint(unsigned first, unsigned count, std::uint64_t nonce) noexcept;

  private:
    struct User {
        LocalMemory* memory;
        Lock* lock;

        friend bool operator==(const User& a, const User& b) noexcept { return a.memory == b.memory; }
    };
    /// True if peers reach it. A region without bytes has no address; RMA of no bytes asks for no key.
    [[nodiscard]] static bool needs_address(const MemoryRegion& region) noexcept
    {
        return (region.access_ & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0 && region.length_ != 0;
    }
    [[nodiscard]] int reach(MemoryRegion& region) noexcept;
    [[nodiscard]] int register_alone(MemoryRegion& region) noexcept;
    [[nodiscard]] bool shares_tag(const MemoryRegion& region) const noexcept;
    [[nodiscard]] int assign_key(MemoryRegion& region) noexcept;
    void part(MemoryRegion& region) noexcept;
    void drain_events() noexcept;
    void remember(MemoryRegion& region) noexcept;
    void count(const RmaEventBinding& target, bool reads, bool writes, bool further) const noexcept;
    [[nodiscard]] const RmaEventBinding* target_at(unsigned vcq_number, utofu_stadd_t first,
                                                   utofu_stadd_t last) noexcept;
    [[nodiscard]] std::uint64_t stadd_offset_of(const MemoryRegion& region) const noexcept;

    /// A STADD, and the number of the VCQ that it belongs to.
    using Location = std::pair<unsigned, utofu_stadd_t>;
    /// A region that has been closed. An event that peers caused before may still come.
    struct Closed {
        unsigned vcq_number = 0;
        utofu_stadd_t stadd = 0;
        std::size_t length = 0;
        RmaEventBinding target;
    };
    static constexpr unsigned most_closed = 256;

    DomainBase& domain_;
    OwnDirectory directory_;
    OverflowVcqs overflow_;
    KeyReaders key_readers_;
    Mutex open_mutex_;       ///< a region that peers reach is opened at a time. Taken before the target lock
    bool withdrawn_ = false; ///< a region in the directory has been closed since keys were last revoked
    Map<std::uint64_t, MemoryRegion*> by_key_;      ///< keys of the user
    MultiMap<Location, MemoryRegion*> by_location_; ///< regions that peers may reach
    Descs descs_;
    std::size_t longest_ = 0; ///< bytes of the longest region ever; bounds the search for the region of an address
    EventCounters events_;
    Closed closed_[most_closed]; ///< the latest; in a ring
    unsigned next_closed_ = 0;
    Array<User> users_;
    Mutex users_lock_;
    std::uint64_t next_indirect_ = directory::indirect_bit; ///< keys of the provider's choice that are no STADD offset
};

} // namespace tofu
