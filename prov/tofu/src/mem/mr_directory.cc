// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See mr_directory.h.
#include "mem/mr_directory.h"

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "cq/domain_base.h"
#include "mem/mr.h"

namespace tofu::directory {

// --- directory: the reader's side: checks, and the search in one bucket that was read by Get. A bucket may have any
// content.

std::uint64_t check_of(const Entry& entry, std::uint64_t nonce) noexcept
{
    std::uint64_t sum = mix(nonce + 0x7f4a7c15u);
    for (std::uint64_t word :
         {entry.key, entry.stadd_offset, entry.begin, entry.length,
          std::uint64_t{entry.vcq_number} << 48 | std::uint64_t{entry.rights} << 32 | entry.generation})
        sum = mix(sum ^ word) + 0x9e3779b97f4a7c15u;
    return sum != 0 ? sum : 1; // 0 marks an empty entry
}

std::uint32_t check_of(std::uint64_t next_stadd, std::uint32_t next_log2, std::uint64_t nonce) noexcept
{
    return static_cast<std::uint32_t>(mix(mix(nonce ^ next_stadd) + next_log2) | 1);
}

std::uint64_t check_of_overflow(utofu_vcq_id_t vcq, unsigned number, std::uint64_t nonce) noexcept
{
    const std::uint64_t sum = mix(mix(nonce ^ vcq) + number);
    return sum != 0 ? sum : 1; // 0 says that there is none
}

Found find(const Bucket& bucket, std::uint64_t key, std::uint64_t nonce, Entry& entry) noexcept
{
    bool torn =
        bucket.next_log2 > max_log2 || bucket.next_check != check_of(bucket.next_stadd, bucket.next_log2, nonce);
    for (const Entry& e : bucket.entry) {
        if (e.check == 0)
            continue;
        if (e.check != check_of(e, nonce)) {
            torn = true;
        } else if (e.key == key) {
            entry = e;
            return Found::entry;
        }
    }
    return torn ? Found::torn : Found::absent;
}

} // namespace tofu::directory

