// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A hash table of queues: for each key, its elements in the order in which they came. Elements carry their links, so
// only growth of the table allocates. Used by the matcher; calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace tofu::proto {

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

/// `Key` tells an element's key, which does not change while it is in here.
template <class T, FifoLinks<T> T::*Links, MatchKey (*Key)(const T&) noexcept>
class FifoIndex {
  public:
    FifoIndex() noexcept : buckets_(new (std::nothrow) T*[std::size_t{1} << initial_bits]()) {}
    /// False: there was no memory, and the table can't be used.
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

    std::unique_ptr<T*[]> buckets_; ///< 2^(64 - shift_)
    unsigned shift_ = 64 - initial_bits; ///< of a hash, to the number of its bucket
    std::size_t heads_ = 0;
    std::size_t count_ = 0;
};

} // namespace tofu::proto
