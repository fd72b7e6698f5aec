// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A trace file of a process, checked. See reader.h.
#include "traces/reader.h"

#include "job/layout.h"
#include "tni/descriptor.h"
#include "topology/topology.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace tofu::sim::trace {
namespace {

constexpr char no_trace[] = " is not a trace; use the files of TOFU_SIM_TRACE";
constexpr char cut_off[] = " ends within its header, since its process was killed at its start: omit the file";
constexpr uint64_t latest = uint64_t{1} << 61; ///< two of them can be added

struct CloseFile {
    explicit CloseFile(int file) noexcept : fd(file) {}
    ~CloseFile()
    {
        if (fd >= 0)
            ::close(fd);
    }
    CloseFile(const CloseFile&) = delete;
    CloseFile& operator=(const CloseFile&) = delete;
    int fd;
};

/// As much as is there.
size_t read_at(int fd, void* to, size_t bytes, uint64_t offset)
{
    size_t got = 0;
    while (got < bytes) {
        const ssize_t now = ::pread(fd, static_cast<char*>(to) + got, bytes - got, static_cast<off_t>(offset + got));
        if (now <= 0)
            break;
        got += static_cast<size_t>(now);
    }
    return got;
}

std::string check_header(const std::string& path, FileHeader& header)
{
    if (header.magic != file_magic)
        return path + (header.magic == 0 && header.record_bytes <= sizeof(Record) ? cut_off : no_trace);
    if (header.version != format_version) {
        return path + " has version " + std::to_string(header.version) + ", this tofu-sim reads " +
               std::to_string(format_version) + "; use the tofu-sim of the library that wrote it";
    }
    const uint64_t nodes = uint64_t{header.shape[0]} * header.shape[1] * header.shape[2] * nodes_per_unit;
    const auto clock = static_cast<uint32_t>(header.clock);
    if (header.header_bytes != header_bytes || header.chunk_bytes != chunk_bytes ||
        header.record_bytes != sizeof(Record) || nodes == 0 || nodes > max_nodes || header.node >= nodes ||
        header.started > latest || header.ended.raw > latest || clock > static_cast<uint32_t>(ClockKind::virtual_tofud))
        return path + " has an invalid header; record the run again";
    header.job[sizeof header.job - 1] = '\0';
    header.name[sizeof header.name - 1] = '\0';
    return {};
}

bool is_op(uint8_t what) noexcept
{
    return what >= static_cast<uint8_t>(Op::put) && what <= static_cast<uint8_t>(Op::nop);
}

/// Until the first record that is not complete; behind it nothing was written.
void take_chunk(const std::byte* chunk, size_t bytes, ProcessTrace& trace)
{
    ChunkHeader head{};
    std::memcpy(&head, chunk, sizeof head);
    if (head.magic != chunk_magic)
        return; // taken, and its owner killed
    for (size_t at = sizeof head; at + sizeof(Record) <= bytes; at += sizeof(Record)) {
        Event event;
        std::memcpy(&event.record, chunk + at, sizeof event.record);
        event.thread = head.thread;
        if (event.record.type == Type::none)
            return;
        if (is_sound_record(event.record, trace.header))
            trace.events.push_back(event);
        else
            trace.damaged++;
    }
}

} // namespace

bool is_sound_record(const Record& record, const FileHeader& header) noexcept
{
    const uint8_t what = record.what;
    const bool in_time = record.time >= header.started && record.time <= latest;
    if (!in_time || record.vcq >= vcqs_per_node)
        return false;
    switch (record.type) {
    case Type::post:
    case Type::arrival: return is_op(what);
    case Type::relay: return is_op(what) && record.duration < max_nodes;
    case Type::notice: return what < 16;
    case Type::wait:
        return what <= static_cast<uint8_t>(End::other) && (uint64_t{record.arrival} << 32 | record.duration) <= latest;
    case Type::barrier:
    case Type::barrier_done: return what >= 1 && what <= static_cast<uint8_t>(Round::doubles);
    case Type::tcq:
    case Type::open_vcq:
    case Type::close_vcq: return true;
    case Type::none: return false;
    }
    return false; // no enumerator
}

std::string read_trace(const std::string& path, ProcessTrace& trace)
{
    trace = {};
    trace.path = path;
    const CloseFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat status {};
    if (file.fd < 0 || ::fstat(file.fd, &status) != 0)
        return path + ": " + std::strerror(errno);
    if (!S_ISREG(status.st_mode))
        return path + no_trace;
    const auto size = static_cast<uint64_t>(status.st_size);
    const size_t got = read_at(file.fd, &trace.header, sizeof trace.header, 0);
    if (got < sizeof trace.header) {
        const bool ours = got >= sizeof trace.header.magic && trace.header.magic == file_magic;
        return path + (ours || got == 0 ? cut_off : no_trace);
    }
    if (std::string problem = check_header(path, trace.header); !problem.empty())
        return problem;
    const auto chunk = std::make_unique<std::byte[]>(chunk_bytes);
    uint64_t at = header_bytes;
    for (; at < size; at += chunk_bytes) {
        const size_t bytes = read_at(file.fd, chunk.get(), chunk_bytes, at);
        if (bytes < sizeof(ChunkHeader))
            break;
        take_chunk(chunk.get(), bytes, trace);
    }
    const uint64_t there = size < header_bytes ? 0 : (size - header_bytes) / chunk_bytes;
    trace.cut_off = trace.header.chunks.raw > there;
    std::stable_sort(trace.events.begin(), trace.events.end(),
                     [](const Event& a, const Event& b) { return a.record.time < b.record.time; });
    return {};
}

} // namespace tofu::sim::trace
