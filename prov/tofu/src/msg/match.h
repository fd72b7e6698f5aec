// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which receive takes which message: queues by key (FifoIndex), and the matching of posted receives and kept messages
// (Matcher) by source and tag. msg/match_queue.h says what else a receive and a message are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace tofu::proto {

// --- FifoIndex: a hash table of queues: for each key, its elements in the order in which they came. Elements carry
// their links, so only growth of the table allocates.

struct MatchKey {
    std::uint64_t source;
    std::uint64_t tag;
    std::uint32_t kind;

    bool operator==(const MatchKey&) const noexcept = default;
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
        T* const successor = l.next;
        if (l.from == nullptr) { // not the head
            (l.end->*Links).next = successor;
            ((successor != nullptr ? successor : front(Key(item)))->*Links).end = l.end;
            return;
        }
        T* const other = l.next_head;
        T** next = l.from;
        if (successor != nullptr) {
            FifoLinks<T>& h = successor->*Links;
            h.end = l.end;
            h.from = l.from;
            *l.from = successor;
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
struct UnexpectedLinks {
    std::uint64_t source = 0;
    std::uint64_t tag = 0;
    UnexpectedLinks* next = nullptr; ///< in the list of all, in order of arrival
    UnexpectedLinks* prev = nullptr;
    FifoLinks<UnexpectedLinks> by_both;
    FifoLinks<UnexpectedLinks> by_tag;

    /// Would a receive with these take the message?
    [[nodiscard]] bool suits(std::uint64_t from, std::uint64_t with_tag, std::uint64_t ignore) const noexcept
    {
        return (from == any_source || source == from) && ((tag ^ with_tag) & ~ignore) == 0;
    }
    [[nodiscard]] static MatchKey both(const UnexpectedLinks& m) noexcept { return {m.source, m.tag, 0}; }
    [[nodiscard]] static MatchKey tag_alone(const UnexpectedLinks& m) noexcept { return {0, m.tag, 0}; }
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

    // --- inline: the way of each message that comes early
    void keep(UnexpectedLinks& message) noexcept
    {
        message.next = nullptr;
        message.prev = last_;
        (last_ != nullptr ? last_->next : first_) = &message;
        last_ = &message;
        arrived_++;
        if (indexed_) [[unlikely]]
            enter(message);
    }
    void drop(UnexpectedLinks& message) noexcept
    {
        (message.prev != nullptr ? message.prev->next : first_) = message.next;
        (message.next != nullptr ? message.next->prev : last_) = message.prev;
        arrived_--;
        if (indexed_) [[unlikely]]
            leave(message);
    }
    /// The oldest message that a receive with these would take, or null. A program that receives in order of arrival
    /// needs no table, however far behind it is.
    [[nodiscard]] UnexpectedLinks* find(std::uint64_t source, std::uint64_t tag, std::uint64_t ignore) noexcept
    {
        return first_ == nullptr || first_->suits(source, tag, ignore) ? first_ : search(source, tag, ignore);
    }
    [[nodiscard]] UnexpectedLinks* first() const noexcept { return first_; }
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
    [[gnu::noinline]] void enter(UnexpectedLinks& message) noexcept;
    [[gnu::noinline]] void leave(UnexpectedLinks& message) noexcept;
    [[nodiscard, gnu::noinline]] UnexpectedLinks* search(std::uint64_t source, std::uint64_t tag,
                                                         std::uint64_t ignore) noexcept;
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

    UnexpectedLinks* first_ = nullptr;
    UnexpectedLinks* last_ = nullptr;
    std::size_t arrived_ = 0;
    bool indexed_ = false; ///< the tables have all early messages, until none is left; false: they have none
    FifoIndex<UnexpectedLinks, &UnexpectedLinks::by_both, UnexpectedLinks::both> by_both_;
    FifoIndex<UnexpectedLinks, &UnexpectedLinks::by_tag, UnexpectedLinks::tag_alone> by_tag_;
};

} // namespace tofu::proto
