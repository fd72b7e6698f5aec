// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_close(3) asks of every object: it answers -FI_EBUSY while others use it. Base of all that can be bound or
// opened from; calls nothing.
#pragma once

#include <atomic>
#include <utility>

namespace tofu {

/// Counts its users. Any thread.
class Counted {
  public:
    void hold() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    /// release: what its user has done with it comes before its end (partner: users())
    void release() noexcept { users_.fetch_sub(1, std::memory_order_release); }
    [[nodiscard]] int users() const noexcept { return users_.load(std::memory_order_acquire); }
    [[nodiscard]] bool in_use() const noexcept { return users() != 0; }

  private:
    std::atomic<int> users_{0};
};

/// An object that is used from here, or none.
template <class T>
class Held {
  public:
    Held() = default;
    Held(Held&& from) noexcept : object_(std::exchange(from.object_, nullptr)) {}
    Held& operator=(Held&& from) noexcept
    {
        std::swap(object_, from.object_);
        return *this;
    }
    ~Held() { *this = nullptr; }
    /// Lets go of the one before.
    Held& operator=(T* object) noexcept
    {
        if (object != nullptr)
            object->hold();
        if (T* const before = std::exchange(object_, object); before != nullptr)
            before->release();
        return *this;
    }
    operator T*() const noexcept { return object_; }
    T* get() const noexcept { return object_; }
    T* operator->() const noexcept { return object_; }

  private:
    T* object_ = nullptr;
};

} // namespace tofu
