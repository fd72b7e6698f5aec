// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The simulator's files in a process whose descriptors belong to the program: it may close all of them, or have none
// left.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {

/// A descriptor that is kept. A program may close what it does not know (close_range after joining) and have a file of
/// its own at the same number later, so each use checks that the file is still the same.
class KeptFile {
  public:
    /// Takes the descriptor over.
    void keep(int fd) noexcept;
    /// -1: it is not ours any more.
    [[nodiscard]] int get() const noexcept { return is_file(fd_) ? fd_ : -1; }
    /// Is this descriptor of the same file?
    [[nodiscard]] bool is_file(int fd) const noexcept;
    [[nodiscard]] int number() const noexcept { return fd_; }
    [[nodiscard]] uint64_t device() const noexcept { return device_; }
    /// Closes it, unless it is the program's by now.
    void close() noexcept;

  private:
    int fd_ = -1;
    uint64_t device_ = 0;
    uint64_t inode_ = 0;
};

/// A file open for the length of a block. Where the program has used up its descriptors, the one that was kept for this
/// is used (keep_spare), by one thread at a time: the others wait, for a few system calls, so that no thread opens two
/// at a time. Whatever is opened briefly is opened this way, since else one thread takes what another has made room
/// for. errno is that of open.
class BriefFile {
  public:
    explicit BriefFile(const char* path, int flags, int directory = AT_FDCWD) noexcept;
    ~BriefFile();
    BriefFile(const BriefFile&) = delete;
    BriefFile& operator=(const BriefFile&) = delete;

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }

  private:
    int fd_ = -1;
    bool spare_ = false;
};

/// Calls `take` with each line of a file until it answers true. True: it has.
template <typename Take>
bool visit_lines(const char* path, Take&& take)
{
    const BriefFile file(path, O_RDONLY);
    char text[PATH_MAX + 4096];
    size_t filled = 0;
    for (ssize_t got = 1; file.is_open() && got > 0;) {
        got = ::read(file.get(), text + filled, sizeof text - 1 - filled);
        filled += got > 0 ? size_t(got) : 0;
        text[filled] = '\0';
        char* line = text;
        for (char* end = nullptr; (end = std::strchr(line, '\n')) != nullptr; line = end + 1) {
            *end = '\0';
            if (take(line))
                return true;
        }
        filled -= size_t(line - text);
        std::memmove(text, line, filled);
    }
    return false;
}

/// Calls `take` with the name of each entry of a directory that is open. False: not all could be read.
template <typename Take>
[[nodiscard]] bool visit_entries(const BriefFile& directory, Take&& take)
{
    alignas(dirent64) char entries[2048];
    for (;;) {
        const long bytes = ::syscall(SYS_getdents64, directory.get(), entries, sizeof entries);
        if (bytes <= 0)
            return bytes == 0;
        for (long at = 0; at < bytes; at += reinterpret_cast<const dirent64*>(entries + at)->d_reclen)
            take(reinterpret_cast<const dirent64*>(entries + at)->d_name);
    }
}

/// Keeps one descriptor for BriefFile; false: there is none.
[[nodiscard]] bool keep_spare() noexcept;
void give_up_spare() noexcept;
/// The device of memory that is not a file system's, which all memfds have, the kept descriptor among them. Needs none
/// of its own, which it might take from a BriefFile. 0: not known, there was no descriptor.
[[nodiscard]] uint64_t memfd_device() noexcept;
/// In a forked child, which has but one thread.
void reset_spare_in_child() noexcept;

/// Whether `error` says that this process or the machine has run out of something: nothing is known then of what was
/// asked for.
[[nodiscard]] bool is_scarcity(int error) noexcept;
/// What a user can do about an `error` of a file in /dev/shm; `otherwise`: about one that says nothing of the file
/// system.
[[nodiscard]] const char* advice_of(int error, const char* otherwise) noexcept;

} // namespace tofu::sim
