// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How peers reach a region, and the accesses that it counts: steering tags, keys, remote events. See mr.h.
#include "mem/mr.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <new>

#include <rdma/fi_errno.h>

#include "av/address.h"
#include "core/log.h"
#include "cq/domain_base.h"

namespace tofu {

constexpr std::uintptr_t word_mask = 7;

/// Stands for a STADD of no region, and for a key that no directory lists: a peer that guesses it gets an error.
constexpr utofu_stadd_t nowhere = std::uint64_t{0xffffff} << 40;

RegionTable::RegionTable(DomainBase& domain) noexcept
    : domain_(domain), directory_(domain), overflow_(domain, *this), key_readers_(domain)
{
}

int RegionTable::open() noexcept
{
    // Keys of two domains differ, so that one that is used at the wrong domain is refused.
    next_indirect_ = directory::indirect_bit | (domain_.nonce() << 24 & ~directory::indirect_bit);
    return directory_.open();
}

void RegionTable::close() noexcept
{
    overflow_.close();
    directory_.close();
}

// --- opening and closing regions

int RegionTable::add(MemoryRegion& region, const fi_mr_attr& attr) noexcept
{
    region.base_ = reinterpret_cast<std::uintptr_t>(attr.mr_iov->iov_base);
    region.length_ = attr.mr_iov->iov_len;
    region.access_ = attr.access;
    region.key = attr.requested_key;
    std::unique_lock turn(open_mutex_, std::defer_lock);
    if (needs_address(region))
        turn.lock();
    std::lock_guard guard(domain_.target_lock());
    int ret = reach(region);
    if (ret == 0 && !descs_.add(region))
        ret = -FI_ENOMEM;
    if (ret != 0)
        part(region);
    return ret;
}

/// Gives the region its STADD and its key. After an error part() takes back what it has.
int RegionTable::reach(MemoryRegion& region) noexcept
{
    if (!domain_.model().provider_keys) {
        bool is_new = false; // from here on no other region can have the key
        if (!allocates([&] { is_new = by_key_.try_emplace(region.key, &region).second; }))
            return -FI_ENOMEM;
        if (!is_new)
            return -FI_ENOKEY;
    }
    region.stadd_ = nowhere;
    if (needs_address(region)) {
        if (int ret = register_alone(region); ret != 0)
            return ret;
        region.reachable_ = true;
        // The library may have given it the STADD of a region that was closed, and of which peers have cached the
        // entry. A region that another thread closes meanwhile had another STADD.
        if (withdrawn_) {
            withdrawn_ = false;
            key_readers_.revoke();
        }
    }
    if (int ret = assign_key(region); ret != 0)
        return ret;
    if (!region.reachable_)
        return 0;
    longest_ = std::max(longest_, region.length_);
    return allocates([&] {
        by_location_.emplace(Location{region.vcq_number_, region.stadd_}, &region);
    })
               ? 0
               : -FI_ENOMEM;
}

/// uTofu gives memory that is registered already the same steering tag again (guide 3.6). With keys of the user's
/// choice each region needs a tag of its own, at another VCQ if need be: else a key that peers remember would still
/// reach this memory when its region has been closed, or when the key belongs to another region.
int RegionTable::register_alone(MemoryRegion& region) noexcept
{
    // To the byte, unless peers may do atomics: those on 1 and 2 bytes are done on the aligned word around them. So is
    // the ARMW that leaves the event of a write at a further region (tx/remote_memory.h).
    if (domain_.model().whole_words) {
        region.before_ = static_cast<std::uint8_t>(region.base_ & word_mask);
        region.behind_ = static_cast<std::uint8_t>(-(region.base_ + region.length_) & word_mask);
    }
    const std::uintptr_t first = region.base_ - region.before_;
    const std::uintptr_t end = region.base_ + region.length_ + region.behind_;
    const bool read_only = (region.access_ & FI_REMOTE_WRITE) == 0;
    for (region.vcq_number_ = 0;; region.vcq_number_++) {
        utofu_stadd_t stadd = 0;
        if (int ret =
                overflow_.reg(reinterpret_cast<const void*>(first), end - first, read_only, region.vcq_number_, stadd);
            ret != 0)
            return ret;
        region.stadd_ = stadd + region.before_;
        if (domain_.model().provider_keys || !shares_tag(region))
            return 0;
        overflow_.dereg(region.vcq_number_, stadd);
    }
}

/// Does an open region have the same distance between STADDs and addresses? Within a VCQ the distance names the tag,
/// and the STADDs of a tag have no others between them: such a region would be the neighbour.
bool RegionTable::shares_tag(const MemoryRegion& region) const noexcept
{
    const auto same = [&](const auto& entry) {
        return entry.first.first == region.vcq_number_ &&
               entry.first.second - entry.second->base_ == region.stadd_ - region.base_;
    };
    const auto next = by_location_.lower_bound(Location{region.vcq_number_, region.stadd_});
    return (next != by_location_.end() && same(*next)) || (next != by_location_.begin() && same(*std::prev(next)));
}

/// Enters the region into the directory if its key is the user's choice, or if a STADD offset does not suffice as a
/// key: the VCQ is not the one that peers know, the STADD offset looks like an indirect key, the region must not be
/// read, which a TNI cannot refuse, or more is registered than the region. An initiator that looks the key up finds
/// rights and bounds.
int RegionTable::assign_key(MemoryRegion& region) noexcept
{
    bool indirect = region.reachable_;
    if (domain_.model().provider_keys) {
        region.key = stadd_offset_of(region);
        indirect = indirect && (region.vcq_number_ != 0 || directory::is_indirect(region.key) ||
                                (region.access_ & FI_REMOTE_READ) == 0 || (region.before_ | region.behind_) != 0);
        if (indirect)
            region.key = next_indirect_++; // never reused, so a stale key stays an error
    }
    if (!indirect)
        return 0;
    directory::Entry entry{};
    entry.key = region.key;
    entry.stadd_offset = stadd_offset_of(region);
    entry.begin = domain_.model().virtual_addresses ? region.base_ : 0;
    entry.length = region.length_;
    entry.rights = static_cast<std::uint16_t>(((region.access_ & FI_REMOTE_READ) ? directory::right_read : 0) |
                                              ((region.access_ & FI_REMOTE_WRITE) ? directory::right_write : 0));
    entry.vcq_number = static_cast<std::uint16_t>(region.vcq_number_);
    const int ret = directory_.publish(entry);
    region.published_ = ret == 0;
    return ret;
}

/// Undoes reach(): first no peer finds the region any more, then no peer reaches it, then what they have done before is
/// counted.
void RegionTable::part(MemoryRegion& region) noexcept
{
    if (region.published_) {
        directory_.withdraw(region.key);
        withdrawn_ = true;
    }
    if (const auto own = by_key_.find(region.key); own != by_key_.end() && own->second == &region)
        by_key_.erase(own);
    if (!region.reachable_)
        return;
    overflow_.dereg(region.vcq_number_, region.stadd_ - region.before_);
    if (!region.target_.empty() || events_.any()) {
        drain_events();
        remember(region);
    }
    auto [first, last] = by_location_.equal_range(Location{region.vcq_number_, region.stadd_});
    for (; first != last; ++first)
        if (first->second == &region) {
            by_location_.erase(first);
            break;
        }
}

void RegionTable::remove(MemoryRegion& region) noexcept
{
    {
        std::lock_guard guard(domain_.target_lock());
        part(region);
    }
    descs_.remove(region); // first: no LocalMemory finds it again after it has forgotten it
    std::lock_guard guard(users_lock_);
    for (const User& user : users_) {
        std::lock_guard own(*user.lock);
        user.memory->forget(region);
    }
}

int RegionTable::bind(MemoryRegion& region, Counter& counter, std::uint64_t rights) noexcept
{
    counter.count_remote_events();
    std::lock_guard guard(domain_.target_lock());
    RmaEventBinding& target = region.target_;
    if (((rights & FI_REMOTE_WRITE) && target.write_counter != nullptr) ||
        ((rights & FI_REMOTE_READ) && target.read_counter != nullptr))
        return -FI_EINVAL;
    drain_events();
    if (rights & FI_REMOTE_WRITE)
        target.write_counter = &counter;
    if (rights & FI_REMOTE_READ)
        target.read_counter = &counter;
    return 0;
}

void RegionTable::bind(MemoryRegion& region, unsigned endpoint) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    drain_events();
    region.target_.endpoint = endpoint;
    region.target_.serial = events_.serial(endpoint);
}

