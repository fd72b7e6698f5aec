// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Copies between contiguous bytes and a user's segments. Used by message and match; calls nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <sys/uio.h>

namespace tofu::proto {

/// `length` is at most the sum of the segments.
inline void gather(std::byte* to, const iovec* iov, std::size_t count, std::size_t length) noexcept
{
    for (std::size_t i = 0; i < count && length != 0; i++) {
        const std::size_t n = std::min(iov[i].iov_len, length);
        if (n != 0)
            std::memcpy(to, iov[i].iov_base, n);
        to += n;
        length -= n;
    }
}

/// Returns how many bytes had room.
inline std::size_t scatter(const iovec* iov, std::size_t count, const std::byte* from,
                           std::size_t length) noexcept
{
    std::size_t done = 0;
    for (std::size_t i = 0; i < count && done < length; i++) {
        const std::size_t n = std::min(iov[i].iov_len, length - done);
        if (n != 0)
            std::memcpy(iov[i].iov_base, from + done, n);
        done += n;
    }
    return done;
}

/// Sum of the segments; false where it does not fit into a size_t.
inline bool total_length(const iovec* iov, std::size_t count, std::size_t& total) noexcept
{
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count; i++)
        if (__builtin_add_overflow(sum, iov[i].iov_len, &sum))
            return false;
    total = sum;
    return true;
}

} // namespace tofu::proto
