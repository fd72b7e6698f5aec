// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The word from which peers take credits for the events that they cause in a domain's MRQ (event_credits.h). Used by
// its owner, own_directory, and by event_credits; calls nothing. Nothing read from it is trusted.
#pragma once

#include <cstdint>

#include "mem/mr_directory.h"

namespace tofu {

/// The word of the pool: {nonce of the domain (upper half), bias + credits (lower half)}. ARMW ADDs never carry between
/// the halves, since the bias is more than all that can be taken or given at a time.
namespace event_pool {

inline constexpr std::uint64_t offset = directory::contacts_offset + 64; ///< under the directory's STag
static_assert(offset + 8 <= directory::contacts_offset + directory::contacts_bytes);
inline constexpr std::int64_t bias = 1 << 30;
inline constexpr std::int64_t most_entries = 1 << 21; ///< of an MRQ (guide 4.3.2.3)
/// Takers that find too few credits make the count negative, by a batch each, until they have given them back.
inline constexpr std::int64_t most_overdrawn = 1 << 29;

constexpr std::uint64_t word(std::uint64_t nonce, std::int64_t credits) noexcept
{
    return nonce << 32 | static_cast<std::uint32_t>(bias + credits);
}
constexpr std::int64_t left(std::uint64_t word) noexcept
{
    return static_cast<std::int64_t>(word & 0xffffffff) - bias;
}
/// Is it the pool of that domain, with a possible number of credits?
constexpr bool sound(std::uint64_t word, std::uint64_t nonce) noexcept
{
    return word >> 32 == (nonce & 0xffffffff) && left(word) <= most_entries &&
           left(word) >= -most_overdrawn;
}
/// The credits of a domain: half of the entries of an MRQ, as the library's variable says (guide 4.3.2.3). The other
/// half is for all other notices: local ones of VCQs on the same CQ, errors, and those of peers that ignore the
/// credits.
[[nodiscard]] std::int64_t capacity() noexcept;
/// The entries that UTOFU_NUM_MRQ_ENTRIES asks for; 131,072 if it is null or no number.
[[nodiscard]] std::int64_t entries_of(const char* text) noexcept;

} // namespace event_pool

} // namespace tofu
