// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The part of one member in a collective: the rounds of schedule/schedule.h applied to the member's memory, and the
// copies between the rounds. Pure: it knows ranks and memory, not the network. Reductions use the kernels of atomics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fi_collective.h>

#include "atomic/op_table.h"
#include "schedule/schedule.h"

namespace tofu::coll {

// The parameters of a collective, which must be the same for all members.

struct Shape {
    fi_collective_op coll = FI_BARRIER;
    fi_datatype type = FI_VOID;
    fi_op op = FI_NOOP;
    std::size_t count = 0;
    unsigned root = 0;
};

// Which collectives support which datatypes and operations (fi_query_collective): those with a kernel of atomics.

inline constexpr std::size_t max_members = std::size_t{1} << 20;
inline constexpr std::size_t max_bytes = std::size_t{1} << 40; ///< size of the largest buffer of one member

/// True if the collective is a reduction, and so has an operation.
constexpr bool reduces(fi_collective_op coll) noexcept
{
    return coll == FI_ALLREDUCE || coll == FI_REDUCE || coll == FI_REDUCE_SCATTER;
}
/// 0, or -FI_EOPNOTSUPP.
[[nodiscard]] int check_support(fi_collective_op coll, fi_datatype type, fi_op op) noexcept;
/// fi_query_collective(3). 0, -FI_EOPNOTSUPP, -FI_EINVAL (no attr), -FI_EBADFLAGS. Reads only op and datatype of
/// `attr`, and writes to it only on success.
int query(fid_domain* domain, fi_collective_op coll, fi_collective_attr* attr, std::uint64_t flags) noexcept;

using schedule::bits_of;
using schedule::chunk;
using schedule::down;
using schedule::max_bits;
using schedule::member_at;
using schedule::mirror;
using schedule::slots;
using schedule::Take;
using schedule::up;

/// Pieces of an array of blocks in memory, read as one stream of bytes.
struct View {
    std::byte* base = nullptr; ///< address of `blocks.offset`
    schedule::Blocks blocks;

    [[nodiscard]] std::size_t bytes() const noexcept { return blocks.bytes(); }
    void read(std::size_t at, void* to, std::size_t size) const noexcept;
    void write(std::size_t at, const void* from, std::size_t size) const noexcept;
};

struct Transfer {
    View view;
    std::size_t done = 0; ///< bytes transferred
    bool over = false;    ///< it has ended; even an empty transfer is one message
    std::uint8_t lane = 0;
    Take take = Take::copy;
    /// For a receive: the index of the send in this round that reads the same memory, or none. Each chunk is sent
    /// before it is overwritten.
    static constexpr std::uint8_t none = schedule::no_send;
    std::uint8_t behind = none;
};

/// The transfers of a round, which are independent of each other. The next round begins when all have ended: sends have
/// been copied, receives have been consumed.
struct Round {
    unsigned sends = 0;
    unsigned receives = 0;
    Transfer send[max_bits + 1];
    Transfer receive[max_bits + 1];
};

/// The signature of a collective, never 0. Bit 31 is 0; the caller sets it if gates are used.
[[nodiscard]] std::uint32_t signature_of(const Shape& shape) noexcept;

/// One collective of one member.
class Plan {
  public:
    /// Begins a collective. `in` and `out` are `buf` and `result` of the call; a broadcast has only `out`. 0 or
    /// -FI_ENOMEM.
    [[nodiscard]] int open(const Shape& shape, unsigned rank, unsigned members, const void* in, void* out) noexcept;
    void close() noexcept { own_.reset(); }
    /// Fills in the next round that is not empty. False: the collective has ended.
    [[nodiscard]] bool next(Round& round) noexcept;
    /// Applies the operation to `bytes` at `mine`, by Take::left or right; `theirs` is overwritten.
    void combine(std::byte* mine, std::byte* theirs, std::size_t bytes, Take take) const noexcept;

  private:
    /// Fills in a round from the calls of schedule::Schedule.
    struct Filler;
    [[nodiscard]] View view_of(const schedule::Blocks& blocks) const noexcept;

    schedule::Schedule schedule_;
    Kernel kernel_ = nullptr;
    std::size_t size_ = 1; ///< of an element
    std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
    std::unique_ptr<std::byte[]> own_;
};

} // namespace tofu::coll
