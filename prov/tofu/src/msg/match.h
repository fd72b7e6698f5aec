// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which receive takes which message. Queues by key (FifoIndex); the matching of posted receives and kept messages
// (Matcher), which are RecvRequest and Unexpected; the protocol behind kept messages (SrxPeer); sources as receives
// name them (SourceKeys); memory for both (SizedPool); the queue that the protocol matches with (MatchQueue), whose
// interface is that of libfabric's peers (fi_peer(3)). The application's calls are in msg/receive_queue.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

#include "av/peer_table.h"
#include "core/containers.h"
#include "core/pool.h"
#include "tx/tx_context.h"

namespace tofu::proto {

// --- FifoIndex: a hash table of queues: for each key, its elements in the order in which they came. Elements carry
// their links, so only growth of the table allocates.

struct MatchKey {
    std::uint64_t source;
    std::uint64_t tag;
    std::uint32_t kind;

    friend bool operator==(const MatchKey& a, const MatchKey& b) noexcept
    {
        return a.source == b.source && a.tag == b.tag && a.kind == b.kind;
    }
    /// The hash; its upper bits are used. Sources are hashes themselves (peer_key).
    [[nodiscard]] std::uint64_t hash() const noexcept
    {
        return (source ^ (tag * 0x9e3779b97f4a7c15) ^ kind) * 0xff51afd7ed558ccd;
    }
};

/// Links of an element of T in one FifoIndex, filled in by push(). The oldest with a key is the head of its queue.
template <class T>
struct FifoLinks {
    T* next;      ///< the same key, younger
    T* end;       ///< head: the youngest; else the same key, older
    T* next_head; ///< heads only: other keys of the bucket
    T** from;     ///< head: what points here, the bucket or another head's next_head; else null
};

/// `Key` returns an element's key, which does not change while the element is in the table.
template <class T, FifoLinks<T> T::*Links, MatchKey (*Key)(const T&) noexcept>
class FifoIndex {
  public:
    FifoIndex() noexcept : buckets_(new (std::nothrow) T*[std::size_t{1} << initial_bits]()) {}
    /// False: there was no memory, and the table is not usable.
    [[nodiscard]] bool valid() const noexcept { return buckets_ != nullptr; }

    void push(T& item) noexcept
    {
        FifoLinks<T>& l = item.*Links;
        const MatchKey key = Key(item);
        T** bucket = bucket_of(key);
        l.next = nullptr;
        count_++;
        if (T* head = find(*bucket, key)) {
            FifoLinks<T>& h = head->*Links;
            l.from = nullptr;
            l.end = h.end;
            (h.end->*Links).next = &item;
            h.end = &item;
            return;
        }
        l.end = &item;
        insert_head(item, bucket);
        if (++heads_ >> (64 - shift_) != 0) [[unlikely]]
            grow();
    }

    /// The oldest element with this key, or null.
    [[nodiscard]] T* front(const MatchKey& key) const noexcept { return find(*bucket_of(key), key); }

    void remove(T& item) noexcept
    {
        FifoLinks<T>& l = item.*Links;
        count_--;
        T* const heir = l.next;
        if (l.from == nullptr) { // not the head
            (l.end->*Links).next = heir;
            ((heir != nullptr ? heir : front(Key(item)))->*Links).end = l.end;
            return;
        }
        T* const other = l.next_head;
        T** next = l.from;
        if (heir != nullptr) {
            FifoLinks<T>& h = heir->*Links;
            h.end = l.end;
            h.from = l.from;
            *l.from = heir;
            next = &h.next_head;
        } else {
            heads_--;
        }
        *next = other;
        if (other != nullptr)
            (other->*Links).from = next;
    }

    [[nodiscard]] std::size_t count() const noexcept { return count_; }

    /// Some element for which `wanted` holds, or null. Slow.
    template <class Wanted>
    [[nodiscard]] T* find_if(Wanted wanted) const noexcept
    {
        for (std::size_t i = 0; i >> (64 - shift_) == 0; i++)
            for (T* head = buckets_[i]; head != nullptr; head = (head->*Links).next_head)
                for (T* item = head; item != nullptr; item = (item->*Links).next)
                    if (wanted(*item))
                        return item;
        return nullptr;
    }

  private:
    static constexpr unsigned initial_bits = 8;

