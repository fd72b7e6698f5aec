// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See own_directory.h. Readers are peers' TNIs, at any time.
#include "mem/own_directory.h"

#include <atomic>
#include <cstring>
#include <utility>

#include <rdma/fi_errno.h>

#include "av/address.h"
#include "core/log.h"
#include "cq/domain_base.h"
#include "mem/event_pool.h"

namespace tofu {

using directory::Bucket;
using directory::Entry;

namespace {

/// Writes a word that peers may read by Get at the same time; the word itself is never torn.
template <class T>
void put_word(T& word, T value, std::memory_order order = std::memory_order_relaxed) noexcept
{
    std::atomic_ref<T>(word).store(value, order); // partner: Get of RemoteKeys::ask, by its check
}

static_assert(table_stag(directory::first_log2 + 1) > further_stag(growing_endpoints - 1) &&
              table_stag(directory::max_log2) < 256);

constexpr unsigned choices_in(unsigned log2) noexcept
{
    return log2 == directory::first_log2 ? 1 : directory::choices;
}

} // namespace

int OwnDirectory::open() noexcept
{
    Table first;
    if (int ret = make_table(directory::first_log2, first); ret != 0)
        return ret;
    if (!tables_.push(std::move(first)))
        return -FI_ENOMEM;
    point_to({});
    // before any peer can see it
    at<directory::Contacts>(directory::contacts_offset).nonce = domain_.nonce();
    at<directory::DoorsLine>(directory::doors_offset).nonce = domain_.nonce();
    at<std::uint64_t>(event_pool::offset) = event_pool::word(domain_.nonce(), event_pool::capacity());
    const int ret = domain_.home().reg_with_stag(area(), directory::area_bytes, directory_stag, tables_[0].stadd);
    if (ret != 0)
        tables_.clear();
    return ret;
}

void OwnDirectory::close() noexcept
{
    for (const Table& table : tables_)
        domain_.home().dereg(table.stadd);
    tables_.clear();
}

void OwnDirectory::point_to_doors(utofu_stadd_t stadd) noexcept
{
    auto& line = at<directory::DoorsLine>(directory::doors_offset);
    put_word(line.stadd, std::uint64_t{stadd});
    // Partner: Get of coll::Search::look, by its check.
    put_word(line.check, directory::check_of_doors(stadd, line.nonce), std::memory_order_release);
}

void OwnDirectory::refill_pool() noexcept
{
    // release: partner of peers' ARMWs, with which it is atomic (guide 2.2.5); the entries are out of the MRQ
    std::atomic_ref(at<std::uint64_t>(event_pool::offset)).fetch_add(std::exchange(counted_events_, 0), std::memory_order_release);
}

int OwnDirectory::make_table(unsigned log2, Table& table) const noexcept
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

Entry* OwnDirectory::room(const Table& table, std::uint64_t key) noexcept
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

Entry* OwnDirectory::seek(const Table& table, std::uint64_t key) noexcept
{
    for (unsigned choice = 0; choice < choices_in(table.log2); choice++)
        for (Entry& entry : table.buckets[directory::bucket_of(key, table.log2, choice)].entry)
            if (entry.check != 0 && entry.key == key)
                return &entry;
    return nullptr;
}

/// Writes the check last: a reader of a half written entry finds it empty, or torn.
void OwnDirectory::store(Entry& to, const Entry& value) noexcept
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
void OwnDirectory::point_to(const Table& second) noexcept
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

bool OwnDirectory::refill(const Table& from, const Table& to) noexcept
{
    for (std::size_t i = 0; i < std::size_t{1} << from.log2; i++)
        for (const Entry& entry : from.buckets[i].entry) {
            if (entry.check == 0)
                continue;
            Entry* place = room(to, entry.key);
            if (place == nullptr)
                return false;
            *place = entry; // no peer can reach it yet
        }
    return true;
}

int OwnDirectory::grow() noexcept
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

int OwnDirectory::publish(Entry entry) noexcept
{
    entry.generation = ++generation_;
    entry.check = directory::check_of(entry, domain_.nonce());
    Entry* place = room(tables_[0], entry.key);
    while (place == nullptr) {
        if (tables_.size() > 1)
            place = room(tables_.back(), entry.key);
        if (place != nullptr)
            break;
        if (int ret = grow(); ret != 0)
            return ret;
    }
    store(*place, entry);
    return 0;
}

void OwnDirectory::withdraw(std::uint64_t key) noexcept
{
    Entry* entry = seek(tables_[0], key);
    if (entry == nullptr && tables_.size() > 1)
        entry = seek(tables_.back(), key);
    if (entry != nullptr)
        put_word(entry->check, std::uint64_t{0}, std::memory_order_release);
}

} // namespace tofu
