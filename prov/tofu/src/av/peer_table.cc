// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See peer_table.h.
#include "av/peer_table.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <new>
#include <optional>
#include <utility>

#include <rdma/fi_errno.h>
#include <unistd.h>

#include "core/log.h"
#include "core/system.h"

namespace tofu {

// The history is a file in memory, one for each user and node: 512 records of 64 bytes, each the unsettled numbers of
// one target VCQ. A number in use is written down as unsettled, so that it is unsettled when its process is killed.
// Byte 0 is locked for a change of records; each process with a domain has a read lock on byte 1.

namespace {

struct Record {
    std::uint64_t key = 0;  ///< 0: none
    std::uint64_t used = 0; ///< seconds since 1970: when it was changed last
    std::uint64_t unsettled[(max_endpoints + 63) / 64] = {};
    std::uint64_t reserved[2] = {};
};
static_assert(sizeof(Record) == 64);

constexpr unsigned record_count = 512;
constexpr std::uint64_t file_bytes = record_count * sizeof(Record);
constexpr unsigned probes = 16; ///< records in which a key may stand
constexpr std::chrono::milliseconds patience{200};
constexpr int open_tries = 8; ///< another process may remove the file at the same time

constexpr off_t offset_of(std::uint64_t key, unsigned probe) noexcept
{
    return static_cast<off_t>((key + probe) % record_count * sizeof(Record));
}

/// The file of this process, under the mutex.
constinit Mutex mutex;
constinit NodeFile file;
pid_t owner = 0;
unsigned domains = 0; ///< that use it

bool join() noexcept
{
    if (owner != getpid()) { // a child of fork shares the description, and with it its parent's locks
        file.close();
        owner = getpid();
        domains = 0;
    }
    if (!may_have_size(file_bytes)) {
        errno = EFBIG;
        return false;
    }
    char path[64];
    std::snprintf(path, sizeof path, "/dev/shm/tofu-fi-endpoints-%u", geteuid());
    for (int attempt = 0; !file.is_open() && attempt < open_tries; attempt++)
        if (!file.open(path) || !file.lock_within(patience, F_RDLCK, 1, 1) || file.is_removed())
            file.close();
    domains += file.is_open();
    return file.is_open();
}

void part(bool may_outlive) noexcept
{
    if (owner != getpid() || --domains != 0)
        return;
    // The last process of all removes the file, unless a peer on another node may still write.
    if (file.lock(F_WRLCK, 1, 1)) {
        bool needed = false;
        Record record;
        for (unsigned n = 0; may_outlive && !needed && n < record_count; n++)
            needed =
                pread(file.descriptor(), &record, sizeof record, offset_of(n, 0)) == sizeof record && record.key != 0;
        if (!needed)
            file.remove();
    }
    file.close();
}

/// The record of a key, or the free one or oldest one that it takes.
off_t find(std::uint64_t key, Record& record) noexcept
{
    off_t at = offset_of(key, 0);
    std::optional<Record> oldest;
    for (unsigned probe = 0; probe < probes; probe++) {
        Record found; // where the file ends: a free one
        (void)pread(file.descriptor(), &found, sizeof found, offset_of(key, probe));
        if (found.key != key && oldest && (found.key == 0 ? 0 : found.used) >= oldest->used)
            continue;
        oldest = found.key == 0 ? Record{} : found;
        at = offset_of(key, probe);
        if (found.key == key)
            break;
    }
    record = oldest->key == key ? *oldest : Record{};
    return at;
}

/// Lets `use` read or change the record of a key. False: there is no file, or it cannot be locked.
template <class Use>
bool with_record(std::uint64_t key, Use&& use) noexcept
{
    std::lock_guard guard(mutex);
    if (owner != getpid() || !file.is_open() || !file.lock_within(patience, F_WRLCK, 0, 1))
        return false;
    Record record;
    const off_t at = find(key, record);
    if (use(record) && may_have_size(file_bytes))
        (void)pwrite(file.descriptor(), &record, sizeof record, at);
    (void)file.lock(F_UNLCK, 0, 1);
    return true;
}

std::uint64_t key_of(const char* job, std::uint64_t target_vcq) noexcept
{
    Hash hash;
    hash.add(job);
    for (unsigned i = 0; i < sizeof target_vcq; i++)
        hash.add(static_cast<unsigned char>(target_vcq >> 8 * i));
    return hash.value | 1;
}

} // namespace

int EndpointNumbers::open(const char* job, std::uint64_t target_vcq, std::uint64_t random) noexcept
{
    {
        std::lock_guard guard(mutex);
        if (!join()) {
            if (errno == EMFILE || errno == ENFILE) {
                TOFU_WARN(FI_LOG_DOMAIN,
                          "domain: no descriptor for /dev/shm/tofu-fi-endpoints-%u: raise the limit "
                          "(ulimit -n)\n",
                          geteuid());
                return -FI_EMFILE;
            }
            TOFU_WARN(FI_LOG_DOMAIN,
                      "domain: cannot open /dev/shm/tofu-fi-endpoints-%u: the number of the first endpoint is random, "
                      "and with a probability of 1 in %u a stopped peer of an earlier process may write into it; make "
                      "/dev/shm writable, remove that file, or raise the limit on file sizes (ulimit -f)\n",
                      geteuid(), unsigned{max_endpoints});
            start_ = static_cast<unsigned>(random % max_endpoints);
            return 0;
        }
    }
    key_ = key_of(job, target_vcq);
    may_outlive_ = job == nullptr;
    (void)with_record(key_, [this](const Record& record) {
        for (unsigned n = 0; n < max_endpoints; n++)
            unsettled_[n] = record.key == key_ && (record.unsettled[n / 64] >> n % 64 & 1) != 0;
        return false;
    });
    return 0;
}

EndpointNumbers::~EndpointNumbers()
{
    if (key_ == 0)
        return;
    std::lock_guard guard(mutex);
    part(may_outlive_ || killed_of_test);
}

void EndpointNumbers::save() const noexcept
{
    if (key_ == 0 || killed_of_test)
        return;
    const Set unsettled = taken_ | unsettled_;
    (void)with_record(key_, [&](Record& record) {
        record = {};
        if (unsettled.any()) {
            record.key = key_;
            record.used = static_cast<std::uint64_t>(
                std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                    .count());
        }
        for (unsigned n = 0; n < max_endpoints; n++)
            record.unsettled[n / 64] |= std::uint64_t{unsettled[n]} << n % 64;
        return true;
    });
}

int EndpointNumbers::alloc(unsigned count, unsigned& first, std::uint16_t& incarnation) noexcept
{
    constexpr std::uint64_t never = ~std::uint64_t{0};
    std::lock_guard guard(mutex_);
    const auto age = [this](unsigned n) -> std::uint64_t { // large: used lately
        return taken_[n] ? never : released_[n] + (std::uint64_t{unsettled_[n]} << 32);
    };
    std::uint64_t best = never;
    for (unsigned i = 0; i < most && best != 0; i++) {
        const unsigned from = (start_ + i) % most;
        if (from + count > most)
            continue;
        std::uint64_t latest = 0;
        for (unsigned n = from; n < from + count; n++)
            latest = std::max(latest, age(n));
        if (latest < best) {
            best = latest;
            first = from;
        }
    }
    if (best == never) {
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "domain: all its %u numbers for endpoints, receive contexts and memory of groups are in use: "
                  "close some, or open another domain\n",
                  most);
        return -FI_ENOSPC;
    }
    for (unsigned n = first; n < first + count; n++) {
        taken_.set(n);
        unsettled_.reset(n);
    }
    incarnation = incarnations_++;
    save();
    return 0;
}

