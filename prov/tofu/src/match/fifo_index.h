// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A hash table of queues: for each key the elements that have it, in the order they came. Used by the matcher;
// calls nothing. Elements carry their links, so that only growing the table allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tofu::proto {

struct MatchKey {
    std::uint64_t source;
    std::uint64_t tag;
    std::uint32_t kind;

    friend bool operator==(const MatchKey& a, const MatchKey& b) noexcept
    {
        return a.source == b.source && a.tag == b.tag && a.kind == b.kind;
    }
    /// Its upper bits are good; sources are hashes themselves (peer_key).
    [[nodiscard]] std::uint64_t hash() const noexcept
    {
        return (source ^ (tag * 0x9e3779b97f4a7c15) ^ kind) * 0xff51afd7ed558ccd;
    }
};

/// Links of an element of T in one FifoIndex.
template <class T>
struct FifoLinks {
    MatchKey key{};
    T* next_head = nullptr; ///< heads only: other keys of the bucket
    T** from = nullptr;     ///< heads only: what points here, the bucket or another head's next_head
    T* next = nullptr;      ///< the same key, younger
    T* prev = nullptr;      ///< the same key, older; null for the head
    T* last = nullptr;      ///< heads only: the youngest
};

template <class T, FifoLinks<T> T::*Links>
class FifoIndex {
  public:
    FifoIndex() : buckets_(std::size_t{1} << initial_bits) {}

    void push(T& item, const MatchKey& key) noexcept
    {
        FifoLinks<T>& l = item.*Links;
        T** bucket = bucket_of(key);
        l.key = key;
        l.next = nullptr;
        count_++;
        if (T* head = find(*bucket, key)) {
            T* last = (head->*Links).last;
            l.prev = last;
            (last->*Links).next = &item;
            (head->*Links).last = &item;
            return;
        }
        l.prev = nullptr;
        l.last = &item;
        insert_head(item, bucket);
        if (++heads_ > buckets_.size()) [[unlikely]]
            grow();
    }

    /// The oldest with this key.
    [[nodiscard]] T* front(const MatchKey& key) const noexcept { return find(*bucket_of(key), key); }

    void remove(T& item) noexcept
    {
        FifoLinks<T>& l = item.*Links;
        count_--;
        T* const heir = l.next;
        if (l.prev != nullptr) { // not the head
            (l.prev->*Links).next = heir;
            if (heir != nullptr)
                (heir->*Links).prev = l.prev;
            else
                (front(l.key)->*Links).last = l.prev;
            return;
        }
        T* const other = l.next_head;
        if (heir != nullptr) {
            FifoLinks<T>& h = heir->*Links;
            h.prev = nullptr;
            h.last = l.last;
            h.next_head = other;
            h.from = l.from;
            *l.from = heir;
            if (other != nullptr)
                (other->*Links).from = &h.next_head;
            return;
        }
        heads_--;
        *l.from = other;
        if (other != nullptr)
            (other->*Links).from = l.from;
    }

    [[nodiscard]] std::size_t count() const noexcept { return count_; }

    /// The first for which `wanted` holds, in no order. Slow.
    template <class Wanted>
    [[nodiscard]] T* find_if(Wanted wanted) const noexcept
    {
        for (T* head : buckets_)
            for (; head != nullptr; head = (head->*Links).next_head)
                for (T* item = head; item != nullptr; item = (item->*Links).next)
                    if (wanted(*item))
                        return item;
        return nullptr;
    }

  private:
    static constexpr unsigned initial_bits = 8;

    [[nodiscard]] T** bucket_of(const MatchKey& key) const noexcept
    {
        return const_cast<T**>(buckets_.data()) + (key.hash() >> shift_);
    }
    [[nodiscard]] static T* find(T* head, const MatchKey& key) noexcept
    {
        while (head != nullptr && !((head->*Links).key == key))
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

    [[gnu::noinline]] void grow() noexcept
    {
        std::vector<T*> old(buckets_.size() * 4);
        old.swap(buckets_);
        shift_ -= 2;
        for (T* head : old)
            while (head != nullptr) {
                T* next = (head->*Links).next_head;
                insert_head(*head, bucket_of((head->*Links).key));
                head = next;
            }
    }

    std::vector<T*> buckets_;
    unsigned shift_ = 64 - initial_bits; ///< of a hash, to the number of its bucket
    std::size_t heads_ = 0;
    std::size_t count_ = 0;
};

} // namespace tofu::proto
