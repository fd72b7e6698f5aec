// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The objects of one kind that are open in the process, oldest first: fi_getinfo names the first fabric and domain
// (fi_fabric(3), fi_domain(3)). Called by fabric, domain and info; calls nothing.
#pragma once

#include <mutex>

namespace tofu {

/// Linked through the objects' `next_open`, so that nothing is left to be destroyed when the process ends. Any
/// thread.
template <class Object>
class OpenList {
  public:
    void add(Object& object) noexcept
    {
        std::lock_guard guard(mutex_);
        Object** end = &first_;
        while (*end != nullptr)
            end = &(*end)->next_open;
        object.next_open = nullptr;
        *end = &object;
    }
    void remove(const Object& object) noexcept
    {
        std::lock_guard guard(mutex_);
        for (Object** at = &first_; *at != nullptr; at = &(*at)->next_open)
            if (*at == &object) {
                *at = object.next_open;
                return;
            }
    }
    /// Calls `visit` for each, which stays open meanwhile.
    template <class Visit>
    void each(Visit&& visit) noexcept
    {
        std::lock_guard guard(mutex_);
        for (Object* object = first_; object != nullptr; object = object->next_open)
            visit(*object);
    }
    /// `wanted` where it is one of these, the first of them for null, else null.
    template <class Handle>
    [[nodiscard]] Object* find(const Handle* wanted) noexcept
    {
        std::lock_guard guard(mutex_);
        if (wanted == nullptr)
            return first_;
        for (Object* object = first_; object != nullptr; object = object->next_open)
            if (static_cast<const Handle*>(object) == wanted)
                return object;
        return nullptr;
    }

  private:
    std::mutex mutex_;
    Object* first_ = nullptr;
};

} // namespace tofu
