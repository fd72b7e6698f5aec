// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See mapping.h.
#include "local/mapping.h"

#include <cstdio>

#include <sys/ioctl.h>

namespace tofu {

namespace {

struct Mapping {
    std::uint64_t begin, end;
    std::uint64_t inode;
    std::uint32_t major; ///< of the file's device
    bool shared;
};

/// linux/fs.h of Linux 6.11, which older headers do not have.
struct ProcmapQuery {
    std::uint64_t size;
    std::uint64_t flags;
    std::uint64_t address;
    std::uint64_t begin, end;
    std::uint64_t rights;
    std::uint64_t page_size, offset, inode;
    std::uint32_t major, minor;
    std::uint64_t others[3]; ///< names that we do not ask for
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long procmap_query = _IOWR('f', 17, ProcmapQuery);
constexpr std::uint64_t is_shared = 8;
constexpr std::uint64_t or_the_next = 16;

/// The mapping of the address or the first one above it; false: there is none, or no such question.
bool ask(std::FILE* maps, std::uint64_t address, Mapping& found) noexcept
{
    ProcmapQuery query{};
    query.size = sizeof query;
    query.flags = or_the_next;
    query.address = address;
    if (ioctl(fileno(maps), procmap_query, &query) != 0)
        return false;
    found = {query.begin, query.end, query.inode, query.major, (query.rights & is_shared) != 0};
    return true;
}

/// The same by reading on from where the last one ended.
bool read(std::FILE* maps, std::uint64_t address, Mapping& found) noexcept
{
    char line[4352]; // a path and what stands before it
    while (std::fgets(line, sizeof line, maps) != nullptr) {
        unsigned long long begin, end, inode;
        unsigned major;
        char rights[5];
        if (std::sscanf(line, "%llx-%llx %4s %*s %x:%*x %llu", &begin, &end, rights, &major, &inode) != 5)
            return false;
        found = {begin, end, inode, major, rights[3] != 'p'};
        if (end > address)
            return true;
    }
    return false;
}

} // namespace

bool private_anonymous(std::uint64_t begin, std::uint64_t end) noexcept
{
    // Anew each time: it is of the process that has opened it, and not of a child that inherits it.
    std::FILE* const maps = std::fopen("/proc/self/maps", "re");
    if (maps == nullptr)
        return false;
    Mapping at{};
    const auto find = ask(maps, begin, at) ? ask : read;
    bool good = true;
    while (good && begin < end) {
        good = find(maps, begin, at) && at.begin <= begin && !at.shared && (at.inode == 0 || at.major == 0);
        begin = at.end;
    }
    std::fclose(maps);
    return good;
}

} // namespace tofu