void EndpointNumbers::set_unsettled(unsigned number) noexcept
{
    std::lock_guard guard(mutex_);
    unsettled_.set(number);
}

void EndpointNumbers::release(unsigned first, unsigned count) noexcept
{
    std::lock_guard guard(mutex_);
    calls_++;
    for (unsigned n = first; n < first + count; n++) {
        taken_.reset(n);
        released_[n] = calls_;
    }
    save();
}

/// From an endpoint's identity back to its index. Made at the first question, kept up to date from then on. Open
/// addressing over the entries themselves: 6 to 12 bytes of it for a peer, since this is multiplied by the machine.
struct Peers::Index {
    static constexpr std::uint32_t free = 0; ///< else an entry's index + 1, or
    static constexpr std::uint32_t gone = ~std::uint32_t{0};

    static std::size_t hash(std::uint64_t target_vcq, std::uint64_t nonce, std::uint32_t index) noexcept
    {
        std::uint64_t h = (target_vcq ^ (nonce + index)) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
        return static_cast<std::size_t>(h * 0xd6e8feb86659fd93u >> 16);
    }
    static bool same(const Peer& peer, std::uint64_t target_vcq, std::uint64_t nonce, std::uint32_t index) noexcept
    {
        return peer.target_vcq == target_vcq && peer.nonce == nonce && peer.index == index;
    }
    /// The slot of a peer, or the free one where its search ends.
    std::uint32_t& find(const Peers& peers, std::uint64_t target_vcq, std::uint64_t nonce, std::uint32_t index) noexcept
    {
        for (std::size_t at = hash(target_vcq, nonce, index);; at++) {
            std::uint32_t& slot = slots[at & (size - 1)];
            if (slot == free || (slot != gone && same(*peers.store_.at(slot - 1), target_vcq, nonce, index)))
                return slot;
        }
    }
    /// False: no memory.
    [[nodiscard]] bool add(const Peers& peers, std::size_t number) noexcept
    {
        if ((used + 1) * 4 > size * 3 && !grow(peers))
            return false;
        const Peer& peer = *peers.store_.at(number);
        std::uint32_t& slot = find(peers, peer.target_vcq, peer.nonce, peer.index);
        if (slot != free) {
            duplicates = true;
            return true;
        }
        used++;
        slot = static_cast<std::uint32_t>(number + 1);
        return true;
    }
    /// Slots that are gone go.
    [[nodiscard]] bool grow(const Peers& peers) noexcept
    {
        static_assert(free == 0);
        const std::size_t larger = std::max<std::size_t>(64, std::bit_ceil(peers.size() + peers.size() / 2));
        std::unique_ptr<std::uint32_t[]> old(new (std::nothrow) std::uint32_t[larger]());
        if (old == nullptr)
            return false;
        old.swap(slots);
        const std::size_t before = std::exchange(size, larger);
        used = 0;
        for (std::size_t i = 0; i < before; i++)
            if (old[i] != free && old[i] != gone)
                (void)add(peers, old[i] - 1); // there is room
        return true;
    }