    [[nodiscard]] T** bucket_of(const MatchKey& key) const noexcept { return &buckets_[key.hash() >> shift_]; }
    [[nodiscard]] static T* find(T* head, const MatchKey& key) noexcept
    {
        while (head != nullptr && !(Key(*head) == key))
            head = (head->*Links).next_head;
        return head;
    }
    static void insert_head(T& item, T** bucket) noexcept
    {
        FifoLinks<T>& l = item.*Links;
        l.from = bucket;
        l.next_head = *bucket;
        if (l.next_head != nullptr)
            (l.next_head->*Links).from = &l.next_head;
        *bucket = &item;
    }

    /// Doubles the number of buckets. Without memory for that, the chains get longer.
    [[gnu::noinline]] void grow() noexcept
    {
        const std::size_t size = std::size_t{1} << (64 - shift_);
        std::unique_ptr<T*[]> old(new (std::nothrow) T*[size * 4]());
        if (old == nullptr)
            return;
        old.swap(buckets_);
        shift_ -= 2;
        for (std::size_t i = 0; i < size; i++)
            for (T* head = old[i]; head != nullptr;) {
                T* next = (head->*Links).next_head;
                insert_head(*head, bucket_of(Key(*head)));
                head = next;
            }
    }

    std::unique_ptr<T*[]> buckets_;      ///< 2^(64 - shift_)
    unsigned shift_ = 64 - initial_bits; ///< of a hash, to the number of its bucket
    std::size_t heads_ = 0;
    std::size_t count_ = 0;
};

// --- Matcher: messages match in the order they came from a peer, receives in the order they were posted
// (fi_tagged(3)). Cost. Few receives, and few messages that came early, are compared one by one; the oldest early
// message is always tried first. Beyond that, a posted receive belongs to a *kind*: its mask of ignored bits, and
// whether it names its source. A message makes one lookup in a hash table per kind in use, whatever the number of
// receives, and takes the oldest receive found. MPI uses a handful of kinds. Receives of more than max_kinds kinds wait
// in one list that is searched. A receive finds early messages by (source, tag), or by tag alone, through hash tables;
// only with ignored bits it searches the list.

inline constexpr std::uint64_t any_source = 0; ///< no peer's key is 0

/// Base of a posted receive.
struct Posted {
    std::uint64_t source = any_source;
    std::uint64_t tag = 0;
    std::uint64_t ignore = 0; ///< bits of the tag that do not matter
    // --- in the tables only
    std::uint64_t order; ///< counts the posts
    FifoLinks<Posted> links;
    std::uint32_t kind;

    static constexpr unsigned max_kinds = 16;
    static constexpr std::uint32_t overflow_kind = max_kinds;
    /// Does the receive take a message of this source with this tag?
    [[nodiscard]] bool takes(std::uint64_t from, std::uint64_t with_tag) const noexcept
    {
        return (source == any_source || source == from) && ((tag ^ with_tag) & ~ignore) == 0;
    }
    [[nodiscard]] static MatchKey key(const Posted& r) noexcept
    {
        if (r.kind == overflow_kind) [[unlikely]]
            return {0, 0, overflow_kind};
        return {r.source, r.tag & ~r.ignore, r.kind};
    }
};

/// Base of a message that came before its receive.
struct Arrived {
    std::uint64_t source = 0;
    std::uint64_t tag = 0;
    Arrived* next = nullptr; ///< in the list of all, in order of arrival
    Arrived* prev = nullptr;
    FifoLinks<Arrived> by_both;
    FifoLinks<Arrived> by_tag;

    /// Would a receive with these take the message?
    [[nodiscard]] bool suits(std::uint64_t from, std::uint64_t with_tag, std::uint64_t ignore) const noexcept
    {
        return (from == any_source || source == from) && ((tag ^ with_tag) & ~ignore) == 0;
    }
    [[nodiscard]] static MatchKey both(const Arrived& m) noexcept { return {m.source, m.tag, 0}; }
    [[nodiscard]] static MatchKey tag_alone(const Arrived& m) noexcept { return {0, m.tag, 0}; }
};

class Matcher {
  public:
    /// False: there was no memory, and the matcher is not usable.
    [[nodiscard]] bool valid() const noexcept { return posted_.valid() && by_both_.valid() && by_tag_.valid(); }

