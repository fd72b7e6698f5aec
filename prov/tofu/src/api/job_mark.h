// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The lower 16 bits of a domain's nonce tell its job (names::job_key), where the machine has several: an address vector
// warns of an address of another job, where nothing that is sent arrives. Used by domain and av; calls nothing.
#pragma once

#include <cstdint>

namespace tofu::names {

inline constexpr std::uint64_t job_mark_bits = 0xffff;

/// The nonce with the mark of the job; as it is where `job_key` is 0.
[[nodiscard]] constexpr std::uint64_t with_job_mark(std::uint64_t nonce, std::uint64_t job_key) noexcept
{
    if (job_key == 0)
        return nonce;
    const std::uint64_t marked = (nonce & ~job_mark_bits) | (job_key & job_mark_bits);
    return marked != 0 ? marked : job_mark_bits + 1;
}
[[nodiscard]] constexpr bool is_of_another_job(std::uint64_t nonce, std::uint64_t job_key) noexcept
{
    return job_key != 0 && ((nonce ^ job_key) & job_mark_bits) != 0;
}

} // namespace tofu::names
