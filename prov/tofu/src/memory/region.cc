// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_mr: the calls of the application (fi_mr(3)) and the remote events of regions. Called through region_ops
// and each region's table; calls the home VCQ under the home lock, and the directory (region_table.cc).
#include "memory/region.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

#include <rdma/fi_errno.h>

#include "endpoint/endpoint.h"
#include "object/domain.h"
#include "object/eq.h"
#include "provider/refusal.h"
#include "queue/cntr.h"

namespace tofu {

namespace {

constexpr std::uint64_t remote_rights = FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr std::uint64_t all_rights =
    remote_rights | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_COLLECTIVE;
/// What kinds of operations there are is no right, but programs name kinds beside the rights (LCI: FI_RMA).
constexpr std::uint64_t kinds = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
constexpr std::uintptr_t word_mask = 7;

/// Stands for an STADD of no region, and for a key that no directory lists: what is not reachable answers an error to
/// who guesses.
constexpr utofu_stadd_t nowhere = std::uint64_t{0xffffff} << 40;

MemoryRegion& region_of(struct fid* f) noexcept
{
    return MemoryRegion::of(reinterpret_cast<fid_mr*>(f));
}

extern "C" {

int tofu_mr_close(struct fid* f) noexcept;
int tofu_mr_bind(struct fid* f, struct fid* object, uint64_t flags) noexcept;
int tofu_mr_control(struct fid* f, int command, void* argument) noexcept;
int tofu_mr_reg(struct fid* f, const void* buf, size_t len, uint64_t access, uint64_t offset,
                uint64_t requested_key, uint64_t flags, struct fid_mr** mr, void* context) noexcept;
int tofu_mr_regv(struct fid* f, const struct iovec* iov, size_t count, uint64_t access,
                 uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr** mr,
                 void* context) noexcept;
int tofu_mr_regattr(struct fid* f, const struct fi_mr_attr* attr, uint64_t flags,
                    struct fid_mr** mr) noexcept;
}

fi_ops region_fid_ops = {sizeof(fi_ops), tofu_mr_close, tofu_mr_bind, tofu_mr_control,
                         refuses<-FI_ENOSYS>, nullptr, nullptr};

/// The raw key of a region is its key, and its base address (fi_mr_raw_attr).
int raw_attr(const MemoryRegion& region, struct fi_mr_raw_attr* attr) noexcept
{
    if (attr == nullptr || attr->key_size == nullptr)
        return -FI_EINVAL;
    const std::size_t room = *attr->key_size;
    *attr->key_size = sizeof(region.key);
    if (room < sizeof(region.key))
        return -FI_ETOOSMALL;
    if (attr->raw_key == nullptr || attr->base_addr == nullptr)
        return -FI_EINVAL;
    std::memcpy(attr->raw_key, &region.key, sizeof(region.key));
    *attr->base_addr = region.base();
    return 0;
}

} // namespace

// --- the calls

int RegionTable::reg(const fi_mr_attr& attr, std::uint64_t flags, fid_mr** mr) noexcept
{
    if (mr == nullptr || attr.iov_count != 1 || attr.mr_iov == nullptr || attr.offset != 0)
        return -FI_EINVAL;
    const auto base = reinterpret_cast<std::uintptr_t>(attr.mr_iov->iov_base);
    const std::size_t length = attr.mr_iov->iov_len;
    // The whole address space (0, SIZE_MAX) is not one registration of a TNI, and a range that wraps is none.
    if (length > SIZE_MAX / 2 || base + length < base || (attr.access & ~(all_rights | kinds)))
        return -FI_EINVAL;
    if (flags & ~FI_RMA_EVENT) // neither persistent memory nor that of devices is offered
        return -FI_EBADFLAGS;
    auto* region = new (std::nothrow) MemoryRegion;
    if (region == nullptr)
        return -FI_ENOMEM;
    region->fid.fclass = FI_CLASS_MR;
    region->fid.context = attr.context;
    region->fid.ops = &region_fid_ops;
    region->mem_desc = region;
    region->domain_ = &domain_;
    region->base_ = base;
    region->length_ = length;
    region->access_ = attr.access;
    region->key = attr.requested_key;
    std::lock_guard guard(domain_.home_lock());
    if (int ret = reach(*region); ret != 0) {
        delete region;
        return ret;
    }
    region->serial_ = next_serial_++;
    domain_.hold();
    *mr = region; // before the event can be read (fi_mr(3))
    if (EventQueue* const events = domain_.registration_events(); events != nullptr)
        events->post(FI_MR_COMPLETE, {&region->fid, attr.context, 0});
    return 0;
}

/// Gives the region its STADD and its key.
int RegionTable::reach(MemoryRegion& region) noexcept
{
    if (!domain_.model().provider_keys && by_key_->contains(region.key))
        return -FI_ENOKEY;
    if (!by_key_.ready() || !by_place_.ready())
        return -FI_ENOMEM;
    region.stadd_ = nowhere;
    // A region without bytes has no address; RMA of no bytes asks for no key.
    if ((region.access_ & remote_rights) && region.length_ != 0) {
        if (int ret = register_alone(region); ret != 0)
            return ret;
        region.reachable_ = true;
    }
    if (int ret = give_key(region); ret != 0) {
        if (region.reachable_)
            annexes_.dereg(region.home_, region.stadd_ - (region.base_ & word_mask));
        return ret;
    }
    if (!domain_.model().provider_keys)
        by_key_->emplace(region.key, &region);
    if (region.reachable_) {
        by_place_->emplace(Place{region.home_, region.stadd_}, &region);
        longest_ = std::max(longest_, region.length_);
    }
    return 0;
}

/// Memory that is registered already gets the same steering tag again (guide 3.6). With keys of the user's choice each
/// region has a tag for itself, at another VCQ if need be: else what peers remember of a key would go on reaching this
/// memory when its region is closed, or when the key is another region's.
int RegionTable::register_alone(MemoryRegion& region) noexcept
{
    // Whole words: atomics on 1 and 2 bytes are done on the aligned word around them.
    const std::uintptr_t first = region.base_ & ~word_mask;
    const std::uintptr_t end = (region.base_ + region.length_ + word_mask) & ~word_mask;
    const bool read_only = (region.access_ & FI_REMOTE_WRITE) == 0;
    for (region.home_ = 0;; region.home_++) {
        utofu_stadd_t stadd = 0;
        if (int ret = annexes_.reg(reinterpret_cast<const void*>(first), end - first, read_only, region.home_, stadd);
            ret != 0)
            return ret;
        region.stadd_ = stadd + (region.base_ - first);
        if (domain_.model().provider_keys || !shares_tag(region))
            return 0;
        annexes_.dereg(region.home_, stadd);
    }
}

/// Whether one that is open has the same distance between STADDs and addresses. No two of a home do, and STADDs of one
/// tag have no others between them: it would be next to it.
bool RegionTable::shares_tag(const MemoryRegion& region) const noexcept
{
    const auto same = [&](const auto& entry) {
        return entry.first.first == region.home_ &&
               entry.first.second - entry.second->base_ == region.stadd_ - region.base_;
    };
    const auto next = by_place_->lower_bound(Place{region.home_, region.stadd_});
    return (next != by_place_->end() && same(*next)) || (next != by_place_->begin() && same(*std::prev(next)));
}

/// A key of the user's choice goes into the directory, and one of ours where the bias alone does not say it: the VCQ is
/// not the one that peers know, the bias looks like such a key, or the region must not be read, which a TNI can't
/// refuse.
int RegionTable::give_key(MemoryRegion& region) noexcept
{
    bool listed = region.reachable_;
    if (domain_.model().provider_keys) {
        region.key = bias_of(region);
        listed = listed && (region.home_ != 0 || directory::is_listed(region.key) ||
                            (region.access_ & FI_REMOTE_READ) == 0);
        if (listed)
            region.key = next_listed_++; // never given to another: what is stale stays an error
    }
    return listed ? publish(region) : 0;
}

/// Undoes reach(): first nobody finds it any more, then nobody reaches it.
void RegionTable::part(const MemoryRegion& region) noexcept
{
    if (region.published_)
        withdraw(region);
    if (!domain_.model().provider_keys)
        by_key_->erase(region.key);
    if (!region.reachable_)
        return;
    auto [first, last] = by_place_->equal_range(Place{region.home_, region.stadd_});
    for (; first != last; ++first)
        if (first->second == &region) {
            by_place_->erase(first);
            break;
        }
    annexes_.dereg(region.home_, region.stadd_ - (region.base_ & word_mask));
}

int RegionTable::close(MemoryRegion& region) noexcept
{
    {
        std::lock_guard guard(domain_.home_lock());
        part(region);
    }
    {
        std::lock_guard guard(users_lock_);
        for (const User& user : users_) {
            std::lock_guard own(*user.lock);
            user.memory->forget(region.serial_);
        }
    }
    for (Counter* counter : {region.write_counter_, region.read_counter_})
        if (counter != nullptr)
            counter->release();
    domain_.release();
    delete &region;
    return 0;
}

int RegionTable::bind(MemoryRegion& region, struct fid* object, std::uint64_t flags) noexcept
{
    if (object == nullptr)
        return -FI_EINVAL;
    std::lock_guard guard(domain_.home_lock());
    switch (object->fclass) {
    case FI_CLASS_CNTR: {
        if ((flags & ~remote_rights) || flags == 0)
            return -FI_EBADFLAGS;
        Counter& counter = Counter::of(reinterpret_cast<fid_cntr*>(object));
        if (&counter.domain() != &domain_)
            return -FI_EDOMAIN;
        if (((flags & FI_REMOTE_WRITE) && region.write_counter_ != nullptr) ||
            ((flags & FI_REMOTE_READ) && region.read_counter_ != nullptr))
            return -FI_EINVAL;
        if (flags & FI_REMOTE_WRITE) {
            region.write_counter_ = &counter;
            counter.hold();
        }
        if (flags & FI_REMOTE_READ) {
            region.read_counter_ = &counter;
            counter.hold();
        }
        return 0;
    }
    case FI_CLASS_EP: {
        Endpoint& endpoint = Endpoint::of(reinterpret_cast<fid_ep*>(object));
        if (&endpoint.domain() != &domain_)
            return -FI_EINVAL;
        region.endpoint_ = &endpoint;
        region.endpoint_number_ = endpoint.index();
        return 0;
    }
    default:
        return -FI_EINVAL;
    }
}

// --- remote events

void RegionTable::remote_event(unsigned home, const vcq::RemoteNotice& notice) noexcept
{
    counted_events_++; // whatever it hit: it has left the MRQ
    // Put and Get name the end of their bytes, ARMW the start (guide 3.7.6.1): that of the aligned word
    // around the element, which may begin before the region; the element begins in its first four bytes.
    const bool word = notice.type == UTOFU_MRQ_TYPE_RMT_ARMW;
    const utofu_stadd_t first = word ? notice.stadd : notice.stadd - 1;
    const utofu_stadd_t last = word ? notice.stadd + 3 : first;
    // Regions may lie within each other: that which begins last of those that reach so far.
    const MemoryRegion* hit = nullptr;
    for (auto it = by_place_->upper_bound(Place{home, last}); it != by_place_->begin() && hit == nullptr;) {
        const MemoryRegion& before = *(--it)->second;
        const bool inside = first < before.stadd_ || first - before.stadd_ < before.length_;
        if (before.home_ != home || (!inside && first - before.stadd_ >= longest_))
            return;
        hit = inside ? &before : nullptr;
    }
    if (hit == nullptr)
        return;
    const MemoryRegion& region = *hit;
    // The end of an atomic that fetched, and wrote (AtomicEvent::fetch): both for the region.
    const bool fetched = word && notice.unattended;
    const bool reads = fetched || notice.type == UTOFU_MRQ_TYPE_RMT_GET;
    const bool writes = notice.type != UTOFU_MRQ_TYPE_RMT_GET;
    if (reads && region.read_counter_ != nullptr)
        region.read_counter_->count();
    if (writes && region.write_counter_ != nullptr)
        region.write_counter_->count();
    if (region.endpoint_ != nullptr) {
        if (domain_.endpoint_at(region.endpoint_number_) == region.endpoint_)
            region.endpoint_->rma_event(reads);
        return;
    }
    domain_.rma_event(reads);
}

int RegionTable::attach(LocalMemory& memory, Lock& lock) noexcept
{
    std::lock_guard guard(users_lock_);
    return users_.push({&memory, &lock}) ? 0 : -FI_ENOMEM;
}

void RegionTable::detach(LocalMemory& memory) noexcept
{
    std::lock_guard guard(users_lock_);
    users_.erase({&memory, nullptr});
}

RegionTable& RegionTable::of(const MemoryRegion& region) noexcept
{
    return region.domain_->regions();
}

// --- the shims

namespace {

extern "C" {

int tofu_mr_close(struct fid* f) noexcept
{
    MemoryRegion& region = region_of(f);
    return RegionTable::of(region).close(region);
}

int tofu_mr_bind(struct fid* f, struct fid* object, uint64_t flags) noexcept
{
    MemoryRegion& region = region_of(f);
    return RegionTable::of(region).bind(region, object, flags);
}

int tofu_mr_control(struct fid* f, int command, void* argument) noexcept
{
    switch (command) {
    case FI_ENABLE:  // regions can be used from their registration on
    case FI_REFRESH: // the pages behind a region follow the address space by themselves
        return 0;
    case FI_GET_RAW_MR:
        return raw_attr(region_of(f), static_cast<struct fi_mr_raw_attr*>(argument));
    default:
        return -FI_ENOSYS;
    }
}

int tofu_mr_regattr(struct fid* f, const struct fi_mr_attr* attr, uint64_t flags,
                    struct fid_mr** mr) noexcept
{
    if (f == nullptr || f->fclass != FI_CLASS_DOMAIN || attr == nullptr)
        return -FI_EINVAL;
    return Domain::of(reinterpret_cast<fid_domain*>(f)).regions().reg(*attr, flags, mr);
}

int tofu_mr_regv(struct fid* f, const struct iovec* iov, size_t count, uint64_t access,
                 uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr** mr,
                 void* context) noexcept
{
    fi_mr_attr attr{};
    attr.mr_iov = iov;
    attr.iov_count = count;
    attr.access = access;
    attr.offset = offset;
    attr.requested_key = requested_key;
    attr.context = context;
    return tofu_mr_regattr(f, &attr, flags, mr);
}

int tofu_mr_reg(struct fid* f, const void* buf, size_t len, uint64_t access, uint64_t offset,
                uint64_t requested_key, uint64_t flags, struct fid_mr** mr, void* context) noexcept
{
    const iovec iov{const_cast<void*>(buf), len};
    return tofu_mr_regv(f, &iov, 1, access, offset, requested_key, flags, mr, context);
}
}

} // namespace

fi_ops_mr region_ops = {sizeof(fi_ops_mr), tofu_mr_reg, tofu_mr_regv, tofu_mr_regattr};

} // namespace tofu
