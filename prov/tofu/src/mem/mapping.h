// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is mapped at an address of this process. Called by memory_hooks; calls the kernel.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tofu {

/// Whose pages a range shows.
enum class Pages : std::uint8_t {
    unknown, ///< a hole, a private view of a file, more than one file, or the kernel does not tell
    own,     ///< private memory of no file, which nobody else can change
    file,    ///< shared pages of one file, and perhaps pages of the kind above
};

/// The file of Pages::file, and one of its mappings.
struct MappedFile {
    std::uint64_t device = 0; ///< as st_dev
    std::uint64_t inode = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    char name[256] = ""; ///< as the kernel shows it: a path, if there is one still; empty: none, or one that is longer
};

/// Tells memory that is private although a file stands behind it: the simulator's own (utofu/library.h). Null: there is
/// none.
using IsPrivate = int (*)(const void* address, std::size_t size);

/// Whose pages are all of [begin, end)? `file` is written for Pages::file only. Takes a microsecond or two if the
/// kernel can be asked about one mapping (Linux 6.11); else 0.2 us for each mapping below it.
[[nodiscard]] Pages pages_of(std::uint64_t begin, std::uint64_t end, IsPrivate is_private, MappedFile& file) noexcept;

} // namespace tofu
