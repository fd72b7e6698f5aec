// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An array that grows, and says so if there is no memory for that. It replaces std::vector in the provider, which is
// compiled without exceptions: where a container of the standard library would throw, the process would end.
#pragma once

#include <algorithm>
#include <cstddef>
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

} // namespace tofu