void RegionTable::add_endpoint(unsigned number, const RxCounters& counters) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    events_.add(number, counters);
}

void RegionTable::remove_endpoint(unsigned number) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    drain_events();
    events_.remove(number);
}

void RegionTable::count_everything(unsigned number) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    drain_events();
    events_.count_everything(number);
}

void RegionTable::show_endpoint(unsigned first, unsigned count, std::uint64_t nonce) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    directory_.show_endpoint(first, count, nonce);
}

void RegionTable::hide_endpoint(unsigned first, unsigned count, std::uint64_t nonce) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    directory_.hide_endpoint(first, count, nonce);
}

// --- remote events
//
// An event belongs to what was open and bound when the access took effect, not when its notice is read. So what is in
// the MRQs is taken before anything of that changes. No document says that a notice can be read as soon as its access
// has taken effect: one that comes later still finds a region that was closed meanwhile among the latest closed ones.

/// Counts what peers have done so far. Polls may find a notice later than it came, so one that finds nothing proves
/// little; and a peer can send notices for ever, so no more are taken than all queues hold.
void RegionTable::drain_events() noexcept
{
    constexpr unsigned polls_without_news = 64;
    std::int64_t polls = event_pool::capacity();
    for (unsigned silent = 0; silent < polls_without_news && polls != 0; polls--) {
        const bool target_vcq = domain_.target_vcq().poll() != 0;
        const bool others = overflow_.poll();
        silent = target_vcq || others ? 0 : silent + 1;
    }
    directory_.return_credits();
}

