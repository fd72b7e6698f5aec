// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See mapping.h.
#include "mem/mapping.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <sys/ioctl.h>
#include <sys/sysmacros.h>

namespace tofu {

namespace {

struct Mapping {
    std::uint64_t begin, end;
    std::uint64_t device, inode; ///< 0: no file
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
    std::uint32_t device_major, device_minor;
    std::uint32_t name_size, build_id_size;
    std::uint64_t name, build_id;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long procmap_query = _IOWR('f', 17, ProcmapQuery);
constexpr std::uint64_t is_shared = 8;
constexpr std::uint64_t or_the_next = 16;

/// /proc/self/maps, and the name of what was looked at last.
class Maps {
  public:
    explicit Maps(char (&name)[sizeof MappedFile::name]) noexcept : name_(name) {}
    Maps(const Maps&) = delete;
    Maps& operator=(const Maps&) = delete;
    ~Maps()
    {
        if (text_ != nullptr)
            std::fclose(text_);
    }
    /// The mapping of the address or the first one above it. Addresses may not go down. False: there is none.
    [[nodiscard]] bool look(std::uint64_t address, Mapping& found) noexcept
    {
        if (text_ == nullptr)
            return false;
        if (answers_ && ask(address, found))
            return true;
        answers_ = false; // or there is none: the text says so, too
        return read(address, found);
    }

  private:
    [[nodiscard]] bool ask(std::uint64_t address, Mapping& found) const noexcept;
    [[nodiscard]] bool read(std::uint64_t address, Mapping& found) noexcept;

    char (&name_)[sizeof MappedFile::name];
    // Anew each time: it is of the process that has opened it, and not of a child that inherits it.
    std::FILE* const text_ = std::fopen("/proc/self/maps", "re");
    bool answers_ = true;
};

bool Maps::ask(std::uint64_t address, Mapping& found) const noexcept
{
    ProcmapQuery query{};
    query.size = sizeof query;
    query.flags = or_the_next;
    query.address = address;
    query.name = reinterpret_cast<std::uint64_t>(name_);
    query.name_size = sizeof name_;
    if (ioctl(fileno(text_), procmap_query, &query) != 0) {
        if (errno != ENAMETOOLONG)
            return false;
        query.name = 0;
        query.name_size = 0;
        if (ioctl(fileno(text_), procmap_query, &query) != 0)
            return false;
    }
    if (query.name_size == 0)
        *name_ = '\0';
    found = {query.begin, query.end, makedev(query.device_major, query.device_minor), query.inode,
             (query.rights & is_shared) != 0};
    return true;
}

/// The same by reading on from where the last one ended.
bool Maps::read(std::uint64_t address, Mapping& found) noexcept
{
    char line[sizeof name_ + 128];
    while (std::fgets(line, sizeof line, text_) != nullptr) {
        unsigned long long begin, end, inode;
        unsigned major, minor;
        char rights[5];
        int name = 0;
        if (std::sscanf(line, "%llx-%llx %4s %*s %x:%x %llu %n", &begin, &end, rights, &major, &minor, &inode,
                        &name) < 6)
            return false;
        std::size_t length = std::strcspn(line, "\n");
        bool whole = line[length] == '\n';
        for (int c = 0; !whole && c != '\n' && c != EOF;)
            c = std::fgetc(text_);
        if (end <= address)
            continue;
        found = {begin, end, makedev(major, minor), inode, rights[3] != 'p'};
        line[length] = '\0';
        whole = whole && name > 0 && length - static_cast<std::size_t>(name) < sizeof name_;
        std::strcpy(name_, whole ? line + name : "");
        return true;
    }
    return false;
}

/// Huge pages are of a file of the kernel's own, which nobody else has.
bool is_own(const Mapping& mapping, const char* name) noexcept
{
    return !mapping.shared && (mapping.inode == 0 || std::strncmp(name, "/anon_hugepage", 14) == 0);
}

} // namespace

Pages pages_of(std::uint64_t begin, std::uint64_t end, IsPrivate is_private, MappedFile& file) noexcept
{
    char name[sizeof file.name] = "";
    Maps maps(name);
    Pages pages = begin < end ? Pages::own : Pages::unknown;
    Mapping at{};
    for (; begin < end; begin = at.end) {
        if (!maps.look(begin, at) || at.begin > begin)
            return Pages::unknown;
        const std::uint64_t stop = std::min(at.end, end);
        if (is_own(at, name) ||
            (is_private != nullptr && at.shared && is_private(reinterpret_cast<const void*>(begin), stop - begin) == 1))
            continue;
        if (!at.shared || (pages == Pages::file && (at.device != file.device || at.inode != file.inode)))
            return Pages::unknown;
        pages = Pages::file;
        file.device = at.device;
        file.inode = at.inode;
        file.begin = at.begin;
        file.end = at.end;
        std::memcpy(file.name, name, sizeof name);
    }
    return pages;
}

} // namespace tofu
