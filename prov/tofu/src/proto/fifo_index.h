// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A hash table of queues: for each key the elements that have it, in the order they came. Used by the matcher;
// calls nothing. Elements carry their links, so that only growing the table allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
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
    [[nodiscard]] std::uint64_t hash() const noexcept
    {
        std::uint64_t h = (source ^ (tag * 0x9e3779b97f4a7c15) ^ kind) * 0xff51afd7ed558ccd;
        h ^= h >> 32;
        h *= 0xc4ceb9fe1a85ec53;
        return h ^ (h >> 29);
    }
};

/// Links of an element of T in one FifoIndex.
template <class T>
struct FifoLinks {
    MatchKey key{};
    T* next_head = nullptr; ///< heads only: other keys of the bucket
    T* prev_head = nullptr;
    T* next = nullptr;      ///< the same key, younger
    T* prev = nullptr;      ///< the same key, older; null for the head
    T* last = nullptr;      ///< heads only: the youngest
};

template <class T, FifoLinks<T> T::*Links>
class FifoIndex {
  public:
    FifoIndex() : buckets_(initial) {}

    void push(T& item, const MatchKey& key) noexcept
    {
        FifoLinks<T>& l = item.*Links;
        l = {};
        l.key = key;
        count_++;
        if (T* head = front(key)) {
            T* last = (head->*Links).last;
            l.prev = last;
            (last->*Links).next = &item;
            (head->*Links).last = &item;
            return;
        }
        if (++heads_ > buckets_.size()) [[unlikely]]
            grow();
        l.last = &item;
        insert_head(item);
    }

    /// The oldest with this key.
    [[nodiscard]] T* front(const MatchKey& key) const noexcept
    {
        for (T* h = buckets_[key.hash() & (buckets_.size() - 1)]; h; h = (h->*Links).next_head)
            if ((h->*Links).key == key)
                return h;
        return nullptr;
    }

    void remove(T& item) noexcept
    {
        FifoLinks<T>& l = item.*Links;
        count_--;
        if (l.prev != nullptr) { // not the head
            (l.prev->*Links).next = l.next;
            if (l.next != nullptr)
                (l.next->*Links).prev = l.prev;
            else
                (front(l.key)->*Links).last = l.prev;
            return;
        }
        T* heir = l.next;
        if (heir != nullptr) {
            FifoLinks<T>& h = heir->*Links;
            h.prev = nullptr;
            h.last = l.last;
            h.next_head = l.next_head;
            h.prev_head = l.prev_head;
        } else {
            heads_--;
        }
        T* replacement = heir != nullptr ? heir : l.next_head;
        if (l.prev_head != nullptr)
            (l.prev_head->*Links).next_head = replacement;
        else
            buckets_[l.key.hash() & (buckets_.size() - 1)] = replacement;
        if (l.next_head != nullptr)
            (l.next_head->*Links).prev_head = heir != nullptr ? heir : l.prev_head;
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
    static constexpr std::size_t initial = 256;

    void insert_head(T& item) noexcept
    {
        FifoLinks<T>& l = item.*Links;
        T*& bucket = buckets_[l.key.hash() & (buckets_.size() - 1)];
        l.prev_head = nullptr;
        l.next_head = bucket;
        if (bucket != nullptr)
            (bucket->*Links).prev_head = &item;
        bucket = &item;
    }

    [[gnu::noinline]] void grow() noexcept
    {
        std::vector<T*> old(buckets_.size() * 4);
        old.swap(buckets_);
        for (T* head : old)
            while (head != nullptr) {
                T* next = (head->*Links).next_head;
                insert_head(*head);
                head = next;
            }
    }

    std::vector<T*> buckets_;
    std::size_t heads_ = 0;
    std::size_t count_ = 0;
};

} // namespace tofu::proto