namespace tofu {

// --- event_pool: how many events an MRQ has room for

namespace event_pool {

std::int64_t entries_of(const char* text) noexcept
{
    static constexpr std::int64_t allowed[] = {2048, 8192, 32768, 131072, 524288, most_entries};
    static constexpr std::int64_t usual = 131072;
    if (text == nullptr || std::isdigit(static_cast<unsigned char>(*text)) == 0)
        return usual;
    char* end = nullptr;
    // A value above the largest one counts as the largest one, with any unit.
    std::int64_t value =
        static_cast<std::int64_t>(std::min<unsigned long long>(std::strtoull(text, &end, 10), most_entries));
    const int unit = std::tolower(static_cast<unsigned char>(end[0]));
    if ((unit == 'k' || unit == 'm') && std::tolower(static_cast<unsigned char>(end[1])) == 'i' && end[2] == 0)
        value *= unit == 'k' ? 1024 : 1024 * 1024;
    else if (unit != 0)
        return usual;
    // The nearest permitted value; the higher of two equally near ones (guide 4.3.2.3).
    return *std::min_element(std::begin(allowed), std::end(allowed), [&](std::int64_t a, std::int64_t b) {
        const std::int64_t to_a = std::abs(a - value), to_b = std::abs(b - value);
        return to_a != to_b ? to_a < to_b : a > b;
    });
}

std::int64_t capacity() noexcept
{
    return entries_of(std::getenv("UTOFU_NUM_MRQ_ENTRIES")) / 2;
}

} // namespace event_pool

// --- OwnDirectory. TNIs of peers may read its memory at any time.

using directory::Bucket;
using directory::Entry;

/// Writes a word that peers may read by Get at the same time. A word is never torn.
template <class T>
static void put_word(T& word, T value, std::memory_order order = std::memory_order_relaxed) noexcept
{
    std::atomic_ref<T>(word).store(value, order); // partner: Get of RemoteKeys::ask, through the check
}

static_assert(table_stag(directory::first_log2 + 1) > further_stag(growing_endpoints - 1) &&
              table_stag(directory::max_log2) < 256);

static constexpr unsigned choices_in(unsigned log2) noexcept
{
    return log2 == directory::first_log2 ? 1 : directory::choices;
}

int OwnDirectory::open() noexcept
{
    Table first;
    if (int ret = make_table(directory::first_log2, first); ret != 0)
        return ret;
    if (!tables_.push(std::move(first)))
        return -FI_ENOMEM;
    point_to({});
    // Plain stores: no peer can read the memory yet.
    at<directory::DomainHeader>(directory::domain_header_offset).nonce = domain_.nonce();
    at<directory::LaneDirectoryEntry>(directory::lane_directory_word_offset).nonce = domain_.nonce();
    at<std::uint64_t>(event_pool::offset) = event_pool::word(domain_.nonce(), event_pool::capacity());
    const int ret = domain_.target_vcq().reg_with_stag(area(), directory::area_bytes, directory_stag, tables_[0].stadd);
    if (ret != 0)
        tables_.clear();
    return ret;
}

void OwnDirectory::close() noexcept
{
    for (const Table& table : tables_)
        domain_.target_vcq().dereg(table.stadd);
    tables_.clear();
}

void OwnDirectory::point_to_lane_directory(utofu_stadd_t stadd) noexcept
{
    auto& line = at<directory::LaneDirectoryEntry>(directory::lane_directory_word_offset);
    put_word(line.stadd, std::uint64_t{stadd});
    // Partner: Get of coll::Search::look, through the check.
    put_word(line.check, directory::check_of_lane_directory(stadd, line.nonce), std::memory_order_release);
}

/// Partner of both: Gets of coll::Lanes::ask and coll::Search::look. Release: all posts of the endpoint have ended
/// before.
void OwnDirectory::show_endpoint(unsigned first, unsigned count, std::uint64_t nonce) noexcept
{
    for (unsigned number = first; number < first + count; number++)
        put_word(at<std::uint64_t>(directory::endpoint_offset(number)), nonce, std::memory_order_release);
}

void OwnDirectory::hide_endpoint(unsigned first, unsigned count, std::uint64_t nonce) noexcept
{
    for (unsigned number = first; number < first + count; number++)
        if (auto& word = at<std::uint64_t>(directory::endpoint_offset(number)); word == nonce)
            put_word(word, std::uint64_t{0}, std::memory_order_release);
}

void OwnDirectory::refill_pool() noexcept
{
    // Release: the entries have been removed from the MRQ before. Partner: peers' ARMWs, with which the add is atomic
    // (guide 2.2.5).
    std::atomic_ref(at<std::uint64_t>(event_pool::offset))
        .fetch_add(std::exchange(counted_events_, 0), std::memory_order_release);
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
    unsigned most = 0; // number of free entries in its bucket
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

Entry* OwnDirectory::find(const Table& table, std::uint64_t key) noexcept
{
    for (unsigned choice = 0; choice < choices_in(table.log2); choice++)
        for (Entry& entry : table.buckets[directory::bucket_of(key, table.log2, choice)].entry)
            if (entry.check != 0 && entry.key == key)
                return &entry;
    return nullptr;
}

/// Writes the check last: a reader finds a half written entry empty, or torn.
void OwnDirectory::store(Entry& to, const Entry& value) noexcept
{
    put_word(to.key, value.key);
    put_word(to.stadd_offset, value.stadd_offset);
    put_word(to.begin, value.begin);
    put_word(to.length, value.length);
    put_word(to.rights, value.rights);
    put_word(to.vcq_number, value.vcq_number);
    put_word(to.generation, value.generation);
    put_word(to.check, value.check, std::memory_order_release);
}

/// Writes the address of the second table into each bucket of the first one.
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
            Entry* slot = room(to, entry.key);
            if (slot == nullptr)
                return false;
            *slot = entry; // no peer can read it yet
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
        // A reserved STag, since regions may have used all others.
        if (int ret = domain_.target_vcq().reg_with_stag(table.memory.get(), table.memory.size(), table_stag(log2),
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
    Entry* slot = room(tables_[0], entry.key);
    while (slot == nullptr) {
        if (tables_.size() > 1)
            slot = room(tables_.back(), entry.key);
        if (slot != nullptr)
            break;
        if (int ret = grow(); ret != 0)
            return ret;
    }
    store(*slot, entry);
    return 0;
}

void OwnDirectory::withdraw(std::uint64_t key) noexcept
{
    Entry* entry = find(tables_[0], key);
    if (entry == nullptr && tables_.size() > 1)
        entry = find(tables_.back(), key);
    if (entry != nullptr)
        put_word(entry->check, std::uint64_t{0}, std::memory_order_release);
}

// --- KeyReaders. TNIs of readers may write the table at any time (tx/remote_memory.cc).

std::uint64_t& KeyReaders::word(std::size_t offset) const noexcept
{
    return *reinterpret_cast<std::uint64_t*>(domain_.regions().directory().area() + offset);
}

void KeyReaders::revoke() noexcept
{
    // Partner: the CSWAP of a reader, which comes before its Get. Either this scan finds the reader, or the reader's
    // Get finds the entries of closed regions withdrawn.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    polls_ = 0;
    for (unsigned slot = 0; slot < directory::max_readers; slot++) {
        const std::size_t offset = directory::readers_offset + slot * sizeof(utofu_vcq_id_t);
        const utofu_vcq_id_t reader = std::atomic_ref(word(offset)).load(std::memory_order_relaxed);
        if (reader == 0) [[likely]]
            continue;
        Revocation& revocation = unused();
        revocation.again = false;
        revocation.slot = slot;
        revocation.reader = reader;
        begin(revocation);
    }
    while (advance())
        wait();
}

/// A TNI confirms within microseconds. If one does not, the other threads go on meanwhile: the target lock is needed by
/// each of them, and a reader that is gone may take seconds (Vcq::lost_after).
void KeyReaders::wait() noexcept
{
    constexpr unsigned polls_at_once = 4096;
    constexpr std::chrono::microseconds pause{50};
    if (++polls_ < polls_at_once)
        return;
    domain_.target_lock().unlock();
    Clock::sleep(pause);
    domain_.target_lock().lock();
}

/// An unused revocation. Waits for the end of another one if necessary.
KeyReaders::Revocation& KeyReaders::unused() noexcept
{
    for (;; (void)advance(), wait())
        for (Revocation& revocation : revocations_)
            if (revocation.state == Revocation::State::unused)
                return revocation;
}

/// Polls, and continues the revocations that have ended or could not be posted. False: none is under way.
bool KeyReaders::advance() noexcept
{
    bool some = false;
    (void)domain_.target_vcq().poll();
    for (Revocation& revocation : revocations_) {
        if (revocation.state == Revocation::State::ended)
            end(revocation);
        if (revocation.state == Revocation::State::to_post)
            post(revocation);
        some |= revocation.state != Revocation::State::unused;
    }
    return some;
}

void KeyReaders::begin(Revocation& revocation) noexcept
{
    revocation.begun = Clock::now();
    post(revocation);
}

/// A queue that has no room for as long as an access may last has none for this reader.
void KeyReaders::post(Revocation& revocation) noexcept
{
    vcq::Vcq& target_vcq = domain_.target_vcq();
    utofu_stadd_t area = 0;
    revocation.notify = on_notice;
    revocation.code = UTOFU_ERR_INVALID_VCQ_ID;
    revocation.state = Revocation::State::under_way; // the notice may come within the post
    vcq::Post posted = vcq::Post::error;
    if (target_vcq.query_stadd(revocation.reader, directory_stag, area) == 0)
        posted = target_vcq.armw(8, revocation.reader, UTOFU_ARMW_OP_ADD, 1,
                                 area + directory::epoch_offset(domain_.target_vcq_id()),
                                 {.level = vcq::CompletionLevel::delivered, .handler = &revocation});
    if (posted == vcq::Post::busy && Clock::now() - revocation.begun < vcq::Vcq::lost_after)
        revocation.state = Revocation::State::to_post;
    else if (posted != vcq::Post::done)
        revocation.state = Revocation::State::ended;
}

void KeyReaders::on_notice(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    auto& revocation = *static_cast<Revocation*>(handler);
    revocation.code = notice.code;
    revocation.state = Revocation::State::ended;
}

/// Ends a revocation. A reader that could not be reached is removed. Another domain may have got its VCQ ID and have
/// found the ID in the table before the removal. So the ARMW is posted again, and the reader is entered again if the
/// TNI confirms it.
void KeyReaders::end(Revocation& revocation) noexcept
{
    revocation.state = Revocation::State::unused;
    if (revocation.code == UTOFU_SUCCESS) {
        if (revocation.again)
            enter(revocation.reader);
        return;
    }
    if (revocation.again)
        return;
    utofu_vcq_id_t gone = revocation.reader;
    // seq_cst: the slot is empty before the second post takes effect
    std::atomic_ref(word(directory::readers_offset + revocation.slot * sizeof(gone)))
        .compare_exchange_strong(gone, 0, std::memory_order_seq_cst);
    revocation.again = true;
    begin(revocation);
}

void KeyReaders::enter(utofu_vcq_id_t reader) noexcept
{
    for (unsigned probe = 0; probe < directory::reader_probes; probe++) {
        utofu_vcq_id_t found = 0;
        if (std::atomic_ref(word(directory::reader_offset(reader, probe)))
                .compare_exchange_strong(found, reader, std::memory_order_seq_cst) ||
            found == reader)
            return;
    }
}

} // namespace tofu
