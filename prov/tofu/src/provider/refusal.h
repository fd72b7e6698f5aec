// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The answer of calls that are not offered. libfabric's inline wrappers call through most slots of an operation table
// without a look, so each has to hold a function. Used wherever such tables are filled in; calls nothing.
#pragma once

namespace tofu {

/// One function for each signature.
template <int code, class Signature>
struct Refuse;
template <int code, class Result, class... Arguments>
struct Refuse<code, Result(Arguments...)> {
    static Result call(Arguments...) noexcept { return code; }
};

/// Converts to a refusing function of whatever type the slot has.
template <int code>
struct Refusal {
    template <class Signature>
    constexpr operator Signature*() const noexcept
    {
        return &Refuse<code, Signature>::call;
    }
};

/// For a slot: the call does nothing and answers `code`, a negative FI_E*.
template <int code>
inline constexpr Refusal<code> refuses{};

} // namespace tofu
