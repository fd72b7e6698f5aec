// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Maps that can refuse an insertion for want of memory. Used by objects that keep something by key; calls malloc.
//
// A std::map asks its allocator for one node per insertion, and an allocator can only throw, which ends a process that
// is compiled without exceptions. Here the memory of the node is there before the map asks:
//
//     if (!map.ready())
//         return -FI_ENOMEM;
//     map->emplace(key, value);
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <utility>

namespace tofu {

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