    std::unique_ptr<std::uint32_t[]> slots;
    std::size_t size = 0;    ///< a power of two
    std::size_t used = 0;    ///< slots that are not free; those that are gone become so when it grows
    bool duplicates = false; ///< a peer has more than one index, of which this names the first
    // --- of a shared vector: the indices below `seen` are in it, as of `uses` uses of indices (Head)
    std::size_t seen = 0;
    std::uint32_t uses = 0;
    std::uint32_t generation = 0;
};

Peers::Peers(RefCounted& domain) noexcept : Object(&domain, FI_CLASS_AV) {}

Peers::~Peers() = default;

void Peers::set_rx_bits(int bits) noexcept
{
    rx_bits_ = bits;
    index_mask_ = ~fi_addr_t{0} >> bits;
}

/// Remembers an entry that has become free. Without memory it is found by a search.
void Peers::note_removed(std::size_t number) noexcept
{
    if (removed_.size() > size()) // of a shared vector: others have filled most of them
        removed_.clear();
    if (removed_.push(static_cast<std::uint32_t>(number)))
        std::push_heap(removed_.begin(), removed_.end(), std::greater<>());
}

/// The lowest free entry that was removed here, else the lowest that a search finds. Null: none is free.
Peer* Peers::reuse_index(fi_addr_t& number) noexcept
{
    while (!removed_.empty()) {
        std::pop_heap(removed_.begin(), removed_.end(), std::greater<>());
        number = removed_.back();
        removed_.pop_back();
        if (Peer* const peer = store_.at(number); peer->target_vcq == 0)
            return peer;
    }
    PeerStore::Head& head = store_.head();
    for (std::size_t i = head.first_free; i < size(); i++)
        if (Peer* const peer = store_.at(i); peer->target_vcq == 0) {
            head.first_free = i + 1;
            number = i;
            return peer;
        }
    return nullptr;
}

/// A free entry: the lowest one removed, else a new one. Null: full or no memory.
Peer* Peers::alloc_index(fi_addr_t& number) noexcept
{
    PeerStore::Head& head = store_.head();
    if (head.free_places > 0)
        if (Peer* const peer = reuse_index(number); peer != nullptr) {
            head.free_places--;
            return peer;
        }
    if (!store_.make_next())
        return nullptr;
    number = head.size.fetch_add(1, std::memory_order_release);
    return store_.at(number);
}

int Peers::insert(const EndpointAddress& address, fi_addr_t& number) noexcept
{
    const PeerStore::Turn turn(store_);
    if (!turn.is_taken())
        return FI_EBUSY;
    Peer* const peer = alloc_index(number);
    if (peer == nullptr)
        return FI_ENOMEM;
    peer->nonce = address.nonce;
    peer->index = address.index;
    peer->further = address.further;
    peer->counts_events = address.flags & address_counts_events;
    peer->generation = ++store_.head().uses;
    remove_name(number);
    // release: find() sees the other members with it
    std::atomic_ref(peer->target_vcq).store(address.target_vcq, std::memory_order_release);
    if (!store_.is_shared() && index_ != nullptr && !index_->add(*this, number))
        index_.reset(); // until the next lookup
    return 0;
}

int Peers::insert_once(const EndpointAddress& address, fi_addr_t& number) noexcept
{
    const fi_addr_t known = find_number(address.target_vcq, address.nonce, address.index);
    if (known == FI_ADDR_NOTAVAIL)
        return insert(address, number);
    const std::lock_guard guard(user_mutex_);
    number = known;
    return allocates([&] { more_uses_[known]++; }) ? 0 : FI_ENOMEM;
}