void RegionTable::remember(MemoryRegion& region) noexcept
{
    closed_[next_closed_++ % most_closed] = {region.vcq_number_, region.stadd_, region.length_,
                                             std::move(region.target_)};
}

void RegionTable::forget_counter(const Counter& counter) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    for (Closed& closed : closed_)
        for (Ref<Counter>* held : {&closed.target.write_counter, &closed.target.read_counter})
            if (*held == &counter)
                *held = nullptr;
}

/// `further`: the operation is counted for endpoints by another event.
void RegionTable::count(const RmaEventBinding& target, bool reads, bool writes, bool further) const noexcept
{
    if (reads && target.read_counter != nullptr)
        target.read_counter->count();
    if (writes && target.write_counter != nullptr)
        target.write_counter->count();
    if (further)
        return;
    if (target.serial == 0)
        events_.count(reads);
    else
        events_.count_for(target.endpoint, target.serial, reads);
}

void RegionTable::remote_event(unsigned vcq_number, const vcq::RemoteNotice& notice) noexcept
{
    directory_.count_event();
    // Put and Get name the end of their bytes, ARMW the start (guide 3.7.6.1): that of the aligned word
    // around the element, which may begin before the region; the element begins in its first four bytes.
    const bool word = notice.type == UTOFU_MRQ_TYPE_RMT_ARMW;
    const utofu_stadd_t first = word ? notice.stadd : notice.stadd - 1;
    const utofu_stadd_t last = word ? notice.stadd + 3 : first;
    // The end of an atomic that fetched and wrote (AtomicEvent::fetch) counts as both for the region.
    const bool reads = notice.type == UTOFU_MRQ_TYPE_RMT_GET || (word && notice.unsignaled);
    if (vcq_number == 0 && directory_.is_event_word(first)) { // of an operation without bytes that names no region
        events_.count(reads);
        return;
    }
    if (const RmaEventBinding* const target = target_at(vcq_number, first, last); target != nullptr)
        count(*target, reads, notice.type != UTOFU_MRQ_TYPE_RMT_GET, notice.further);
}