    // --- inline: the way of each expected message
    void post(Posted& receive) noexcept
    {
        if (has_room_for_few()) [[likely]]
            post_few(receive);
        else
            enter(receive);
    }
    [[nodiscard]] bool has_room_for_few() const noexcept { return few_posted_ < few_receives && posted_.count() == 0; }
    void post_few(Posted& receive) noexcept { few_[few_posted_++] = &receive; }
    void withdraw(Posted& receive) noexcept
    {
        if (few_posted_ != 0) [[likely]] {
            Posted** at = few_;
            while (*at != &receive)
                at++;
            drop_few(at);
            return;
        }
        posted_.remove(receive);
        if (receive.kind == overflow_kind) [[unlikely]]
            overflow_count_--;
        else if (--kinds_[receive.kind].count == 0 && kinds_used_ > kept_kinds) [[unlikely]]
            drop_kinds();
    }
    /// The receive that takes a message of `source` with `tag`, or null. It stays posted until it is withdrawn.
    [[nodiscard, gnu::always_inline]] Posted* match(std::uint64_t source, std::uint64_t tag) const noexcept
    {
        for (unsigned i = 0; i < few_posted_; i++)
            if (few_[i]->takes(source, tag)) [[likely]]
                return few_[i];
        return posted_.count() == 0 ? nullptr : match_tables(source, tag);
    }
    /// As match(), for few receives, which are compared one by one. Null: no receive, or there are more. drop_few()
    /// withdraws it.
    [[nodiscard, gnu::always_inline]] Posted** match_few(std::uint64_t source, std::uint64_t tag) noexcept
    {
        for (Posted** at = few_; at < few_ + few_posted_; at++)
            if ((*at)->takes(source, tag)) [[likely]]
                return at;
        return nullptr;
    }
    [[gnu::always_inline]] void drop_few(Posted** at) noexcept
    {
        for (Posted** const last = few_ + --few_posted_; at < last; at++)
            *at = at[1];
    }
    [[nodiscard, gnu::noinline]] Posted* match_tables(std::uint64_t source, std::uint64_t tag) const noexcept
    {
        Posted* best = nullptr;
        for (std::uint32_t k = 0; k < kinds_used_; k++) {
            const Kind& kind = kinds_[k];
            if (kind.count == 0)
                continue;
            Posted* p = posted_.front({kind.directed ? source : any_source, tag & ~kind.ignore, k});
            if (p != nullptr && (best == nullptr || p->order < best->order))
                best = p;
        }
        if (overflow_count_ != 0) [[unlikely]]
            return older(best, match_overflow(source, tag));
        return best;
    }
    template <class Wanted>
    [[nodiscard]] Posted* find_posted(Wanted wanted) const noexcept
    {
        for (unsigned i = 0; i < few_posted_; i++)
            if (wanted(*few_[i]))
                return few_[i];
        return posted_.find_if(wanted);
    }
    [[nodiscard]] std::size_t posted() const noexcept { return few_posted_ + posted_.count(); }

    void keep(Arrived& message) noexcept;
    void drop(Arrived& message) noexcept;
    /// The oldest message that a receive with these would take, or null.
    [[nodiscard]] Arrived* find(std::uint64_t source, std::uint64_t tag, std::uint64_t ignore) noexcept;
    [[nodiscard]] Arrived* first() const noexcept { return first_; }
    [[nodiscard]] std::size_t arrived() const noexcept { return arrived_; }

  private:
    static constexpr unsigned max_kinds = Posted::max_kinds;
    static constexpr std::uint32_t overflow_kind = Posted::overflow_kind;
    static constexpr unsigned few_receives = 8; ///< up to this number they are compared one by one
    static constexpr unsigned few_messages = 16;
    static constexpr unsigned kept_kinds = 4; ///< remembered without a receive: the next one is likely of the same kind
    struct Kind {
        std::uint64_t ignore;
        bool directed;
        std::size_t count;
    };
    [[gnu::noinline]] void enter(Posted& receive) noexcept;
    void enter(Arrived& message) noexcept;
    [[nodiscard]] std::uint32_t kind_of(std::uint64_t ignore, bool directed) noexcept
    {
        if (kinds_[last_kind_].ignore == ignore && kinds_[last_kind_].directed == directed && last_kind_ < kinds_used_)
            [[likely]]
            return last_kind_;
        return other_kind(ignore, directed);
    }
    [[nodiscard, gnu::noinline]] std::uint32_t other_kind(std::uint64_t ignore, bool directed) noexcept;
    [[gnu::noinline]] void drop_kinds() noexcept;
    [[nodiscard]] static Posted* older(Posted* a, Posted* b) noexcept
    {
        return a == nullptr || (b != nullptr && b->order < a->order) ? b : a;
    }
    [[nodiscard, gnu::noinline]] Posted* match_overflow(std::uint64_t source, std::uint64_t tag) const noexcept;

