// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How peers reach a region, and the accesses that it counts: steering tags, keys, remote events. See mr.h.
#include "mem/mr.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <rdma/fi_errno.h>

#include "cq/domain_base.h"
#include "mem/mr_directory.h"

namespace tofu {

namespace {

constexpr std::uint64_t remote_rights = FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr std::uintptr_t word_mask = 7;

/// Stands for a STADD of no region, and for a key that no directory lists: a peer that guesses it gets an error.
constexpr utofu_stadd_t nowhere = std::uint64_t{0xffffff} << 40;

} // namespace

RegionTable::RegionTable(DomainBase& domain) noexcept
    : domain_(domain), directory_(domain), overflow_(domain, *this), key_readers_(domain)
{
}

RegionTable::~RegionTable()
{
    close();
}

int RegionTable::open() noexcept
{
    // Keys of two domains differ, so that one that is used at the wrong domain is refused.
    next_indirect_ = directory::indirect_bit | (domain_.nonce() << 24 & ~directory::indirect_bit);
    const int ret = directory_.open();
    if (ret == 0)
        overflow_.open(directory_.area());
    return ret;
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
    std::lock_guard guard(domain_.home_lock());
    if (int ret = reach(region); ret != 0)
        return ret;
    if (descs_.add(region))
        return 0;
    part(region);
    return -FI_ENOMEM;
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
        // The library may have given it the STADD of a region that was closed, and of which peers have cached the
        // entry.
        if (withdrawn_) {
            withdrawn_ = false;
            key_readers_.revoke();
        }
    }
    if (int ret = give_key(region); ret != 0) {
        if (region.reachable_)
            overflow_.dereg(region.vcq_number_, region.stadd_ - region.before_);
        return ret;
    }
    if (!domain_.model().provider_keys)
        by_key_->emplace(region.key, &region);
    if (region.reachable_) {
        by_place_->emplace(Place{region.vcq_number_, region.stadd_}, &region);
        longest_ = std::max(longest_, region.length_);
    }
    return 0;
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
    const auto next = by_place_->lower_bound(Place{region.vcq_number_, region.stadd_});
    return (next != by_place_->end() && same(*next)) || (next != by_place_->begin() && same(*std::prev(next)));
}

/// Enters the region into the directory if its key is the user's choice, or if a bias does not suffice as a key: the
/// VCQ is not the one that peers know, the bias looks like a indirect key, the region must not be read, which a TNI
/// cannot refuse, or more is registered than the region. An initiator that looks the key up finds rights and bounds.
int RegionTable::give_key(MemoryRegion& region) noexcept
{
    bool indirect = region.reachable_;
    if (domain_.model().provider_keys) {
        region.key = bias_of(region);
        indirect = indirect && (region.vcq_number_ != 0 || directory::is_indirect(region.key) ||
                                (region.access_ & FI_REMOTE_READ) == 0 || (region.before_ | region.behind_) != 0);
        if (indirect)
            region.key = next_indirect_++; // never reused, so a stale key stays an error
    }
    if (!indirect)
        return 0;
    directory::Entry entry{};
    entry.key = region.key;
    entry.bias = bias_of(region);
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
    if (!domain_.model().provider_keys)
        by_key_->erase(region.key);
    if (!region.reachable_)
        return;
    overflow_.dereg(region.vcq_number_, region.stadd_ - region.before_);
    if (!region.target_.empty() || events_.any()) {
        take_events();
        remember(region);
    }
    auto [first, last] = by_place_->equal_range(Place{region.vcq_number_, region.stadd_});
    for (; first != last; ++first)
        if (first->second == &region) {
            by_place_->erase(first);
            break;
        }
}

void RegionTable::remove(MemoryRegion& region) noexcept
{
    {
        std::lock_guard guard(domain_.home_lock());
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
    std::lock_guard guard(domain_.home_lock());
    EventTarget& target = region.target_;
    if (((rights & FI_REMOTE_WRITE) && target.write_counter != nullptr) ||
        ((rights & FI_REMOTE_READ) && target.read_counter != nullptr))
        return -FI_EINVAL;
    take_events();
    if (rights & FI_REMOTE_WRITE)
        target.write_counter = &counter;
    if (rights & FI_REMOTE_READ)
        target.read_counter = &counter;
    return 0;
}

void RegionTable::bind(MemoryRegion& region, unsigned endpoint) noexcept
{
    std::lock_guard guard(domain_.home_lock());
    take_events();
    region.target_.endpoint = endpoint;
    region.target_.serial = events_.serial(endpoint);
}

void RegionTable::add_endpoint(unsigned number, const RxCounters& counters) noexcept
{
    std::lock_guard guard(domain_.home_lock());
    events_.add(number, counters);
}

void RegionTable::remove_endpoint(unsigned number) noexcept
{
    std::lock_guard guard(domain_.home_lock());
    take_events();
    events_.remove(number);
}

void RegionTable::count_everything(unsigned number) noexcept
{
    std::lock_guard guard(domain_.home_lock());
    take_events();
    events_.count_everything(number);
}

// --- remote events
//
// An event belongs to what was open and bound when the access took effect, not when its notice is read. So what is in
// the MRQs is taken before anything of that changes. No document says that a notice can be read as soon as its access
// has taken effect: one that comes later still finds a region that was closed meanwhile among the latest closed ones.

/// Counts what peers have done so far. Polls may find a notice later than it came, so one that finds nothing proves
/// little; and a peer can send notices for ever, so no more are taken than all queues hold.
void RegionTable::take_events() noexcept
{
    constexpr unsigned polls_without_news = 64;
    std::int64_t polls = event_pool::capacity();
    for (unsigned silent = 0; silent < polls_without_news && polls != 0; polls--) {
        const bool home = domain_.home().poll() != 0;
        const bool others = overflow_.poll();
        silent = home || others ? 0 : silent + 1;
    }
    directory_.return_credits();
}

void RegionTable::remember(MemoryRegion& region) noexcept
{
    closed_[next_closed_++ % most_closed] = {region.vcq_number_, region.stadd_, region.length_,
                                             std::move(region.target_)};
}

void RegionTable::let_go(const Counter& counter) noexcept
{
    std::lock_guard guard(domain_.home_lock());
    for (Closed& closed : closed_)
        for (Held<Counter>* held : {&closed.target.write_counter, &closed.target.read_counter})
            if (*held == &counter)
                *held = nullptr;
}

/// `further`: the operation is counted for endpoints by another event.
void RegionTable::count(const EventTarget& target, bool reads, bool writes, bool further) const noexcept
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
    if (const EventTarget* const target = target_at(vcq_number, first, last); target != nullptr)
        count(*target, reads, notice.type != UTOFU_MRQ_TYPE_RMT_GET, notice.further);
}

/// What counts an access whose bytes end or begin in [first, last]; null: nothing does. Regions may lie within each
/// other: takes the one that begins last among those that reach so far.
const EventTarget* RegionTable::target_at(unsigned vcq_number, utofu_stadd_t first, utofu_stadd_t last) noexcept
{
    const auto inside = [first](utofu_stadd_t begin, std::size_t length) {
        return first < begin || first - begin < length;
    };
    for (auto it = by_place_->upper_bound(Place{vcq_number, last}); it != by_place_->begin();) {
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

std::uint64_t RegionTable::bias_of(const MemoryRegion& region) const noexcept
{
    return domain_.model().virtual_addresses ? region.stadd_ - region.base_ : region.stadd_;
}

} // namespace tofu
