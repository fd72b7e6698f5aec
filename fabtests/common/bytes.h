// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the conformance programs write into buffers, and how they find it again.
#pragma once

#include <cstddef>
#include <vector>

#include <sys/uio.h>

namespace fabtests {

/// The byte that rank `from` writes at place `i` in round `round`.
inline unsigned char byte_of(unsigned from, std::size_t i, unsigned round)
{
    return static_cast<unsigned char>((i * 31 + i / 251 + from * 17 + round * 7 + 1) & 0xff);
}

/// `total` bytes from `base` on, in `parts` pieces with gaps between them.
inline std::vector<iovec> cut(unsigned char* base, std::size_t total, std::size_t parts, std::size_t gap = 5)
{
    std::vector<iovec> pieces;
    std::size_t left = total;
    for (std::size_t i = 0; i < parts; ++i) {
        const std::size_t n = i + 1 == parts ? left : left / (parts - i + 1);
        pieces.push_back({base, n});
        base += n + gap;
        left -= n;
    }
    return pieces;
}

inline void fill(const std::vector<iovec>& pieces, unsigned from, unsigned round)
{
    std::size_t n = 0;
    for (const iovec& piece : pieces)
        for (std::size_t i = 0; i < piece.iov_len; ++i)
            static_cast<unsigned char*>(piece.iov_base)[i] = byte_of(from, n++, round);
}

/// How many of the first `length` bytes are not what rank `from` wrote.
inline std::size_t wrong(const std::vector<iovec>& pieces, std::size_t length, unsigned from, unsigned round)
{
    std::size_t n = 0, count = 0;
    for (const iovec& piece : pieces)
        for (std::size_t i = 0; i < piece.iov_len && n < length; ++i, ++n)
            count += static_cast<unsigned char*>(piece.iov_base)[i] != byte_of(from, n, round);
    return count + (length - n);
}

inline void fill(unsigned char* to, std::size_t length, unsigned from, unsigned round)
{
    fill({{to, length}}, from, round);
}

inline std::size_t wrong(unsigned char* at, std::size_t length, unsigned from, unsigned round)
{
    return wrong({{at, length}}, length, from, round);
}

} // namespace fabtests