    Posted* few_[few_receives] = {}; ///< all posted receives, in their order; empty while the tables have them
    unsigned few_posted_ = 0;
    Kind kinds_[max_kinds] = {};
    unsigned kinds_used_ = 0; ///< one past the last kind that has been in use
    std::uint32_t last_kind_ = 0;
    std::size_t overflow_count_ = 0;
    std::uint64_t next_order_ = 1;
    FifoIndex<Posted, &Posted::links, Posted::key> posted_;

    Arrived* first_ = nullptr;
    Arrived* last_ = nullptr;
    std::size_t arrived_ = 0;
    bool indexed_ = false; ///< the tables have all early messages, until none is left; false: they have none
    FifoIndex<Arrived, &Arrived::by_both, Arrived::both> by_both_;
    FifoIndex<Arrived, &Arrived::by_tag, Arrived::tag_alone> by_tag_;
};

// --- RecvRequest, Unexpected: a posted receive, and a message that came before its receive

class SrxPeer;

/// The flags of a receive's completion entry.
inline constexpr std::uint64_t recv_entry_flags(bool tagged) noexcept
{
    return FI_RECV | (tagged ? FI_TAGGED : FI_MSG);
}

/// Flags of a receive that uses no buffer (fi_tagged(3)): its segments are ignored.
inline constexpr std::uint64_t no_buffer_flags = FI_PEEK | FI_DISCARD;

/// What a call asks for: one receive, in any form of the call.
struct RecvCall {
    const iovec* iov = nullptr;
    void* const* desc = nullptr;
    std::size_t count = 0;
    fi_addr_t source = FI_ADDR_UNSPEC;
    std::uint64_t tag = 0;
    std::uint64_t ignore = 0;
    std::uint64_t flags = 0;
    void* context = nullptr;
    bool tagged = false;
};

/// A posted receive. Its list of buffers follows it in memory.
struct RecvRequest : Posted {
    struct Buffer : iovec {
        void* desc;
    };
    bool tagged = false;
    bool multi = false; ///< FI_MULTI_RECV
    bool posted = false;
    bool behind = false;    ///< multi: a message that came before it waits for room to be received (ReceiveQueue)
    bool cancelled = false; ///< multi: over when the messages on their way into it have ended
    std::uint8_t count = 0;
    std::uint32_t users = 0; ///< multi: messages still on their way into it
    void* context = nullptr;
    std::uint64_t flags = 0; ///< as posted
    std::size_t length = 0;
    std::size_t used = 0;     ///< multi: bytes given to messages
    std::size_t min_left = 0; ///< multi: with less room than this it is over

    /// Takes over everything from the call but its segments.
    void fill(const RecvCall& call, std::uint64_t key) noexcept
    {
        Posted::source = key;
        tag = call.tag;
        ignore = call.ignore;
        context = call.context;
        flags = call.flags;
        tagged = call.tagged;
    }
    [[nodiscard]] static constexpr std::size_t size_with(std::size_t count) noexcept
    {
        return sizeof(RecvRequest) + count * sizeof(Buffer);
    }
    [[nodiscard]] Buffer* buffers() noexcept { return reinterpret_cast<Buffer*>(this + 1); }
    [[nodiscard]] bool exhausted() const noexcept { return !multi || used == length || length - used < min_left; }
    /// Is it a multi-receive that has room for another message after one of `size` bytes?
    [[nodiscard]] bool lives_on(std::size_t size) const noexcept
    {
        const std::size_t left = length - used;
        return multi && size < left && left - size >= min_left;
    }
    /// Where the next message is placed; null: no byte is left.
    [[nodiscard]] void* place() noexcept;
    /// Gives the next `want` bytes, or as many as are left, to a message. Returns how many.
    std::size_t take(std::size_t want, iovec* into, std::uint8_t& into_count) noexcept;
    /// Reports that the receive was cancelled: an entry with FI_ECANCELED, and one count. Its buffer is the
    /// application's again (FI_MULTI_RECV).
    void report_cancelled(const RxContext& rx) const noexcept;
};

/// A message that came before its receive. The protocol's part of it, such as the payload, follows it in memory and
/// takes no more than it needs, since there may be many.
struct Unexpected : Arrived {
    SrxPeer* peer = nullptr;      ///< the protocol through which it came
    RecvRequest* owned = nullptr; ///< names it to another provider that owns the receives (msg/receive_queue.h)
    bool tagged = false;
    bool has_data = false;
    bool claimed = false; ///< by FI_PEEK | FI_CLAIM
    std::uint32_t body_size = 0;
    std::uint64_t data = 0;
    std::size_t length = 0;

