// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bytes of a user's segments: runs of them, and copies between them and contiguous memory. Used by match, message,
// rma, atomic; calls log.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <sys/uio.h>

namespace tofu {

/// Calls `use(bytes, n)` for each run of the `length` bytes that begin `skip` bytes into the segments. These are
/// iovecs, or of a class derived from iovec.
template <class Segment, class Use>
void visit_bytes(const Segment* iov, std::size_t count, std::size_t skip, std::size_t length, Use&& use) noexcept
{
    for (std::size_t i = 0; i < count && length != 0; i++) {
        const std::size_t n = std::min(iov[i].iov_len - std::min(skip, iov[i].iov_len), length);
        if (n != 0)
            use(static_cast<std::byte*>(iov[i].iov_base) + skip, n);
        skip -= std::min(skip, iov[i].iov_len);
        length -= n;
    }
}

/// Copies from the segments. `skip` and `length` together are at most the sum of the segments.
inline void gather(std::byte* to, const iovec* iov, std::size_t count, std::size_t length, std::size_t skip = 0) noexcept
{
    visit_bytes(iov, count, skip, length, [&](const std::byte* from, std::size_t n) {
        std::memcpy(to, from, n);
        to += n;
    });
}

/// Copies to the segments, and returns for how many bytes there was room.
inline std::size_t scatter(const iovec* iov, std::size_t count, const std::byte* from, std::size_t length,
                           std::size_t skip = 0) noexcept
{
    std::size_t done = 0;
    visit_bytes(iov, count, skip, length, [&](std::byte* to, std::size_t n) {
        std::memcpy(to, from + done, n);
        done += n;
    });
    return done;
}

/// A null pointer with a length names no memory. Every call of the application refuses it: nothing else would stop a
/// copy from it.
[[nodiscard, gnu::always_inline]] inline bool is_nowhere(const void* buffer, std::size_t length) noexcept
{
    return buffer == nullptr && length != 0;
}
[[nodiscard, gnu::always_inline]] inline bool any_nowhere(const iovec* iov, std::size_t count) noexcept
{
    for (std::size_t i = 0; i < count; i++)
        if (is_nowhere(iov[i].iov_base, iov[i].iov_len))
            return true;
    return false;
}

/// Logs why the call is refused. -FI_EINVAL.
[[nodiscard, gnu::cold]] int refuse_nowhere() noexcept;

/// The sum of the segments. False: it does not fit into a size_t.
inline bool total_length(const iovec* iov, std::size_t count, std::size_t& total) noexcept
{
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count; i++)
        if (__builtin_add_overflow(sum, iov[i].iov_len, &sum))
            return false;
    total = sum;
    return true;
}

} // namespace tofu
