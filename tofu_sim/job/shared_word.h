// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One word in memory shared between processes, with explicit memory order on each access. Trivially copyable
// (std::atomic is not), lock-free and address-free by static_assert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tofu::sim {

/// What different processes write stands so far apart. It is part of the layout, hence the same everywhere: where lines
/// are longer (A64FX: 256 bytes) neighbours share one, which costs the simulator time and nothing else.
inline constexpr size_t apart = 64;

template <typename T>
struct SharedWord {
    static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
    static_assert(__atomic_always_lock_free(sizeof(T), nullptr));

    alignas(sizeof(T)) T raw;

    T load_relaxed() const noexcept { return __atomic_load_n(&raw, __ATOMIC_RELAXED); }
    T load_acquire() const noexcept { return __atomic_load_n(&raw, __ATOMIC_ACQUIRE); }
    void store_relaxed(T value) noexcept { __atomic_store_n(&raw, value, __ATOMIC_RELAXED); }
    void store_release(T value) noexcept { __atomic_store_n(&raw, value, __ATOMIC_RELEASE); }
    void store_seq(T value) noexcept { __atomic_store_n(&raw, value, __ATOMIC_SEQ_CST); }
    T exchange(T value) noexcept { return __atomic_exchange_n(&raw, value, __ATOMIC_ACQ_REL); }
    T fetch_add(T value) noexcept { return __atomic_fetch_add(&raw, value, __ATOMIC_ACQ_REL); }

    /// Acquire-release on success, acquire on failure; `expected` receives what was found.
    bool compare_exchange(T& expected, T desired) noexcept
    {
        return __atomic_compare_exchange_n(&raw, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
};

static_assert(std::is_trivially_copyable_v<SharedWord<uint64_t>>);
static_assert(sizeof(SharedWord<uint32_t>) == 4 && sizeof(SharedWord<uint64_t>) == 8);

} // namespace tofu::sim