    [[nodiscard]] std::size_t size() const noexcept { return sizeof(Unexpected) + body_size; }
    [[nodiscard]] std::byte* body() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
    [[nodiscard]] const std::byte* body() const noexcept { return reinterpret_cast<const std::byte*>(this + 1); }
};

// --- SrxPeer: what the receive queue asks of the protocol through which messages come, modelled on the peers of a
// shared receive context in libfabric (fi_peer(3), fi_ops_srx_peer). None of it is called for a message that finds its
// receive at once.

class SrxPeer {
  public:
    SrxPeer(const RxContext& rx, const Peers& peers) noexcept : rx(rx), peers(peers) {}
    SrxPeer(const SrxPeer&) = delete;
    SrxPeer& operator=(const SrxPeer&) = delete;

    /// start_msg, start_tag: the message has found its receive; moves it there. False: there is no room now, and
    /// nothing has happened.
    [[nodiscard]] virtual bool start(RecvRequest& receive, Unexpected& message) noexcept = 0;
    /// discard_msg, discard_tag: the message is discarded; its sender is notified as if it had been received. False: as
    /// above.
    [[nodiscard]] virtual bool discard(Unexpected& message) noexcept = 0;
    /// The queue has dropped the message and frees its memory when this returns.
    virtual void forgotten(Unexpected& message) noexcept = 0;
    /// The address of the sender, where completions report it (FI_SOURCE); else FI_ADDR_NOTAVAIL.
    [[nodiscard]] virtual fi_addr_t source_of(const Unexpected& message) noexcept = 0;
    /// Makes some progress; `everywhere`: looks for messages of new senders, too.
    virtual void progress(bool everywhere) noexcept = 0;

    /// Where receives that no message takes are reported, and the address vector of sources.
    const RxContext& rx;
    const Peers& peers;

  protected:
    ~SrxPeer() = default;
};

// --- SourceKeys: from the source address of a receive to the key of that peer, which is compared with the key of a
// message's sender

class SourceKeys {
  public:
    /// `directed`: FI_DIRECTED_RECV; without it the source argument of receives is ignored (fi_msg(3)). The address
    /// vector is that of the endpoints that have joined.
    SourceKeys(bool directed, const Array<SrxPeer*>& members) noexcept : directed_(directed), members_(members) {}
    /// 0 and the key, or -FI_EINVAL: no peer has this address.
    [[nodiscard]] int find(fi_addr_t source, std::uint64_t& key) noexcept
    {
        return find_recent(source, key) ? 0 : look_up(source, key);
    }
    /// Inline, for a source that was asked for lately. False: call find().
    [[nodiscard, gnu::always_inline]] bool find_recent(fi_addr_t source, std::uint64_t& key) const noexcept
    {
        key = any_source;
        if (!directed_ || source == FI_ADDR_UNSPEC)
            return true;
        const Found& found = recent_.at(source);
        key = found.key;
        return source == found.address && members_[0]->peers.generation() == found.generation;
    }
    /// An endpoint has left: forgets the keys found so far.
    void forget() noexcept { recent_ = {}; }

  private:
    [[nodiscard, gnu::noinline]] int look_up(fi_addr_t source, std::uint64_t& key) noexcept;

    const bool directed_;
    const Array<SrxPeer*>& members_;
    /// A key found earlier; valid as long as the address vector has not changed.
    struct Found {
        fi_addr_t address = FI_ADDR_UNSPEC;
        std::uint32_t generation = 0;
        std::uint64_t key = any_source;
    };
    Recent<Found> recent_;
};

// --- SizedPool: memory for receives and messages that wait to be matched. Each record takes its size, in steps of 16
// bytes, out of chunks that are freed when no record is in use.

class SizedPool {
  public:
    SizedPool() = default;
    SizedPool(const SizedPool&) = delete;
    SizedPool& operator=(const SizedPool&) = delete;
    ~SizedPool() { drop(nullptr); }

