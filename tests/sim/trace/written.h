// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Trace files as a recorder would write them, made up by tests.
#pragma once

#include "tni/descriptor.h"
#include "topology/ids.h"
#include "trace/format.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace tofu::sim::trace {

inline FileHeader some_header(uint32_t rank, uint32_t node, const Topology& topology, uint64_t born = 7)
{
    FileHeader header{};
    header.magic = file_magic;
    header.version = format_version;
    header.header_bytes = header_bytes;
    header.chunk_bytes = chunk_bytes;
    header.record_bytes = sizeof(Record);
    header.born = born;
    header.started = 1000;
    header.ended.raw = 1;
    header.pid = static_cast<int32_t>(100 + rank);
    header.rank = rank;
    header.node = node;
    for (unsigned axis = 0; axis < 3; axis++)
        header.shape[axis] = topology.units()[axis];
    header.wraps = topology.wraps();
    std::snprintf(header.job, sizeof header.job, "made-up");
    std::snprintf(header.name, sizeof header.name, "maker");
    return header;
}

// The VCQ 0 of a node, with its own A, B, C as path.
inline uint64_t vcq_of(const Topology& topology, uint32_t node)
{
    const Coords c = topology.coords_of(node);
    return encode_vcq_id({c, {c[3], c[4], c[5]}, 0, 0, 0});
}

inline Record some_record(Type type, uint64_t time, uint64_t peer = 0, uint8_t what = 0)
{
    Record record{};
    record.time = time;
    record.peer = peer;
    record.type = type;
    record.what = what;
    return record;
}
inline Record some_post(uint64_t time, uint64_t peer, uint32_t bytes, uint32_t arrival, Op op = Op::put)
{
    Record record = some_record(Type::post, time, peer, static_cast<uint8_t>(op));
    record.duration = 100;
    record.arrival = arrival;
    record.bytes = bytes;
    return record;
}
inline Record some_wait(uint64_t time, uint64_t length, End end, uint64_t peer = 0)
{
    Record record = some_record(Type::wait, time, peer, static_cast<uint8_t>(end));
    record.duration = static_cast<uint32_t>(length);
    record.arrival = static_cast<uint32_t>(length >> 32);
    return record;
}

// One chunk after the other, of one thread.
inline bool write_trace(const std::string& path, const FileHeader& header, const std::vector<Record>& records)
{
    std::FILE* const to = std::fopen(path.c_str(), "we");
    if (to == nullptr)
        return false;
    std::vector<char> first(header_bytes);
    std::memcpy(first.data(), &header, sizeof header);
    bool good = std::fwrite(first.data(), first.size(), 1, to) == 1;
    for (size_t i = 0; i < records.size(); i++) {
        if (i % records_per_chunk == 0) {
            ChunkHeader chunk{};
            chunk.magic = chunk_magic;
            chunk.thread = static_cast<uint32_t>(header.pid);
            good = good && std::fwrite(&chunk, sizeof chunk, 1, to) == 1;
        }
        good = good && std::fwrite(&records[i], sizeof records[i], 1, to) == 1;
    }
    return std::fclose(to) == 0 && good;
}

} // namespace tofu::sim::trace
