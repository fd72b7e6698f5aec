// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Keys of peers' regions: the table of those known, and the lookups that read a peer's directory by Get.
// Called by rma and atomic under the endpoint's lock; calls vcq.
#include "mr.h"

#include <cstring>

#include <rdma/fi_errno.h>

#include "address.h"
#include "av.h"
#include "region.h"
#include "request.h"

namespace tofu {

using directory::Bucket;
using directory::Entry;

namespace {
constexpr std::size_t first_known = 64;
constexpr std::size_t max_known = 16384;
constexpr unsigned max_tries = 256;   ///< Gets of a bucket that stays torn
constexpr std::size_t max_lookups = 64;
} // namespace

struct RemoteKeys::Known {
    std::uint64_t home = 0; ///< 0: a free place
    std::uint64_t nonce = 0;
    Entry entry{};
};

/// One key being looked up: a Get into `bucket`, which is registered as long as the lookup lives.
struct RemoteKeys::Lookup : vcq::Waiter {
    enum class State { idle, running, failed };
    RemoteKeys* owner = nullptr;
    State state = State::idle;
    std::uint64_t home = 0;
    std::uint64_t nonce = 0;
    std::uint64_t key = 0;
    int result = 0;          ///< of a failed one, for who asks next
    unsigned tries = 0;
    bool second = false;     ///< in the second table
    utofu_stadd_t remote = 0;
    utofu_stadd_t stadd = 0; ///< of bucket
    alignas(256) Bucket bucket{};
};

RemoteKeys::RemoteKeys(vcq::Vcq& vcq, bool provider_keys) noexcept
    : vcq_(vcq), provider_keys_(provider_keys)
{
}

RemoteKeys::~RemoteKeys()
{
    for (auto& lookup : lookups_)
        vcq_.dereg(lookup->stadd);
}

RemoteKeys::Known* RemoteKeys::recall(std::uint64_t home, std::uint64_t nonce,
                                      std::uint64_t key) noexcept
{
    if (known_.empty())
        return nullptr;
    Known& known = known_[directory::mix(home ^ nonce ^ directory::mix(key)) & (known_.size() - 1)];
    if (known.home == home && known.nonce == nonce && known.entry.key == key)
        return &known;
    return nullptr;
}

void RemoteKeys::remember(const Known& known) noexcept
{
    if (known_.empty())
        known_.resize(first_known);
    for (;;) {
        const std::uint64_t hash =
            directory::mix(known.home ^ known.nonce ^ directory::mix(known.entry.key));
        Known& place = known_[hash & (known_.size() - 1)];
        const bool same = place.home == known.home && place.nonce == known.nonce &&
                          place.entry.key == known.entry.key;
        if (place.home == 0 || same || known_.size() >= max_known) {
            place = known;
            return;
        }
        // A conflict: twice the size, and everything to its new place. What meets there is overwritten.
        std::vector<Known> old(known_.size() * 2);
        old.swap(known_);
        for (const Known& k : old)
            if (k.home != 0)
                known_[directory::mix(k.home ^ k.nonce ^ directory::mix(k.entry.key)) &
                       (known_.size() - 1)] = k;
    }
}

int RemoteKeys::resolve_by_directory(const Peer& peer, std::uint64_t key, std::uint64_t address,
                                     std::size_t length, std::uint64_t access,
                                     utofu_stadd_t& stadd) noexcept
{
    const Known* known = recall(peer.home, peer.nonce, key);
    if (known == nullptr) [[unlikely]] {
        if (int ret = look_up(peer, key); ret != 0)
            return ret;
        known = recall(peer.home, peer.nonce, key);
        if (known == nullptr)
            return -FI_EAGAIN;
    }
    const Entry& entry = known->entry;
    const std::uint32_t wanted = ((access & FI_REMOTE_READ) ? directory::right_read : 0) |
                                 ((access & FI_REMOTE_WRITE) ? directory::right_write : 0);
    if ((entry.rights & wanted) != wanted)
        return -FI_EACCES;
    const std::uint64_t offset = address - entry.begin;
    if (offset > entry.length || length > entry.length - offset)
        return -FI_EINVAL;
    stadd = entry.bias + address;
    return 0;
}

bool RemoteKeys::refuted(const Peer& peer, std::uint64_t key) noexcept
{
    if (provider_keys_)
        return false;
    if (Known* known = recall(peer.home, peer.nonce, key))
        known->home = 0;
    return true;
}

/// 0 when the key became known at once; else why not yet, or why never.
int RemoteKeys::look_up(const Peer& peer, std::uint64_t key) noexcept
{
    Lookup* lookup = nullptr;
    Lookup* idle = nullptr;
    for (auto& l : lookups_) {
        if (l->state == Lookup::State::idle)
            idle = l.get();
        else if (l->home == peer.home && l->nonce == peer.nonce && l->key == key)
            lookup = l.get();
    }
    if (lookup != nullptr) {
        if (lookup->state == Lookup::State::running)
            return -FI_EAGAIN;
        lookup->state = Lookup::State::idle; // its failure is told once; the next call asks again
        return lookup->result;
    }
    if (idle == nullptr) {
        if (lookups_.size() >= max_lookups) {
            // All places hold running lookups, or failures that nobody came back for: those give way.
            for (auto& l : lookups_)
                if (l->state == Lookup::State::failed)
                    idle = l.get();
            if (idle == nullptr)
                return -FI_EAGAIN;
        } else {
            std::unique_ptr<Lookup> made(new (std::nothrow) Lookup);
            if (!made)
                return -FI_ENOMEM;
            made->owner = this;
            made->notify = on_bucket;
            if (int ret = vcq_.reg(&made->bucket, sizeof(Bucket), false, made->stadd); ret != 0)
                return ret == -FI_ENOSPC ? -FI_EAGAIN : ret;
            lookups_.push_back(std::move(made));
            idle = lookups_.back().get();
        }
    }
    utofu_stadd_t base = 0;
    if (vcq_.query_stadd(peer.home, directory_stag, base) != 0)
        return -FI_EKEYREJECTED;
    idle->home = peer.home;
    idle->nonce = peer.nonce;
    idle->key = key;
    idle->second = false;
    idle->tries = 0;
    idle->state = Lookup::State::idle;
    const std::uint64_t bucket = directory::bucket_of(key, directory::first_log2);
    return start(*idle, base + bucket * sizeof(Bucket));
}

int RemoteKeys::start(Lookup& lookup, utofu_stadd_t stadd) noexcept
{
    lookup.remote = stadd;
    lookup.state = Lookup::State::running;
    const vcq::Post post =
        vcq_.get(lookup.home, lookup.stadd, stadd, sizeof(Bucket),
                 {.when = vcq::When::delivered, .strong_order = false, .remote_notice = false, .waiter = &lookup});
    if (post == vcq::Post::done)
        return -FI_EAGAIN;
    lookup.state = Lookup::State::idle;
    return post == vcq::Post::busy ? -FI_EAGAIN : -FI_EKEYREJECTED;
}

void RemoteKeys::finish(Lookup& lookup, int result) noexcept
{
    lookup.result = result;
    lookup.state = result == 0 ? Lookup::State::idle : Lookup::State::failed;
}

void RemoteKeys::on_bucket(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    auto& lookup = *static_cast<Lookup*>(waiter);
    RemoteKeys& self = *lookup.owner;
    if (notice.code != UTOFU_SUCCESS) {
        const bool no_directory = notice.code <= UTOFU_ERR_MRQ_LCL_MEMORY; // ... but a peer
        self.finish(lookup, no_directory ? -FI_EKEYREJECTED : -fi_error_of(notice.code));
        return;
    }
    Known known{lookup.home, lookup.nonce, {}};
    const Bucket& bucket = lookup.bucket;
    const auto found = directory::find(bucket, lookup.key, lookup.nonce, known.entry);
    if (found == directory::Found::entry) {
        self.remember(known);
        self.finish(lookup, 0);
        return;
    }
    utofu_stadd_t next = lookup.remote; // torn: once more
    if (found == directory::Found::absent) {
        if (lookup.second || bucket.next_stadd == 0) {
            self.finish(lookup, -FI_EKEYREJECTED);
            return;
        }
        next = bucket.next_stadd +
               directory::bucket_of(lookup.key, bucket.next_log2) * sizeof(Bucket);
        lookup.second = true;
    } else if (++lookup.tries >= max_tries) {
        self.finish(lookup, -FI_EKEYREJECTED);
        return;
    }
    if (self.start(lookup, next) != -FI_EAGAIN)
        self.finish(lookup, -FI_EKEYREJECTED);
}

} // namespace tofu
