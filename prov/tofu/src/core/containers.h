// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Containers that can refuse an insertion for lack of memory: allocates() turns std::bad_alloc into an answer. Maps,
// and a std::vector whose functions answer so (Array). A list through its elements (List) allocates nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <utility>
#include <vector>

namespace tofu {

/// Calls `change`, such as an insertion into a container of the standard library. False: no memory, and the container
/// is as it was.
template <class Change>
[[nodiscard]] bool allocates(Change&& change) noexcept
{
    try {
        change();
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

/// Memory of the C library, as of all that the provider allocates: programs may replace the operator new that throws.
template <class T>
struct Allocator {
    using value_type = T;
    Allocator() = default;
    template <class U>
    Allocator(const Allocator<U>&) noexcept
    {
    }
    [[nodiscard]] T* allocate(std::size_t count)
    {
        static_assert(alignof(T) <= alignof(std::max_align_t));
        if (void* const memory = std::calloc(count, sizeof(T)); memory != nullptr)
            return static_cast<T*>(memory);
        throw std::bad_alloc();
    }
    void deallocate(T* memory, std::size_t) noexcept { std::free(memory); }
    bool operator==(const Allocator&) const = default;
};

template <class Key, class Value>
using Map = std::map<Key, Value, std::less<Key>, Allocator<std::pair<const Key, Value>>>;
template <class Key, class Value>
using MultiMap = std::multimap<Key, Value, std::less<Key>, Allocator<std::pair<const Key, Value>>>;

template <class T>
class Array : public std::vector<T, Allocator<T>> {
    using Vector = std::vector<T, Allocator<T>>;

  public:
    /// Makes room for `count` elements in all, and for twice as many as before at least: callers ask for one more each
    /// time. False: no memory, and nothing has changed.
    [[nodiscard]] bool reserve(std::size_t count) noexcept
    {
        const std::size_t room = this->capacity();
        return count <= room || allocates([&] { Vector::reserve(std::max(count, 2 * room)); });
    }
    /// Adds an element at the end. False: no memory, and nothing has changed.
    [[nodiscard]] bool push(T item) noexcept
    {
        return allocates([&] { this->push_back(std::move(item)); });
    }
    /// push() where reserve() has made room before.
    void push_reserved(T item) noexcept { this->push_back(std::move(item)); }
    /// Removes the first element that is equal; those after it move up. False: there is none.
    bool erase(const T& item) noexcept
    {
        const auto found = std::find(this->begin(), this->end(), item);
        if (found == this->end())
            return false;
        Vector::erase(found);
        return true;
    }
};

/// Elements in a list, each linked by its member `next`. An element is in one such list at most.
template <class T, T* T::*next>
class List {
  public:
    List() = default;
    List(const List&) = delete;
    List& operator=(const List&) = delete;
    [[nodiscard]] T* first() const noexcept { return first_; }
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    void push_front(T& item) noexcept
    {
        item.*next = first_;
        if (first_ == nullptr)
            end_ = &(item.*next);
        first_ = &item;
    }
    void push_back(T& item) noexcept
    {
        item.*next = nullptr;
        *end_ = &item;
        end_ = &(item.*next);
    }
    /// Removes the first element of a list that is not empty.
    T& pop_front() noexcept
    {
        T& item = *first_;
        first_ = item.*next;
        if (first_ == nullptr)
            end_ = &first_;
        return item;
    }
    /// False: the item is not in the list.
    bool remove(const T& item) noexcept
    {
        T** link = &first_;
        while (*link != nullptr && *link != &item)
            link = &((*link)->*next);
        if (*link == nullptr)
            return false;
        *link = item.*next;
        if (*link == nullptr)
            end_ = link;
        return true;
    }
    /// Calls `visit` with each element, which may leave the list meanwhile.
    template <class Visit>
    void each(Visit&& visit) const noexcept
    {
        for (T *item = first_, *after = nullptr; item != nullptr; item = after) {
            after = item->*next;
            visit(*item);
        }
    }

  private:
    T* first_ = nullptr;
    T** end_ = &first_; ///< the next element is linked here
};

/// A list that any element leaves in a time that the number of others does not change: its member `back` is what points
/// to it.
template <class T, T* T::*next, T** T::*back>
class TwoWayList {
  public:
    TwoWayList() = default;
    TwoWayList(const TwoWayList&) = delete;
    TwoWayList& operator=(const TwoWayList&) = delete;
    void push_front(T& item) noexcept
    {
        item.*next = first_;
        item.*back = &first_;
        if (first_ != nullptr)
            first_->*back = &(item.*next);
        first_ = &item;
    }
    /// The item is in the list.
    void remove(T& item) noexcept
    {
        *(item.*back) = item.*next;
        if (item.*next != nullptr)
            (item.*next)->*back = item.*back;
    }
    template <class Visit>
    void each(Visit&& visit) const noexcept
    {
        for (T* item = first_; item != nullptr; item = item->*next)
            visit(*item);
    }

  private:
    T* first_ = nullptr;
};

} // namespace tofu
