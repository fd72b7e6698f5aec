// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is mapped at an address of this process. Uses: PROCMAP_QUERY (Linux 6.11), /proc/self/maps, map_files.
#include "memory/vma.h"

#include "job/descriptors.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

/// Kernel interface of Linux 6.11 (include/uapi/linux/fs.h), declared here because Debian 12 has older headers.
struct ProcmapQuery {
    uint64_t size;
    uint64_t query_flags;
    uint64_t query_addr;
    uint64_t vma_start;
    uint64_t vma_end;
    uint64_t vma_flags;
    uint64_t vma_page_size;
    uint64_t vma_offset;
    uint64_t inode;
    uint32_t dev_major;
    uint32_t dev_minor;
    uint32_t vma_name_size;
    uint32_t build_id_size;
    uint64_t vma_name_addr;
    uint64_t build_id_addr;
};
static_assert(sizeof(ProcmapQuery) == 104);

constexpr unsigned long procmap_query = _IOWR('f', 17, ProcmapQuery);
constexpr uint64_t vma_is_readable = 0x01;
constexpr uint64_t vma_is_writable = 0x02;
constexpr uint64_t vma_is_executable = 0x04;
constexpr uint64_t vma_is_shared = 0x08;
constexpr uint64_t covering_or_next = 0x10;

bool query(int fd, uint64_t address, uint64_t flags, Vma* vma, char* name, uint32_t name_bytes) noexcept
{
    ProcmapQuery q{};
    q.size = sizeof q;
    q.query_flags = flags;
    q.query_addr = address;
    q.vma_name_addr = reinterpret_cast<uint64_t>(name);
    q.vma_name_size = name_bytes;
    if (ioctl(fd, procmap_query, &q) != 0)
        return false;
    vma->start = q.vma_start;
    vma->end = q.vma_end;
    vma->file_offset = q.vma_offset;
    vma->inode = q.inode;
    vma->device_major = q.dev_major;
    vma->device_minor = q.dev_minor;
    vma->page_bytes = uint32_t(q.vma_page_size);
    vma->readable = (q.vma_flags & vma_is_readable) != 0;
    vma->writable = (q.vma_flags & vma_is_writable) != 0;
    vma->executable = (q.vma_flags & vma_is_executable) != 0;
    vma->shared = (q.vma_flags & vma_is_shared) != 0;
    if (name != nullptr && q.vma_name_size == 0)
        name[0] = '\0';
    return true;
}

/// One line of /proc/self/maps. Page size is not in it: assume base pages, hugetlbfs names its mappings.
bool parse_line(const char* line, Vma* vma, std::string* name)
{
    char rights[5] = {};
    int name_at = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &vma->start, &vma->end,
                    rights, &vma->file_offset, &vma->device_major, &vma->device_minor, &vma->inode, &name_at) < 7)
        return false;
    vma->readable = rights[0] == 'r';
    vma->writable = rights[1] == 'w';
    vma->executable = rights[2] == 'x';
    vma->shared = rights[3] == 's';
    const char* text = name_at > 0 ? line + name_at : "";
    vma->page_bytes = std::strstr(text, "/anon_hugepage") != nullptr || std::strstr(text, "/hugepages") != nullptr
                          ? 2u << 20
                          : uint32_t(page_bytes);
    if (name != nullptr) {
        name->assign(text);
        while (!name->empty() && name->back() == '\n')
            name->pop_back();
    }
    return true;
}

} // namespace

size_t mapping_limit() noexcept
{
    const BriefFile file("/proc/sys/vm/max_map_count", O_RDONLY);
    constexpr size_t usual = 65530;
    constexpr size_t least = 1024; // less runs no program
    char text[32] = {};
    if (!file.is_open() || ::read(file.get(), text, sizeof text - 1) <= 0)
        return usual;
    return std::max(size_t{std::strtoull(text, nullptr, 10)}, least);
}

VmaQuery::VmaQuery() noexcept : fd_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC))
{
    Vma vma;
    text_ = fd_ < 0 || !query(fd_, 0, covering_or_next, &vma, nullptr, 0);
}

VmaQuery::~VmaQuery()
{
    if (fd_ >= 0)
        ::close(fd_);
}

bool VmaQuery::find(uint64_t address, Vma* vma) const noexcept
{
    if (!text_ && query(fd_, address, covering_or_next, vma, nullptr, 0))
        return true;
    if (!text_ && errno == ENOENT)
        return false;
    return find_text(address, vma, nullptr); // also where the program has closed our descriptor
}

void VmaQuery::all(std::vector<Vma>* vmas) const
{
    vmas->clear();
    Vma vma;
    for (uint64_t at = 0; !text_ && query(fd_, at, covering_or_next, &vma, nullptr, 0); at = vma.end)
        vmas->push_back(vma);
    if (text_ || vmas->empty())
        (void)visit_lines("/proc/self/maps", [&](const char* line) {
            if (parse_line(line, &vma, nullptr))
                vmas->push_back(vma);
            return false;
        });
}

/// A directory with an entry for each mapping of a file. The kernel collects the entries under its lock, by each call
/// anew, so all of them have to come by one call.
bool VmaQuery::of_files(std::vector<AddressRange>* ranges) const
{
    const BriefFile directory("/proc/self/map_files", O_RDONLY | O_DIRECTORY);
    constexpr size_t most_bytes = size_t{64} << 20; // of a million mappings
    for (size_t bytes = size_t{64} << 10; directory.is_open() && bytes <= most_bytes; bytes *= 4) {
        std::vector<uint64_t> entries(bytes / sizeof(uint64_t));
        const auto* const text = reinterpret_cast<const char*>(entries.data());
        const auto read_on = [&] { return ::syscall(SYS_getdents64, directory.get(), entries.data(), bytes); };
        ranges->clear();
        const long got = ::lseek(directory.get(), 0, SEEK_SET) == 0 ? read_on() : -1;
        if (got < 0)
            return false;
        for (long at = 0; at < got; at += reinterpret_cast<const dirent64*>(text + at)->d_reclen) {
            const char* const name = reinterpret_cast<const dirent64*>(text + at)->d_name;
            char* end = nullptr;
            const uint64_t start = std::strtoull(name, &end, 16);
            if (name[0] != '.' && *end == '-')
                ranges->push_back({start, std::strtoull(end + 1, nullptr, 16)});
        }
        if (read_on() == 0) {
            std::sort(ranges->begin(), ranges->end());
            return true;
        }
    }
    return false;
}

std::string VmaQuery::name(uint64_t address) const
{
    Vma vma;
    char buffer[PATH_MAX + 32] = {}; // valgrind does not know that the kernel fills it
    if (!text_ && query(fd_, address, 0, &vma, buffer, sizeof buffer))
        return buffer;
    std::string name;
    return find_text(address, &vma, &name) && vma.start <= address ? name : std::string();
}

bool VmaQuery::find_text(uint64_t address, Vma* vma, std::string* name) const
{
    return visit_lines("/proc/self/maps", [&](const char* line) { // as few as may be are taken apart
        const char* const dash = std::strchr(line, '-');
        return dash != nullptr && std::strtoull(dash + 1, nullptr, 16) > address && parse_line(line, vma, name);
    });
}

} // namespace tofu::sim
