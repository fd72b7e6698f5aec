// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What lies in a trace: a file of a process, written through a mapping, readable at any moment.
//
// A header, then chunks of equal size; a chunk belongs to one thread, which fills it with records from the front. The
// last word of a record, which holds its type, is stored last: a record with a type is complete, whenever its writer
// was killed. Nothing is ever written twice but the record of a wait that goes on, at the end of its chunk.
#pragma once

#include "job/shared_word.h"

#include <cstddef>
#include <cstdint>

namespace tofu::sim::trace {

inline constexpr uint64_t file_magic = 0x6361727475666f74; ///< "tofutrac"
inline constexpr uint32_t chunk_magic = 0x6b6e6863;        ///< "chnk"
inline constexpr uint32_t format_version = 3;

enum class ClockKind : uint32_t { real = 0, virtual_tofud = 1 };

/// Times are nanoseconds of one clock for all processes of a job: CLOCK_MONOTONIC, or the virtual one.
struct FileHeader {
    uint64_t magic; ///< written last
    uint32_t version;
    uint32_t header_bytes;
    uint32_t chunk_bytes;
    uint32_t record_bytes;
    uint64_t born;              ///< of the job: JobHeader
    uint64_t started;           ///< when the process joined
    SharedWord<uint64_t> ended; ///< when it left; 0: it runs, or was killed
    SharedWord<uint64_t> lost;  ///< records that found no room
    ClockKind clock;
    int32_t pid;
    uint32_t rank;
    uint32_t node;
    uint32_t size;    ///< processes as the launcher said; 0: unknown
    uint32_t ppn;     ///< 0: not given
    uint8_t shape[3]; ///< units of 2x3x2 nodes
    uint8_t wraps;
    uint32_t cpu_permille;       ///< what computing takes on a virtual clock, in thousandths of what it takes here
    SharedWord<uint64_t> chunks; ///< handed out
    char job[72];
    char name[32]; ///< of the program
};
static_assert(sizeof(FileHeader) == 200 && offsetof(FileHeader, chunks) == 88);

inline constexpr uint32_t header_bytes = 4096;
inline constexpr uint32_t chunk_bytes = 65536;

enum class Type : uint8_t {
    none = 0,
    post = 1,         ///< what: Op. An instruction was posted and, unless `late`, carried out
    arrival = 2,      ///< what: Op. One that was late; bytes: as in its post
    relay = 3,        ///< what: Op. We carried out what waited in a VCQ of session mode, ours or another's
    notice = 4,       ///< what: utofu_mrq_notice_type. Found by a poll of the MRQ
    tcq = 5,          ///< Found by a poll of the TCQ
    wait = 6,         ///< what: End. Polls that found nothing, from the first to what ended it
    barrier = 7,      ///< what: Round. A barrier or reduction by gates was started
    barrier_done = 8, ///< what: Round. And its end found
    open_vcq = 9,     ///< peer: its ID
    close_vcq = 10,
};
inline constexpr uint8_t last_type = 10;

enum class End : uint8_t { going_on = 0, post = 1, notice = 2, tcq = 3, barrier = 4, other = 5 };
enum class Round : uint8_t { barrier = 1, integers = 2, doubles = 3 };

/// In the upper byte of Record::bytes.
inline constexpr uint32_t bytes_mask = 0xffffff;  ///< a transfer has less than 16 MiB
inline constexpr uint32_t flag_late = 1u << 24;   ///< a record `arrival` or `relay` will follow
inline constexpr uint32_t flag_failed = 1u << 25; ///< nothing arrived
inline constexpr uint32_t flag_told = 1u << 26;   ///< with a notice to the target
inline constexpr uint32_t flag_strong = 1u << 27; ///< strong order
/// What the poster finds. Of an instruction that failed: an entry if it was not sent, a notice if it was.
inline constexpr uint32_t flag_tcq = 1u << 28;  ///< an entry of the TCQ
inline constexpr uint32_t flag_mine = 1u << 29; ///< a notice

struct Record {
    uint64_t time;
    /// A VCQ ID, with the path that was taken: where a post goes, whose notice it is. Of wait: the notice's, or 0. Of
    /// barrier and barrier_done: identifies rounds of different gates.
    uint64_t peer;
    /// post: of the call, and from `time` until the instruction took effect at the target (by the virtual clock a get's
    /// bytes were here), or its toq position if late.
    /// arrival: none, and the toq position. relay: node of the VCQ whose instruction it was, none. wait: both together
    /// are its length.
    uint32_t duration;
    uint32_t arrival;
    uint32_t bytes; ///< payload, of an atomic operation how many in a row; with flags
    uint16_t vcq;   ///< ours, by index on its node; of relay that of the other's node
    Type type;
    uint8_t what;
};
static_assert(sizeof(Record) == 32 && offsetof(Record, bytes) == 24 && offsetof(Record, type) == 30);

struct ChunkHeader {
    uint32_t magic; ///< written last
    uint32_t thread;
    uint8_t reserved[24];
};
static_assert(sizeof(ChunkHeader) == sizeof(Record));

inline constexpr uint32_t records_per_chunk = chunk_bytes / sizeof(Record) - 1;

} // namespace tofu::sim::trace