bool Peers::has_more_uses(fi_addr_t number) noexcept
{
    const std::lock_guard guard(user_mutex_);
    const auto found = more_uses_.find(number);
    const bool more = found != more_uses_.end();
    if (more && --found->second == 0)
        more_uses_.erase(found);
    return more;
}

int Peers::remove(const fi_addr_t* fi_addrs, std::size_t count) noexcept
{
    const PeerStore::Turn turn(store_);
    if (!turn.is_taken())
        return -FI_EBUSY;
    for (std::size_t i = 0; i < count; i++)
        if (find(fi_addrs[i]) == nullptr)
            return -FI_EINVAL;
    for (std::size_t i = 0; i < count; i++) {
        const std::size_t number = index_of(fi_addrs[i]);
        Peer* peer = store_.at(number);
        if (peer->target_vcq == 0 || has_more_uses(number))
            continue; // named twice, or inserted
        if (index_ != nullptr && index_->duplicates)
            index_.reset(); // another index may have to answer for this peer: made anew when asked
        if (index_ != nullptr)
            if (std::uint32_t& slot = index_->find(*this, peer->target_vcq, peer->nonce, peer->index);
                slot != Index::free)
                slot = Index::gone;
        peer->generation = ++store_.head().uses; // senders to it look it up again
        std::atomic_ref(peer->target_vcq).store(0, std::memory_order_release);
        PeerStore::Head& head = store_.head();
        head.first_free = head.free_places++ == 0 ? number : std::min(head.first_free, number);
        note_removed(number);
    }
    return 0;
}

/// Other processes change a shared vector, too. What they have added behind the entries that the index has seen is
/// added to it; it is made anew where others were used again or given up: those are uses that the size does not tell.
/// In turn.
void Peers::update_index() noexcept
{
    const std::uint32_t now = generation();
    if (index_ != nullptr && (!store_.is_shared() || index_->generation == now))
        return;
    const std::uint32_t uses = store_.head().uses;
    if (index_ == nullptr || uses - index_->uses != size() - index_->seen) {
        index_.reset(new (std::nothrow) Index);
        if (index_ != nullptr && !index_->grow(*this))
            index_.reset();
    }
    for (std::size_t i = index_ != nullptr ? index_->seen : 0; index_ != nullptr && i < size(); i++)
        if (find(i) != nullptr && !index_->add(*this, i))
            index_.reset();
    if (index_ == nullptr)
        return;
    index_->seen = size();
    index_->uses = uses;
    index_->generation = now;
}

int Peers::name(fi_addr_t number, fi_addr_t user_id) noexcept
{
    const std::lock_guard guard(user_mutex_);
    return allocates([&] { user_ids_[number] = user_id; }) ? 0 : FI_ENOMEM;
}

void Peers::remove_name(fi_addr_t number) noexcept
{
    const std::lock_guard guard(user_mutex_);
    user_ids_.erase(number);
}

void Peers::changed() noexcept
{
    store_.head().generation.fetch_add(1, std::memory_order_release);
    const std::lock_guard guard(watch_mutex_);
    watchers_.each([](const Watcher& watcher) { watcher.notify(watcher.self); });
}

void Peers::watch(Watcher& watcher) noexcept
{
    const std::lock_guard guard(watch_mutex_);
    watchers_.push_front(watcher);
}

void Peers::unwatch(Watcher& watcher) noexcept
{
    const std::lock_guard guard(watch_mutex_);
    watchers_.remove(watcher);
}

fi_addr_t Peers::lookup(std::uint64_t target_vcq, std::uint64_t nonce, std::uint32_t index) noexcept
{
    const fi_addr_t number = find_number(target_vcq, nonce, index);
    const std::lock_guard guard(user_mutex_);
    const auto named = user_ids_.find(number);
    return named != user_ids_.end() ? named->second : number;
}

fi_addr_t Peers::find_number(std::uint64_t target_vcq, std::uint64_t nonce, std::uint32_t index) noexcept
{
    const PeerStore::Turn turn(store_, std::chrono::milliseconds(0)); // a receiver does not wait
    if (turn.is_taken())
        update_index();
    if (!turn.is_shared() && index_ != nullptr)
        if (const std::uint32_t slot = index_->find(*this, target_vcq, nonce, index); slot != Index::free)
            return slot - 1;
    if (turn.is_taken() && index_ != nullptr)
        return FI_ADDR_NOTAVAIL;
    for (std::size_t i = 0; i < size(); i++) // no memory, or not our turn: one after the other
        if (find(i) != nullptr && Index::same(*store_.at(i), target_vcq, nonce, index))
            return i;
    return FI_ADDR_NOTAVAIL;
}

} // namespace tofu
