// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See plan.h.
#include "coll/plan.h"

#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "mem/mr_directory.h"

namespace tofu::coll {

int check_support(fi_collective_op coll, fi_datatype type, fi_op op) noexcept
{
    if (coll == FI_BARRIER)
        return 0; // it has neither datatype nor operation
    if (static_cast<unsigned>(coll) > FI_GATHER || static_cast<unsigned>(type) >= datatype_count)
        return -FI_EOPNOTSUPP;
    if (!reduces(coll))
        return 0;
    // Reads and writes, which the page also lists, have no result that would be the same for all members.
    return static_cast<unsigned>(op) <= FI_BXOR && kernel_of(op, type) != nullptr ? 0 : -FI_EOPNOTSUPP;
}

int query(fid_domain*, fi_collective_op coll, fi_collective_attr* attr, std::uint64_t flags) noexcept
{
    if (attr == nullptr)
        return -FI_EINVAL;
    // The only flag of the page: attributes of the reduce-scatter.
    if (flags != 0 && (flags != FI_SCATTER || (coll != FI_REDUCE && coll != FI_REDUCE_SCATTER)))
        return -FI_EBADFLAGS;
    if (flags != 0)
        coll = FI_REDUCE_SCATTER;
    if (int ret = check_support(coll, attr->datatype, attr->op); ret != 0)
        return ret;
    attr->datatype_attr = {};
    if (coll != FI_BARRIER) {
        attr->datatype_attr.size = datatypes[attr->datatype].size;
        attr->datatype_attr.count = max_bytes / attr->datatype_attr.size;
    }
    attr->max_members = max_members;
    attr->mode = 0;
    return 0;
}

static schedule::Kind kind_of(fi_collective_op coll) noexcept
{
    using enum schedule::Kind;
    switch (coll) {
    case FI_BROADCAST: return broadcast;
    case FI_REDUCE: return reduce;
    case FI_ALLREDUCE: return allreduce;
    case FI_REDUCE_SCATTER: return reduce_scatter;
    case FI_ALLGATHER: return allgather;
    case FI_GATHER: return gather;
    case FI_SCATTER: return scatter;
    case FI_ALLTOALL: return alltoall;
    default: return barrier; // check_support() has rejected all others
    }
}

void View::read(std::size_t at, void* to, std::size_t size) const noexcept
{
    blocks.each(at, size, [&](std::size_t offset, std::size_t done, std::size_t take) {
        std::memcpy(static_cast<std::byte*>(to) + done, base + offset, take);
    });
}

void View::write(std::size_t at, const void* from, std::size_t size) const noexcept
{
    blocks.each(at, size, [&](std::size_t offset, std::size_t done, std::size_t take) {
        std::memcpy(base + offset, static_cast<const std::byte*>(from) + done, take);
    });
}

std::uint32_t signature_of(const Shape& s) noexcept
{
    std::uint64_t all = directory::mix(static_cast<std::uint64_t>(s.coll) + 1);
    for (const std::uint64_t word : {static_cast<std::uint64_t>(s.type), static_cast<std::uint64_t>(s.op),
                                     std::uint64_t{s.count}, std::uint64_t{s.root}})
        all = directory::mix(all ^ (word + 0x632be59bd9b4e019u));
    return (static_cast<std::uint32_t>(all) & 0x7fffffff) | 1;
}

void Plan::combine(std::byte* mine, std::byte* theirs, std::size_t bytes, Take take) const noexcept
{
    if (take == Take::left) {
        kernel_(mine, theirs, nullptr, bytes / size_);
    } else {
        kernel_(theirs, mine, nullptr, bytes / size_);
        std::memcpy(mine, theirs, bytes);
    }
}

View Plan::view_of(const schedule::Blocks& blocks) const noexcept
{
    std::byte* const bases[] = {in_, out_, own_.get()};
    return {bases[static_cast<unsigned>(blocks.buffer)] + blocks.offset, blocks};
}

int Plan::open(const Shape& shape, unsigned rank, unsigned members, const void* in, void* out) noexcept
{
    const bool empty = shape.coll == FI_BARRIER || shape.count == 0;
    size_ = empty ? 1 : datatypes[shape.type].size;
    kernel_ = !empty && reduces(shape.coll) ? kernel_of(shape.op, shape.type) : nullptr;
    schedule_ = schedule::Schedule(
        {.kind = kind_of(shape.coll), .count = shape.count, .element = size_, .root = shape.root}, rank, members);
    in_ = static_cast<std::byte*>(const_cast<void*>(in)); // only receives write through a view
    out_ = static_cast<std::byte*>(out);
    own_.reset();
    if (const std::size_t bytes = schedule_.own_bytes(); bytes != 0)
        own_.reset(new (std::nothrow) std::byte[bytes]);
    return own_ != nullptr || schedule_.own_bytes() == 0 ? 0 : -FI_ENOMEM;
}

struct Plan::Filler {
    Plan& plan;
    Round& round;

    /// Buffers overlap only if both are the same memory (a call in place).
    void copy(const schedule::Blocks& from, const schedule::Blocks& to) const noexcept
    {
        const View source = plan.view_of(from), target = plan.view_of(to);
        to.each(0, to.bytes(), [&](std::size_t offset, std::size_t done, std::size_t take) {
            from.each(done, take, [&](std::size_t there, std::size_t part, std::size_t size) {
                std::memmove(target.base + offset + part, source.base + there, size);
            });
        });
    }
    void send(unsigned lane, const schedule::Blocks& blocks) const noexcept
    {
        round.send[round.sends++] = {.view = plan.view_of(blocks), .lane = static_cast<std::uint8_t>(lane)};
    }
    void receive(unsigned lane, const schedule::Blocks& blocks, Take take, unsigned behind) const noexcept
    {
        round.receive[round.receives++] = {.view = plan.view_of(blocks),
                                           .lane = static_cast<std::uint8_t>(lane),
                                           .take = take,
                                           .behind = static_cast<std::uint8_t>(behind)};
    }
};

bool Plan::next(Round& round) noexcept
{
    round.sends = round.receives = 0;
    Filler filler{*this, round};
    return schedule_.next(filler);
}

} // namespace tofu::coll
