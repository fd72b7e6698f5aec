// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is mapped at an address of this process. Uses: PROCMAP_QUERY (Linux 6.11), /proc/self/maps, map_files.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unistd.h>
#include <vector>

namespace tofu::sim {

/// The system's: 4, 16 or 64 KiB on aarch64.
inline const uint64_t page_bytes = uint64_t(::sysconf(_SC_PAGESIZE));

/// One mapping. Device and inode are 0 for private anonymous memory.
struct Vma {
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t file_offset = 0; ///< of start
    uint64_t inode = 0;
    uint32_t device_major = 0;
    uint32_t device_minor = 0;
    uint32_t page_bytes = uint32_t(sim::page_bytes);
    bool readable = false;
    bool writable = false;
    bool executable = false;
    bool shared = false;

    [[nodiscard]] bool anonymous() const noexcept { return inode == 0 && device_major == 0 && device_minor == 0; }
};

struct AddressRange {
    uint64_t start = 0;
    uint64_t end = 0;
    auto operator<=>(const AddressRange&) const = default;
};

/// How many mappings a process may have (vm.max_map_count).
[[nodiscard]] size_t mapping_limit() noexcept;

/// Thread-safe; keeps one file descriptor, opened by the first use.
class VmaQuery {
  public:
    VmaQuery() noexcept;
    ~VmaQuery();
    VmaQuery(const VmaQuery&) = delete;
    VmaQuery& operator=(const VmaQuery&) = delete;

    /// The mapping that covers `address`, or the next one above it; false: there is none.
    [[nodiscard]] bool find(uint64_t address, Vma* vma) const noexcept;
    /// All mappings, by address; as many questions as mappings, or one look at the text. A mapping that the program
    /// moves meanwhile may be missing, and may be there twice.
    void all(std::vector<Vma>* vmas) const;
    /// The addresses of all mappings of files, of one instant: the kernel lists them in one call, under its lock.
    /// False: it does not.
    [[nodiscard]] bool of_files(std::vector<AddressRange>* ranges) const;
    /// Path or name of the mapping that covers `address` as /proc/self/maps shows it; empty: none.
    [[nodiscard]] std::string name(uint64_t address) const;

    /// Not by reading a text up to the answer.
    [[nodiscard]] bool answers_at_once() const noexcept { return !text_; }

    /// For tests: use the text of /proc/self/maps even where the kernel answers queries.
    void force_text(bool on) noexcept { text_ = on; }

  private:
    [[nodiscard]] bool find_text(uint64_t address, Vma* vma, std::string* name) const;
    int fd_ = -1;
    bool text_ = false;
};

} // namespace tofu::sim
