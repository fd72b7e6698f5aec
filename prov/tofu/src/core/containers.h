// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Arrays (Array) and maps (SpareNodeMap) that can refuse an insertion for lack of memory, since the provider is built
// without exceptions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <utility>

namespace tofu {

template <class T>
class Array {
  public:
    /// Makes room for `count` elements in all. False: no memory, and nothing has changed.
    [[nodiscard]] bool reserve(std::size_t count) noexcept { return count <= room_ || grow(count); }
    /// Adds an element at the end. False: no memory, and nothing has changed.
    [[nodiscard]] bool push(T item) noexcept
    {
        if (size_ == room_ && !grow(size_ + 1)) [[unlikely]]
            return false;
        items_[size_++] = std::move(item);
        return true;
    }
    /// push() where reserve() has made room before.
    void push_reserved(T item) noexcept { items_[size_++] = std::move(item); }
    void pop_back() noexcept { items_[--size_] = T{}; }
    /// Removes the first element that is equal; those after it move up. False: there is none.
    bool erase(const T& item) noexcept
    {
        T* const found = std::find(begin(), end(), item);
        if (found == end())
            return false;
        std::move(found + 1, end(), found);
        pop_back();
        return true;
    }
    void clear() noexcept
    {
        while (size_ != 0)
            pop_back();
    }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] T& operator[](std::size_t i) noexcept { return items_[i]; }
    [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return items_[i]; }
    [[nodiscard]] T& back() noexcept { return items_[size_ - 1]; }
    [[nodiscard]] const T& back() const noexcept { return items_[size_ - 1]; }
    [[nodiscard]] T* begin() noexcept { return items_.get(); }
    [[nodiscard]] T* end() noexcept { return items_.get() + size_; }
    [[nodiscard]] const T* begin() const noexcept { return items_.get(); }
    [[nodiscard]] const T* end() const noexcept { return items_.get() + size_; }

  private:
    [[nodiscard, gnu::noinline]] bool grow(std::size_t least) noexcept
    {
        const std::size_t room = std::max<std::size_t>({least, 2 * room_, 4});
        std::unique_ptr<T[]> more(new (std::nothrow) T[room]);
        if (more == nullptr)
            return false;
        std::move(begin(), end(), more.get());
        items_ = std::move(more);
        room_ = room;
        return true;
    }

    std::unique_ptr<T[]> items_;
    std::size_t size_ = 0;
    std::size_t room_ = 0;
};

// --- SpareNodeMap: maps that can refuse an insertion. A std::map asks its allocator for one node per insertion, and an
// allocator can only throw, which ends a process that is compiled without exceptions. Here the memory of the node is
// there before the map asks:
//
//     if (!map.ready())
//         return -FI_ENOMEM;
//     map->emplace(key, value);

/// The memory of the next node.
class SpareNode {
  public:
    static constexpr std::size_t size = 128;

    SpareNode() = default;
    SpareNode(const SpareNode&) = delete;
    SpareNode& operator=(const SpareNode&) = delete;
    ~SpareNode() { std::free(memory_); }
    [[nodiscard]] bool ready() noexcept
    {
        if (memory_ == nullptr)
            memory_ = std::malloc(size);
        return memory_ != nullptr;
    }
    [[nodiscard]] void* take() noexcept { return std::exchange(memory_, nullptr); }

  private:
    void* memory_ = nullptr;
};

template <class T>
struct SpareNodeAllocator {
    using value_type = T;
    explicit SpareNodeAllocator(SpareNode& from) noexcept : spare(&from) {}
    template <class U>
    SpareNodeAllocator(const SpareNodeAllocator<U>& other) noexcept : spare(other.spare)
    {
    }
    [[nodiscard]] T* allocate(std::size_t) noexcept
    {
        static_assert(sizeof(T) <= SpareNode::size && alignof(T) <= alignof(std::max_align_t));
        return static_cast<T*>(spare->take());
    }
    void deallocate(T* node, std::size_t) noexcept { std::free(node); }
    friend bool operator==(const SpareNodeAllocator& a, const SpareNodeAllocator& b) noexcept
    {
        return a.spare == b.spare;
    }
    SpareNode* spare;
};

/// A std::map or std::multimap of that kind.
template <template <class, class, class, class> class Map, class Key, class Value>
class SpareNodeMap {
  public:
    using Inside = Map<Key, Value, std::less<Key>, SpareNodeAllocator<std::pair<const Key, Value>>>;
    /// Makes one insertion possible. False: no memory.
    [[nodiscard]] bool ready() noexcept { return spare_.ready(); }
    [[nodiscard]] Inside* operator->() noexcept { return &map_; }
    [[nodiscard]] Inside& operator*() noexcept { return map_; }
    [[nodiscard]] const Inside* operator->() const noexcept { return &map_; }

  private:
    SpareNode spare_;
    Inside map_{SpareNodeAllocator<std::pair<const Key, Value>>(spare_)};
};

} // namespace tofu
