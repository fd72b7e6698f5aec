// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See mapping.h.
#include "local/mapping.h"

#include <cstdio>
#include <cstring>

#include <sys/ioctl.h>

namespace tofu {

namespace {

struct Mapping {
    std::uint64_t begin, end;
    bool shared;
    bool of_file;
};

/// linux/fs.h of Linux 6.11, which older headers do not have.
struct ProcmapQuery {
    std::uint64_t size;
    std::uint64_t flags;
    std::uint64_t address;
    std::uint64_t begin, end;
    std::uint64_t rights;
    std::uint64_t page_size, offset, inode;
    std::uint64_t others[4]; ///< device and names, which we do not ask for
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
    found = {query.begin, query.end, (query.rights & is_shared) != 0, query.inode != 0};
    return true;
}

/// The same by reading on from where the last one ended, and which file it is of.
bool read(std::FILE* maps, std::uint64_t address, Mapping& found) noexcept
{
    char line[4352]; // a path and what stands before it
    while (std::fgets(line, sizeof line, maps) != nullptr) {
        unsigned long long begin, end, inode;
        char rights[5];
        if (std::sscanf(line, "%llx-%llx %4s %*s %*s %llu", &begin, &end, rights, &inode) != 4)
            return false;
        // Huge pages are of a file of the kernel's own, which nobody else has.
        found = {begin, end, rights[3] != 'p', inode != 0 && std::strstr(line, "/anon_hugepage") == nullptr};
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
    const bool answers = ask(maps, begin, at);
    bool good = true;
    while (good && begin < end) {
        good = (answers ? ask(maps, begin, at) : read(maps, begin, at)) && !at.shared;
        if (good && answers && at.of_file)
            good = read(maps, begin, at);
        good = good && at.begin <= begin && !at.of_file;
        begin = at.end;
    }
    std::fclose(maps);
    return good;
}

} // namespace tofu
