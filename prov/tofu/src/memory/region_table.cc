// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The owner's side of the directory of regions: entries go in and out, the second table grows. Called by
// region.cc under the home lock; calls vcq. Readers are peers' TNIs, at any time.
#include <atomic>
#include <cstring>
#include <utility>

#include <rdma/fi_errno.h>

#include "address/address.h"
#include "memory/event_pool.h"
#include "memory/region.h"
#include "progress/domain_base.h"
#include "provider/log.h"

namespace tofu {

using directory::Bucket;
using directory::Entry;

namespace {

/// A word that peers may read by Get while it is written: never torn itself.
template <class T>
void put_word(T& word, T value, std::memory_order order = std::memory_order_relaxed) noexcept
{
    std::atomic_ref<T>(word).store(value, order); // partner: Get of RemoteKeys::start, by its check
}

static_assert(table_stag(directory::first_log2 + 1) > endpoint_stag(max_endpoints - 1) &&
              table_stag(directory::max_log2) < 256);

constexpr unsigned choices_in(unsigned log2) noexcept
{
    return log2 == directory::first_log2 ? 1 : directory::choices;
}

directory::DoorsLine& doors_line(const OwnMemory& area) noexcept
{
    return *reinterpret_cast<directory::DoorsLine*>(area.get() + directory::doors_offset);
}

} // namespace

RegionTable::RegionTable(DomainBase& domain) noexcept : domain_(domain), annexes_(domain, *this) {}

RegionTable::~RegionTable() { close(); }

int RegionTable::open() noexcept
{
    Table first;
    if (int ret = make_table(directory::first_log2, first); ret != 0)
        return ret;
    if (!tables_.push(std::move(first)))
        return -FI_ENOMEM;
    point_to({});
    contacts()->nonce = domain_.nonce(); // before any peer can see it
    doors_line(tables_[0].memory).nonce = domain_.nonce();
    event_pool().store(event_pool::word(domain_.nonce(), event_pool::capacity()), std::memory_order_relaxed);
    const OwnMemory& area = tables_[0].memory;
    if (int ret = domain_.home().reg_with_stag(area.get(), area.size(), directory_stag, tables_[0].stadd); ret != 0) {
        tables_.clear();
        return ret;
    }
    annexes_.open(area.get());
    return 0;
}

void RegionTable::point_to_doors(utofu_stadd_t stadd) noexcept
{
    directory::DoorsLine& line = doors_line(tables_[0].memory);
    put_word(line.stadd, std::uint64_t{stadd});
    // Partner: Get of coll::Group::look, by its check.
    put_word(line.check, directory::check_of_doors(stadd, line.nonce), std::memory_order_release);
}

directory::Contacts* RegionTable::contacts() const noexcept
{
    return reinterpret_cast<directory::Contacts*>(tables_[0].memory.get() + directory::contacts_offset);
}

std::atomic_ref<std::uint64_t> RegionTable::event_pool() const noexcept
{
    return std::atomic_ref<std::uint64_t>(
        *reinterpret_cast<std::uint64_t*>(tables_[0].memory.get() + event_pool::offset));
}

void RegionTable::fill_pool() noexcept
{
    // release: partner of peers' ARMWs, with which it is atomic (guide 2.2.5); the entries are out of the MRQ
    event_pool().fetch_add(std::exchange(counted_events_, 0), std::memory_order_release);
}

std::atomic_ref<std::uint64_t> RegionTable::claims() const noexcept
{
    return std::atomic_ref<std::uint64_t>(contacts()->claims);
}

void RegionTable::close() noexcept
{
    annexes_.close();
    for (const Table& table : tables_)
        domain_.home().dereg(table.stadd);
    tables_.clear();
}

int RegionTable::make_table(unsigned log2, Table& table) const noexcept
{
    table.log2 = log2;
    table.memory = OwnMemory(log2 == directory::first_log2 ? directory::area_bytes : sizeof(Bucket) << log2);
    if (!table.memory)
        return -FI_ENOMEM;
    std::memset(table.memory.get(), 0, table.memory.size());
    table.buckets = reinterpret_cast<Bucket*>(table.memory.get());
    const std::uint32_t check = directory::check_of(0, 0, domain_.nonce());
    for (std::size_t i = 0; i < std::size_t{1} << log2; i++)
        table.buckets[i].next_check = check;
    return 0;
}

Entry* RegionTable::room(const Table& table, std::uint64_t key) noexcept
{
    Entry* found = nullptr;
    unsigned most = 0; // free ones beside it
    for (unsigned choice = 0; choice < choices_in(table.log2); choice++) {
        Bucket& bucket = table.buckets[directory::bucket_of(key, table.log2, choice)];
        Entry* first = nullptr;
        unsigned free = 0;
        for (Entry& entry : bucket.entry)
            if (entry.check == 0 && free++ == 0)
                first = &entry;
        if (free > most) {
            most = free;
            found = first;
        }
    }
    return found;
}

Entry* RegionTable::seek(const Table& table, std::uint64_t key) noexcept
{
    for (unsigned choice = 0; choice < choices_in(table.log2); choice++)
        for (Entry& entry : table.buckets[directory::bucket_of(key, table.log2, choice)].entry)
            if (entry.check != 0 && entry.key == key)
                return &entry;
    return nullptr;
}

/// The check goes last: an entry that is caught between is empty to its reader, or torn.
void RegionTable::store(Entry& to, const Entry& value) noexcept
{
    put_word(to.key, value.key);
    put_word(to.bias, value.bias);
    put_word(to.begin, value.begin);
    put_word(to.length, value.length);
    put_word(to.rights, value.rights);
    put_word(to.home, value.home);
    put_word(to.generation, value.generation);
    put_word(to.check, value.check, std::memory_order_release);
}

/// Tells every bucket of the first table where the second one is.
void RegionTable::point_to(const Table& second) noexcept
{
    const std::uint32_t check = directory::check_of(second.stadd, second.log2, domain_.nonce());
    const Table& first = tables_[0];
    for (std::size_t i = 0; i < std::size_t{1} << first.log2; i++) {
        Bucket& bucket = first.buckets[i];
        put_word(bucket.next_stadd, second.stadd);
        put_word(bucket.next_log2, second.log2);
        put_word(bucket.next_check, check, std::memory_order_release);
    }
}

bool RegionTable::refill(const Table& from, const Table& to) noexcept
{
    for (std::size_t i = 0; i < std::size_t{1} << from.log2; i++)
        for (const Entry& entry : from.buckets[i].entry) {
            if (entry.check == 0)
                continue;
            Entry* place = room(to, entry.key);
            if (place == nullptr)
                return false;
            *place = entry; // not reachable for anybody yet
        }
    return true;
}

int RegionTable::grow() noexcept
{
    if (!tables_.reserve(tables_.size() + 1))
        return -FI_ENOMEM;
    unsigned log2 = tables_.size() > 1 ? tables_.back().log2 + 1 : directory::first_log2 + 1;
    for (; log2 <= directory::max_log2; log2++) {
        Table table;
        if (int ret = make_table(log2, table); ret != 0)
            return ret;
        if (tables_.size() > 1 && !refill(tables_.back(), table))
            continue;
        // Reserved: regions may have used up all other tags.
        if (int ret = domain_.home().reg_with_stag(table.memory.get(), table.memory.size(), table_stag(log2),
                                                   table.stadd);
            ret != 0)
            return ret;
        tables_.push_reserved(std::move(table));
        point_to(tables_.back());
        return 0;
    }
    TOFU_WARN(FI_LOG_MR, "domain: the directory of regions is full: close regions\n");
    return -FI_ENOSPC;
}

int RegionTable::publish(MemoryRegion& region) noexcept
{
    Entry value{};
    value.key = region.key;
    value.bias = bias_of(region);
    value.begin = domain_.model().virtual_addresses ? region.base_ : 0;
    value.length = region.length_;
    value.rights = static_cast<std::uint16_t>(
        ((region.access_ & FI_REMOTE_READ) ? directory::right_read : 0) |
        ((region.access_ & FI_REMOTE_WRITE) ? directory::right_write : 0));
    value.home = static_cast<std::uint16_t>(region.home_);
    value.generation = ++generation_;
    value.check = directory::check_of(value, domain_.nonce());
    Entry* place = room(tables_[0], region.key);
    while (place == nullptr) {
        if (tables_.size() > 1)
            place = room(tables_.back(), region.key);
        if (place != nullptr)
            break;
        if (int ret = grow(); ret != 0)
            return ret;
    }
    store(*place, value);
    region.published_ = true;
    return 0;
}

void RegionTable::withdraw(const MemoryRegion& region) noexcept
{
    Entry* entry = seek(tables_[0], region.key);
    if (entry == nullptr && tables_.size() > 1)
        entry = seek(tables_.back(), region.key);
    if (entry != nullptr)
        put_word(entry->check, std::uint64_t{0}, std::memory_order_release);
}

std::uint64_t RegionTable::bias_of(const MemoryRegion& region) const noexcept
{
    return domain_.model().virtual_addresses ? region.stadd_ - region.base_ : region.stadd_;
}

} // namespace tofu
