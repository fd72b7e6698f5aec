// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See remote_memory.h.
#include "tx/remote_memory.h"

#include <cstring>
#include <new>

#include "av/address.h"
#include "mem/bounce_pool.h"

namespace tofu {

// --- VcqOrder

bool VcqOrder::pass_peer(utofu_vcq_id_t target_vcq, utofu_vcq_id_t vcq, bool reads) noexcept
{
    auto found = routes_.find(target_vcq);
    if (found == routes_.end()) {
        if (vcq == target_vcq && !reads_ordered_) // as all before
            return true;
        const Route first{{&on_fence}, reads_ordered_ ? 0 : target_vcq, false, true};
        if (!allocates([&] { found = routes_.emplace(target_vcq, first).first; }))
            return false;
    }
    Route& route = found->second;
    if (route.fenced)
        return false;
    const bool behind_write = reads && reads_ordered_ && route.wrote;
    last_ = &route;
    last_target_vcq_ = reads_ordered_ ? 0 : target_vcq;
    if (route.vcq == vcq && !behind_write) [[likely]] {
        route.wrote |= !reads;
        return true;
    }
    if (route.vcq != 0) {
        const vcq::Post post = vcq_.fence(route.vcq, route);
        route.fenced = post == vcq::Post::done;
        if (post != vcq::Post::error)
            return false;
    }
    route.vcq = vcq;
    route.wrote = !reads;
    return true;
}

/// Also where it failed: an unreachable peer has nothing that could be overtaken.
void VcqOrder::on_fence(vcq::CompletionHandler* handler, vcq::Notice) noexcept
{
    Route& route = *static_cast<Route*>(handler);
    route.fenced = false;
    route.vcq = 0;
}

// --- RemoteKeys: the table of known keys, and the lookups that read a peer's directory by Get. A lookup is a sequence
// of Gets, each of which says what the next one reads (docs/wire-protocol.md, "Regions"): the key's bucket of the first
// table; its two buckets of the second; if the entry names an overflow VCQ that is not known yet, the line of the
// overflow VCQ, and at the overflow VCQ the nonce, which proves that the overflow VCQ belongs to the peer. Without that
// proof a peer could direct our writes to the memory of another process.

using directory::Bucket;
using directory::Entry;

constexpr std::size_t group_size = 4;
constexpr std::size_t first_known = 64;
constexpr std::size_t max_known = 131072;
constexpr unsigned max_tries = 256; ///< Gets of a bucket that stays torn
constexpr std::size_t max_lookups = 64;
constexpr unsigned max_outdated = 8; ///< failures of one lookup that came too late for the call that had asked

/// A copy of an answer, read once: its memory is registered, so a process that guesses the STADD may write into it at
/// any time, even between a check and the use of the checked value.
template <class T>
static T read_once(const T& answer) noexcept
{
    T copy;
    std::memcpy(&copy, &answer, sizeof copy);
    std::atomic_signal_fence(std::memory_order_acq_rel); // the compiler looks at the copy alone
    return copy;
}

/// A known key; `target_vcq` 0: a free place. A search touches one cache line.
struct alignas(least_line) RemoteKeys::Known : KeyId {
    utofu_vcq_id_t vcq = 0; ///< the target VCQ or an overflow VCQ of the domain
    std::uint64_t stadd_offset = 0;
    std::uint64_t begin = 0;
    std::uint64_t length = 0;
    std::uint16_t rights = 0;
    bool listed = true; ///< this reader is in the domain's table
    /// Of the domain when the lookup began; another one by now: the key may have been revoked. Not listed: the number
    /// of the call that began the lookup.
    std::uint32_t epoch = 0;
};

/// One key being looked up: Gets into answer(), which is registered as long as the lookup lives.
struct RemoteKeys::Lookup : vcq::CompletionHandler, KeyId {
    enum class State {
        idle,
        running, ///< -> idle: the key is known; -> waiting; -> failed
        waiting, ///< the queue had no room for the next Get. -> running: a caller needs the key; -> idle: another
        failed   ///< -> idle: the failure has been reported; -> running: it is not the answer to the call that finds it
    };
    enum class Step {
        identity,        ///< the nonce at the target VCQ -> enlist
        register_reader, ///< this reader into a slot of the domain's table, by CSWAP -> enlist | first
        first,           ///< the bucket of the first table -> second | overflow VCQ
        second,          ///< the first choice in the second table -> other | overflow VCQ
        other,           ///< the second choice there -> overflow VCQ
        overflow,        ///< the line of the entry's overflow VCQ -> proof
        proof            ///< the nonce at that overflow VCQ
    };
    RemoteKeys* owner = nullptr;
    State state = State::idle;
    Step step = Step::first;
    utofu_stadd_t table = 0; ///< the second table, and its size
    unsigned log2 = 0;
    int result = 0;           ///< of a failed lookup
    unsigned outdated = 0;    ///< failures that were not reported, since an earlier call had asked
    unsigned tries = 0;       ///< Gets of a torn bucket; probes for a slot
    std::uint32_t epoch = 0;  ///< when the lookup began
    std::uint32_t call = 0;   ///< the call that began it
    utofu_vcq_id_t vcq = 0;   ///< the VCQ that is asked
    utofu_stadd_t remote = 0; ///< what is asked for, and its size
    std::size_t size = 0;
    utofu_stadd_t stadd = 0; ///< of the answer
    Entry entry{};
    union Answer {
        Bucket bucket;
        directory::OverflowEntry line;
        directory::DomainHeader contacts;
    };
    OwnMemory memory{sizeof(Answer)};
    [[nodiscard]] Answer& answer() const noexcept { return *reinterpret_cast<Answer*>(memory.get()); }
};

RemoteKeys::RemoteKeys(vcq::Vcq& vcq, bool provider_keys, const KeyReader& reader) noexcept
    : vcq_(vcq), provider_keys_(provider_keys), reader_(reader)
{
}

RemoteKeys::~RemoteKeys()
{
    for (auto& lookup : lookups_)
        vcq_.dereg(lookup->stadd);
}

// --- the table

RemoteKeys::Known* RemoteKeys::group_of(const KeyId& name) noexcept
{
    static_assert(sizeof(Known) == least_line);
    const std::uint64_t hash = directory::mix(name.target_vcq ^ name.nonce ^ directory::mix(name.key));
    return &known_[hash & (known_size_ - 1) & ~(group_size - 1)];
}

/// The key's place, even if it has been revoked. Null: none.
RemoteKeys::Known* RemoteKeys::find(const KeyId& name) noexcept
{
    Known* const group = known_ != nullptr ? group_of(name) : nullptr;
    for (std::size_t i = 0; i < group_size && group != nullptr; i++)
        if (name == group[i])
            return &group[i];
    return nullptr;
}

/// The known key. Null: it is not known, or it has been revoked.
const RemoteKeys::Known* RemoteKeys::recall(const KeyId& name) noexcept
{
    const Known* const known = find(name);
    return known != nullptr && known->epoch == (known->listed ? epoch_of(name.target_vcq) : calls_) ? known : nullptr;
}

/// Remembers a key. False: there is no memory for the first one. Without memory for more, known keys are replaced.
bool RemoteKeys::remember(const Known& known) noexcept
{
    if (known_ == nullptr) {
        known_.reset(new (std::nothrow) Known[first_known]);
        if (known_ == nullptr)
            return false;
        known_size_ = first_known;
    }
    for (;;) {
        Known* group = group_of(known);
        Known* slot = find(known);
        for (std::size_t i = 0; i < group_size && slot == nullptr; i++)
            if (group[i].target_vcq == 0) {
                slot = &group[i];
                known_count_++;
            }
        // A full group: doubles the table and moves everything, unless the group is full by bad luck or the table is
        // too large.
        std::unique_ptr<Known[]> larger;
        if (slot == nullptr && known_size_ < max_known && known_count_ * 8 >= known_size_)
            larger.reset(new (std::nothrow) Known[known_size_ * 2]);
        if (slot == nullptr && larger == nullptr)
            slot = &group[evicted_++ % group_size];
        if (slot != nullptr) {
            *slot = known;
            return true;
        }
        known_.swap(larger);
        known_size_ *= 2;
        known_count_ = 0;
        for (std::size_t i = 0; i < known_size_ / 2; i++)
            if (larger[i].target_vcq != 0)
                (void)remember(larger[i]);
    }
}

int RemoteKeys::resolve_by_directory(const Peer& peer, std::uint64_t key, std::uint64_t address, std::size_t length,
                                     std::uint64_t access, Target& target) noexcept
{
    const KeyId name{peer.target_vcq, nonce_of_domain(peer.nonce), key};
    const Known* known = recall(name);
    if (known == nullptr) [[unlikely]] {
        if (int ret = find_key(name); ret != 0)
            return ret;
        known = recall(name);
        if (known == nullptr)
            return -FI_EAGAIN;
    }
    const std::uint32_t wanted = ((access & FI_REMOTE_READ) ? directory::right_read : 0u) |
                                 ((access & FI_REMOTE_WRITE) ? directory::right_write : 0u);
    if ((known->rights & wanted) != wanted)
        return -FI_EACCES;
    const std::uint64_t offset = address - known->begin;
    if (offset > known->length || length > known->length - offset)
        return -FI_EINVAL;
    target = {known->vcq, known->stadd_offset + address};
    return 0;
}

void RemoteKeys::suspect(utofu_vcq_id_t target_vcq) noexcept
{
    const auto is_met = [&](const auto& entry) { return entry.first.target_vcq == target_vcq && entry.first.key == 0; };
    if (std::erase_if(known_vcqs_, is_met) != 0)
        epoch(target_vcq).fetch_add(1, std::memory_order_release); // as if the domain had revoked its keys
}

utofu_vcq_id_t RemoteKeys::target_vcq_of(utofu_vcq_id_t vcq) noexcept
{
    for (const auto& [name, overflow] : known_vcqs_)
        if (overflow == vcq)
            return name.target_vcq;
    return vcq;
}

// --- lookups

/// Starts or continues a lookup. 0: the key is known now; -FI_EAGAIN: not yet; or why it never will be.
int RemoteKeys::find_key(const KeyId& name) noexcept
{
    for (auto& l : lookups_) {
        if (l->state == Lookup::State::idle || name != *l)
            continue;
        if (l->state == Lookup::State::running) {
            vcq_.statistics().count(Stat::again_key);
            return -FI_EAGAIN;
        }
        if (l->state == Lookup::State::waiting)
            return post(*l);
        l->state = Lookup::State::idle; // the failure is reported once; the next call asks again
        if (answers_this_call(*l))
            return l->result;
        l->outdated++;
        relookup_call_ = calls_;
        return begin(*l);
    }
    int error = 0;
    Lookup* lookup = free_lookup(error);
    if (lookup == nullptr)
        return error;
    static_cast<KeyId&>(*lookup) = name;
    lookup->outdated = 0;
    return begin(*lookup);
}

/// Begins the lookup of its name. As lookup().
int RemoteKeys::begin(Lookup& lookup) noexcept
{
    lookup.tries = 0;
    vcq_.statistics().count(Stat::key_lookup);
    if (const Known* const known = find(lookup); known != nullptr && known->listed)
        vcq_.statistics().count(Stat::key_stale);
    lookup.epoch = epoch_of(lookup.target_vcq);
    lookup.call = calls_;
    if (known_vcqs_.contains({lookup.target_vcq, lookup.nonce, 0})) [[likely]]
        return read_first_bucket(lookup);
    lookup.step = Lookup::Step::identity; // no slot of another domain is taken
    return read_directory(lookup, lookup.target_vcq, directory::domain_header_offset, sizeof(directory::DomainHeader));
}

/// Is the failure of this lookup the answer to the present call? The owner may have registered the region after an
/// earlier call had asked, and nothing revokes a failure. A domain that is gone stays gone. A peer whose answers come
/// too late for each call is believed in the end, since the application would repeat its call for ever.
bool RemoteKeys::answers_this_call(const Lookup& failed) const noexcept
{
    const bool may_change = failed.result == -FI_EKEYREJECTED || failed.result == -FI_ENOMEM;
    return failed.call == calls_ || !may_change || failed.outdated == max_outdated;
}

int RemoteKeys::read_first_bucket(Lookup& lookup) noexcept
{
    lookup.step = Lookup::Step::first;
    lookup.tries = 0;
    return read_directory(lookup, lookup.target_vcq,
                          directory::bucket_of(lookup.key, directory::first_log2) * sizeof(Bucket), sizeof(Bucket));
}

/// Tries to take the next slot in the domain's table of readers. As next_step().
int RemoteKeys::register_reader(Lookup& lookup) noexcept
{
    lookup.step = Lookup::Step::register_reader;
    return read_directory(lookup, lookup.target_vcq, directory::reader_offset(reader_.target_vcq, lookup.tries),
                          sizeof(utofu_vcq_id_t));
}

/// This reader is in the domain's table from now on, or found no slot there. As next_step().
int RemoteKeys::on_registered(Lookup& lookup, bool listed) noexcept
{
    const bool noted = allocates([&] {
        known_vcqs_.insert_or_assign({lookup.target_vcq, lookup.nonce, 0}, listed ? lookup.target_vcq : not_listed);
    });
    return noted ? read_first_bucket(lookup) : -FI_ENOMEM;
}

bool RemoteKeys::looks_up_each_call(const Peer& peer) const noexcept
{
    const auto found = known_vcqs_.find({peer.target_vcq, nonce_of_domain(peer.nonce), 0});
    return found != known_vcqs_.end() && found->second == not_listed;
}

/// An idle lookup, or null and the reason.
RemoteKeys::Lookup* RemoteKeys::free_lookup(int& error) noexcept
{
    Lookup* left = nullptr;
    for (auto& l : lookups_) {
        if (l->state == Lookup::State::idle)
            return l.get();
        if (l->state != Lookup::State::running)
            left = l.get();
    }
    error = -FI_EAGAIN;
    if (lookups_.size() >= max_lookups) // lookups without a caller make room
        return left;
    std::unique_ptr<Lookup> made(new (std::nothrow) Lookup);
    if (!made || !made->memory || !lookups_.reserve(lookups_.size() + 1)) {
        error = -FI_ENOMEM;
        return nullptr;
    }
    made->owner = this;
    made->notify = on_answer;
    if (int ret = vcq_.reg(made->memory.get(), made->memory.size(), false, made->stadd); ret != 0) {
        error = ret == -FI_ENOSPC ? -FI_EAGAIN : ret;
        return nullptr;
    }
    lookups_.push_reserved(std::move(made));
    return lookups_.back().get();
}

/// Reaches what lies at `offset` under the reserved STag of a target VCQ, as the step says. As post_read().
int RemoteKeys::read_directory(Lookup& lookup, utofu_vcq_id_t vcq, std::size_t offset, std::size_t size) noexcept
{
    utofu_stadd_t area = 0;
    if (vcq_.query_stadd(vcq, directory_stag, area) != 0) // no VCQ ID of this machine
        return -FI_EKEYREJECTED;
    lookup.vcq = vcq;
    return post_read(lookup, area + offset, size);
}

/// -FI_EAGAIN: the answer is on its way, or the queue is full; else why there will be none.
int RemoteKeys::post_read(Lookup& lookup, utofu_stadd_t stadd, std::size_t size) noexcept
{
    lookup.remote = stadd;
    lookup.size = size;
    return post(lookup);
}

/// Posts what the lookup's step asks for. As post_read().
int RemoteKeys::post(Lookup& lookup) noexcept
{
    lookup.state = Lookup::State::running;
    const vcq::PostOptions how{.level = vcq::CompletionLevel::delivered, .handler = &lookup};
    vcq::Post posted = vcq::Post::busy;
    if (lookup.step == Lookup::Step::register_reader)
        posted = vcq_.cswap(8, lookup.vcq, 0, reader_.target_vcq, lookup.remote, how);
    else
        posted = vcq_.get(lookup.vcq, lookup.stadd, lookup.remote, lookup.size, how);
    if (posted == vcq::Post::done)
        return -FI_EAGAIN;
    lookup.state = posted == vcq::Post::busy ? Lookup::State::waiting : Lookup::State::idle;
    return posted == vcq::Post::busy ? -FI_EAGAIN : -FI_EKEYREJECTED;
}

void RemoteKeys::on_answer(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    auto& lookup = *static_cast<Lookup*>(handler);
    int result = -FI_EKEYREJECTED;
    if (notice.code == UTOFU_SUCCESS)
        result = lookup.owner->next_step(lookup, notice.value);
    else if (notice.code > UTOFU_ERR_MRQ_LCL_MEMORY) // no peer; else a peer, but no directory
        result = -fi_error_of(notice.code);
    if (result == -FI_EAGAIN) // requested again, or to be requested again by the caller
        return;
    lookup.result = result;
    lookup.state = result == 0 ? Lookup::State::idle : Lookup::State::failed;
}

/// What the answer of the lookup's step leads to: 0 the key is known, -FI_EAGAIN another question, else its failure.
/// `value`: the word before the step changed it.
int RemoteKeys::next_step(Lookup& lookup, std::uint64_t value) noexcept
{
    using Step = Lookup::Step;
    switch (lookup.step) {
    case Step::identity:
        return lookup.answer().contacts.nonce == lookup.nonce ? register_reader(lookup) : -FI_EKEYREJECTED;
    case Step::register_reader:
        if (value == 0 || value == reader_.target_vcq)
            return on_registered(lookup, true);
        return ++lookup.tries == directory::reader_probes ? on_registered(lookup, false) : register_reader(lookup);
    case Step::first:
    case Step::second:
    case Step::other: return read_bucket(lookup);
    case Step::overflow: {
        const directory::OverflowEntry line = read_once(lookup.answer().line);
        if (line.check != directory::check_of_overflow(line.vcq, lookup.entry.vcq_number, lookup.nonce))
            return -FI_EKEYREJECTED; // it was there before any entry named it
        lookup.step = Step::proof;
        return read_directory(lookup, line.vcq, directory::domain_header_offset, sizeof(directory::DomainHeader));
    }
    case Step::proof:
        if (lookup.answer().contacts.nonce != lookup.nonce)
            return -FI_EKEYREJECTED;
        return allocates([&] {
            known_vcqs_.insert_or_assign({lookup.target_vcq, lookup.nonce, lookup.entry.vcq_number}, lookup.vcq);
        })
                   ? learn(lookup)
                   : -FI_ENOMEM;
    }
    return -FI_EKEYREJECTED;
}

int RemoteKeys::read_bucket(Lookup& lookup) noexcept
{
    using Step = Lookup::Step;
    const Bucket bucket = read_once(lookup.answer().bucket);
    switch (directory::find(bucket, lookup.key, lookup.nonce, lookup.entry)) {
    case directory::Found::entry: return learn(lookup);
    case directory::Found::torn:
        return ++lookup.tries < max_tries ? post_read(lookup, lookup.remote, sizeof(Bucket)) : -FI_EKEYREJECTED;
    case directory::Found::absent: break;
    }
    if (lookup.step == Step::first) {
        lookup.table = bucket.next_stadd;
        lookup.log2 = bucket.next_log2;
    }
    if (lookup.table == 0 || lookup.step == Step::other)
        return -FI_EKEYREJECTED;
    const unsigned choice = lookup.step == Step::first ? 0 : 1;
    lookup.step = choice == 0 ? Step::second : Step::other;
    return post_read(lookup, lookup.table + directory::bucket_of(lookup.key, lookup.log2, choice) * sizeof(Bucket),
                     sizeof(Bucket));
}

/// The entry is found. As next_step().
int RemoteKeys::learn(Lookup& lookup) noexcept
{
    const Entry& entry = lookup.entry;
    utofu_vcq_id_t vcq = lookup.target_vcq;
    if (entry.vcq_number != 0) {
        const auto overflow = known_vcqs_.find({lookup.target_vcq, lookup.nonce, entry.vcq_number});
        if (overflow == known_vcqs_.end()) {
            if (entry.vcq_number > directory::max_overflow_vcqs)
                return -FI_EKEYREJECTED;
            lookup.step = Lookup::Step::overflow;
            return read_directory(lookup, lookup.target_vcq, directory::overflow_offset(entry.vcq_number),
                                  sizeof(directory::OverflowEntry));
        }
        vcq = overflow->second;
    }
    Known known{lookup, vcq, entry.stadd_offset, entry.begin, entry.length, entry.rights};
    const auto target_vcq = known_vcqs_.find({lookup.target_vcq, lookup.nonce, 0});
    known.listed = target_vcq != known_vcqs_.end() && target_vcq->second != not_listed;
    known.epoch = known.listed ? lookup.epoch : lookup.call;
    return remember(known) ? 0 : -FI_ENOMEM;
}

} // namespace tofu
