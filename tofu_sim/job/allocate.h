// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Allocation where an exception must not pass: C callers, threads of the simulator, noexcept functions.
#pragma once

#include <memory>
#include <new>
#include <utility>

namespace tofu::sim {

/// Null without memory; that of members counts, too.
template <typename T, typename... Arguments>
[[nodiscard]] std::unique_ptr<T> make_or_null(Arguments&&... arguments) noexcept
{
    try {
        return std::make_unique<T>(std::forward<Arguments>(arguments)...);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

/// What `body` returns, or `otherwise` without memory. What `body` had changed by then must be as good as nothing.
template <typename Result, typename Body>
[[nodiscard]] Result or_without_memory(Result otherwise, Body&& body) noexcept
{
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return otherwise;
    }
}

} // namespace tofu::sim