/// What counts an access whose bytes end or begin in [first, last]; null: nothing does. Regions may lie within each
/// other: takes the one that begins last among those that reach so far.
const RmaEventBinding* RegionTable::target_at(unsigned vcq_number, utofu_stadd_t first, utofu_stadd_t last) noexcept
{
    const auto inside = [first](utofu_stadd_t begin, std::size_t length) {
        return first < begin || first - begin < length;
    };
    for (auto it = by_location_.upper_bound(Location{vcq_number, last}); it != by_location_.begin();) {
        const MemoryRegion& before = *(--it)->second;
        if (before.vcq_number_ == vcq_number && inside(before.stadd_, before.length_))
            return &before.target_;
        if (before.vcq_number_ != vcq_number || first - before.stadd_ >= longest_)
            break;
    }
    for (unsigned i = 0; i < most_closed; i++) {
        const Closed& closed = closed_[(next_closed_ + most_closed - 1 - i) % most_closed];
        if (closed.length != 0 && closed.vcq_number == vcq_number && closed.stadd <= last &&
            inside(closed.stadd, closed.length))
            return &closed.target;
    }
    return nullptr;
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

std::uint64_t RegionTable::stadd_offset_of(const MemoryRegion& region) const noexcept
{
    return domain_.model().virtual_addresses ? region.stadd_ - region.base_ : region.stadd_;
}

// --- OverflowVcqs

vcq::Vcq& OverflowVcqs::vcq_of(unsigned number) noexcept
{
    return number == 0 ? domain_.target_vcq() : vcqs_[number - 1]->vcq;
}

int OverflowVcqs::reg(const void* address, std::size_t size, bool read_only, unsigned& number,
                      utofu_stadd_t& stadd) noexcept
{
    for (number = std::max(number, first_with_free_stag_);; number++) {
        if (number > count_)
            if (int ret = add(); ret != 0) {
                first_with_free_stag_ =
                    std::min(first_with_free_stag_, count_); // ask there again: the last one may get a tag back unseen
                return ret;
            }
        const int ret = vcq_of(number).reg(address, size, read_only, stadd);
        if (ret != -FI_ENOSPC)
            return ret;
        if (number == first_with_free_stag_)
            first_with_free_stag_++;
    }
}

void OverflowVcqs::dereg(unsigned number, utofu_stadd_t stadd) noexcept
{
    vcq_of(number).dereg(stadd);
    first_with_free_stag_ = std::min(first_with_free_stag_, number);
}

int OverflowVcqs::add() noexcept
{
    std::unique_ptr<OverflowVcq> made;
    int ret = -FI_ENOSPC;
    if (count_ < directory::max_overflow_vcqs) {
        made.reset(new (std::nothrow) OverflowVcq{this, count_ + 1, {}});
        if (made == nullptr)
            return -FI_ENOMEM;
        ret = domain_.vcqs().open(made->vcq, {.owner = made.get(), .remote = on_remote}, true);
    }
    utofu_stadd_t stadd = 0;
    if (ret == 0)
        ret = made->vcq.reg_with_stag(regions_.directory().area(), directory::area_bytes, directory_stag, stadd);
    if (ret != 0) {
        TOFU_WARN(FI_LOG_MR,
                  "domain: its %u VCQs have no free steering tag for a region, and no further VCQ can be opened (%s): "
                  "close regions, register larger ones, or run fewer processes per node\n",
                  count_ + 1, fi_strerror(-ret));
        return -FI_ENOSPC;
    }
    announce(*made);
    vcqs_[count_++] = std::move(made);
    // Threads that sleep until something arrives do not know this overflow VCQ yet.
    if (auto* wake = domain_.backend().functions().wake; wake != nullptr)
        wake();
    return 0;
}

/// Writes the check last, as in entries: a reader of a half written line finds that there is no overflow VCQ.
void OverflowVcqs::announce(const OverflowVcq& overflow) noexcept
{
    auto& line = regions_.directory().at<directory::OverflowEntry>(directory::overflow_offset(overflow.number));
    std::atomic_ref<utofu_vcq_id_t>(line.vcq).store(overflow.vcq.id(), std::memory_order_relaxed);
    // release: partner is the Get of RemoteKeys::read_directory
    std::atomic_ref<std::uint64_t>(line.check)
        .store(directory::check_of_overflow(overflow.vcq.id(), overflow.number, domain_.nonce()),
               std::memory_order_release);
}

void OverflowVcqs::close() noexcept
{
    for (; count_ != 0; count_--) {
        std::unique_ptr<OverflowVcq>& last = vcqs_[count_ - 1];
        utofu_stadd_t stadd = 0;
        if (last->vcq.query_stadd(last->vcq.id(), directory_stag, stadd) == 0)
            last->vcq.dereg(stadd);
        last.reset();
    }
    first_with_free_stag_ = 0;
}

std::size_t OverflowVcqs::handles(utofu_vcq_hdl_t* to, std::size_t most) const noexcept
{
    const std::size_t n = std::min<std::size_t>(count_, most);
    for (std::size_t i = 0; i < n; i++)
        to[i] = vcqs_[i]->vcq.handle();
    return n;
}

void OverflowVcqs::on_remote(void* overflow, const vcq::RemoteNotice& notice) noexcept
{
    const OverflowVcq& from = *static_cast<OverflowVcq*>(overflow);
    from.owner->regions_.remote_event(from.number, notice);
}

} // namespace tofu