    /// Null: no memory.
    [[nodiscard]] void* alloc(std::size_t size) noexcept
    {
        if (size > largest) [[unlikely]]
            return std::malloc(size);
        void* const item = recycle(size);
        return item != nullptr ? item : carve(size);
    }
    /// A record of this size, `largest` at most, that was in use before. Null: there is none; call alloc().
    [[nodiscard, gnu::always_inline]] void* recycle(std::size_t size) noexcept
    {
        Free*& first = free_[steps(size)];
        Free* const item = first;
        if (item == nullptr) [[unlikely]]
            return nullptr;
        first = item->next;
        live_++;
        return item;
    }
    /// `size`: as given to alloc.
    [[gnu::always_inline]] void release(void* item, std::size_t size) noexcept
    {
        if (size > largest) [[unlikely]] {
            std::free(item);
            return;
        }
        Free*& first = free_[steps(size)];
        first = ::new (item) Free{first};
        if (--live_ == 0 && chunks_->next != nullptr) [[unlikely]]
            restart();
    }

  private:
    struct Free {
        Free* next;
    };
    struct Chunk {
        Chunk* next;
        std::size_t unused; ///< keeps what follows at a multiple of 16
    };
    static constexpr std::size_t step = 16;
    static constexpr std::size_t largest = 1024;
    static constexpr std::size_t chunk_size = 65536 - 64; ///< with malloc's own words less than 64 KiB

    static constexpr std::size_t steps(std::size_t size) noexcept { return (size + step - 1) / step; }

    [[gnu::noinline]] void* carve(std::size_t size) noexcept
    {
        const std::size_t bytes = steps(size) * step;
        if (left_ < bytes) {
            auto* chunk = static_cast<Chunk*>(std::malloc(chunk_size));
            if (chunk == nullptr)
                return nullptr;
            chunk->next = chunks_;
            chunks_ = chunk;
            left_ = chunk_size - sizeof(Chunk);
        }
        live_++;
        left_ -= bytes;
        return reinterpret_cast<std::byte*>(chunks_) + sizeof(Chunk) + left_;
    }
    /// Frees all chunks but one, when no record is in use.
    [[gnu::noinline]] void restart() noexcept
    {
        drop(chunks_);
        for (Free*& first : free_)
            first = nullptr;
        left_ = chunk_size - sizeof(Chunk);
    }
    void drop(Chunk* but) noexcept
    {
        while (chunks_ != nullptr) {
            Chunk* const chunk = chunks_;
            chunks_ = chunk->next;
            if (chunk != but)
                std::free(chunk);
        }
        chunks_ = but;
        if (but != nullptr)
            but->next = nullptr;
    }

    Free* free_[largest / step + 1] = {};
    Chunk* chunks_ = nullptr; ///< records are cut from the first, starting at its end
    std::size_t left_ = 0;    ///< bytes left in the first
    std::size_t live_ = 0;
};

// --- MatchQueue: posted receives and unexpected messages, as the protocol sees them: those of an endpoint, or of a
// shared receive context, where messages of several endpoints meet. The protocol uses it to match, the receive queue
// (receive_queue.h) to post. The two seams are those of a peer SRX in libfabric 2 (fi_peer(3)): get_entry is get_msg
// and get_tag, alloc_entry what they give where no receive is posted, queue_entry is queue_msg and queue_tag; SrxPeer
// has start and discard. So another provider can take the application's place, and post its receives as their messages
// come (receive_queue.h).

class SrxOwner;

/// Everything is called under the lock of the endpoints that it serves; endpoints with a shared context share one
/// (DomainBase::shared_lock).
class MatchQueue {
  public:
    MatchQueue(const MatchQueue&) = delete;
    MatchQueue& operator=(const MatchQueue&) = delete;
    /// False: there was no memory, and the queue is not usable.
    [[nodiscard]] bool valid() const noexcept { return tagged_.valid() && plain_.valid(); }

    // --- the endpoints that it serves
    /// From now on messages come through this peer. The first peer that has joined reports what belongs to no message:
    /// cancelled receives and answers to FI_PEEK. 0 or -FI_ENOMEM.
    [[nodiscard]] int join(SrxPeer& peer) noexcept { return members_.push(&peer) ? 0 : -FI_ENOMEM; }
    /// The receive context of the first peer that has joined; null: none has.
    [[nodiscard]] const RxContext* context() const noexcept { return members_.empty() ? nullptr : &members_[0]->rx; }

