// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See meeting.h.
#include "meeting.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace tofu::check {

std::optional<std::string> read_file(const std::string& path)
{
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return std::nullopt;
    std::string bytes;
    char part[4096];
    for (ssize_t n; (n = read(file, part, sizeof part)) > 0;)
        bytes.append(part, static_cast<std::size_t>(n));
    close(file);
    return bytes;
}

void write_file(const std::string& path, std::string_view bytes)
{
    const std::string draft = path + ".draft";
    const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool written = file >= 0 && write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    written = (file < 0 || close(file) == 0) && written;
    if (!written || rename(draft.c_str(), path.c_str()) != 0)
        throw Stop{not_tried("cannot write %s: %s", path.c_str(), std::strerror(errno))};
}

std::string Meeting::path(int rank, std::string_view what) const
{
    return stem_ + std::string(what) + "." + std::to_string(rank);
}

std::vector<std::uint64_t> Meeting::swap(const std::vector<std::uint64_t>& mine)
{
    const std::string number = std::to_string(meetings_++);
    write_file(path(rank_, number), {reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(std::uint64_t)});
    const std::string awaited = path(1 - rank_, number);
    std::optional<std::string> heard;
    unsigned pause = 20;
    for (Patience patience("the other process", 4 * Patience::seconds); !(heard = read_file(awaited));) {
        // In this order: it may have spoken and ended between the two looks.
        if (finding_of(1 - rank_) && !(heard = read_file(awaited)))
            throw Stop{{}};
        if (heard)
            break;
        usleep(pause = std::min(2 * pause, 10000u));
        for (int i = 0; i < 64; i++) // a look here takes as long as many at memory
            patience.next();
    }
    std::vector<std::uint64_t> words(heard->size() / sizeof(std::uint64_t));
    std::memcpy(words.data(), heard->data(), words.size() * sizeof(std::uint64_t));
    return words;
}

void Meeting::leave_finding(const Finding& finding)
{
    write_file(path(rank_, "finding"), std::to_string(static_cast<int>(finding.verdict)) + finding.seen);
}

std::optional<Finding> Meeting::finding_of(int rank) const
{
    const auto bytes = read_file(path(rank, "finding"));
    if (!bytes || bytes->empty())
        return std::nullopt;
    return Finding{static_cast<Verdict>(bytes->front() - '0'), bytes->substr(1)};
}

} // namespace tofu::check