    // --- receives
    /// The receives of one kind, for the fast path of a message: a receive that is withdrawn there has to be freed.
    [[nodiscard]] Matcher& matcher(bool tagged) noexcept { return tagged ? tagged_ : plain_; }
    /// The receive that takes a message; it stays posted until it is withdrawn. Null: call alloc_entry, then
    /// queue_entry.
    [[nodiscard]] RecvRequest* get_entry(bool tagged, std::uint64_t source, std::uint64_t tag) noexcept
    {
        return static_cast<RecvRequest*>(matcher(tagged).match(source, tag));
    }
    [[gnu::always_inline]] void post(RecvRequest& receive) noexcept
    {
        matcher(receive.tagged).post(receive);
        receive.posted = true;
    }
    void withdraw(RecvRequest& receive) noexcept
    {
        matcher(receive.tagged).withdraw(receive);
        receive.posted = false;
    }
    /// Reports a cancelled receive, to which no message is on its way any more, and frees it. `last` reports where no
    /// peer is left.
    void end_cancelled(RecvRequest& receive, const RxContext& last) noexcept;
    /// Of a receive with one buffer.
    void free_single(RecvRequest& receive) noexcept { pool_.release(&receive, RecvRequest::size_with(1)); }
    void free_entry(RecvRequest& receive) noexcept { pool_.release(&receive, RecvRequest::size_with(receive.count)); }
    /// The first posted receive for which `wanted` holds, or null.
    template <class Wanted>
    [[nodiscard]] RecvRequest* find_posted(Wanted wanted) const noexcept
    {
        const auto as_posted = [&](const Posted& p) {
            return wanted(const_cast<RecvRequest&>(static_cast<const RecvRequest&>(p)));
        };
        Posted* const found = tagged_.find_posted(as_posted);
        return static_cast<RecvRequest*>(found != nullptr ? found : plain_.find_posted(as_posted));
    }

    // --- messages that came early
    /// Memory for a message that no receive takes, with `body_size` bytes for the protocol. Null: no memory.
    [[nodiscard]] Unexpected* alloc_entry(std::size_t body_size) noexcept;
    /// Keeps a message, which the protocol has filled in, until a receive takes it.
    void queue_entry(Unexpected& message) noexcept { matcher(message.tagged).keep(message); }
    /// Frees a message that was not queued.
    void free_entry(Unexpected& message) noexcept;
    /// Removes and frees a queued message, which a receive has taken or which is discarded.
    void forget(Unexpected& message) noexcept;
    /// Does a message for which `wanted` holds and that came through `peer` wait for its receive?
    template <class Wanted>
    [[nodiscard]] bool holds(const SrxPeer& peer, Wanted&& wanted) const noexcept
    {
        for (const Matcher* m : {&tagged_, &plain_})
            for (const Arrived* a = m->first(); a != nullptr; a = a->next)
                if (const auto& kept = static_cast<const Unexpected&>(*a); kept.peer == &peer && wanted(kept))
                    return true;
        return false;
    }
    /// Calls `visit` with each message that waits for its receive; `visit` may forget() it.
    template <class Visit>
    void visit_kept(Visit visit) noexcept
    {
        for (Matcher* m : {&tagged_, &plain_})
            for (Arrived* a = m->first(); a != nullptr;) {
                auto& kept = *static_cast<Unexpected*>(a);
                a = a->next;
                visit(kept);
            }
    }

    // --- receives that another provider owns. owner() is null where the application posts them
    void belong_to(SrxOwner& owner) noexcept { owner_ = &owner; }
    [[nodiscard]] SrxOwner* owner() const noexcept { return owner_; }
    [[nodiscard]] SizedPool& pool() noexcept { return pool_; }

  protected:
    MatchQueue() noexcept;
    ~MatchQueue() = default;
    /// Drops the messages that came through the peer and wait for their receives.
    void leave(SrxPeer& peer) noexcept;

    Matcher tagged_; // the matchers come first, since every message needs one
    Matcher plain_;
    SizedPool pool_; ///< memory of receives and messages
    Array<SrxPeer*> members_;

  private:
    std::size_t kept_limit_; ///< bytes of unexpected messages, at most
    std::size_t kept_bytes_ = 0;
    SrxOwner* owner_ = nullptr;
};

} // namespace tofu::proto
