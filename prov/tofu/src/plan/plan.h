// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What one member does in a collective: rounds of transfers with members at distances that are powers of two, and the
// copies between the rounds. Pure: it knows ranks and memory, not the network. Used by group.cc; calls the kernels of
// atomics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fi_collective.h>

#include "gates/shape.h"
#include "kernel/kernel.h"

namespace tofu::coll {

/// A member has lanes to the members at rank ± 2^k (modulo the group): number 2k upwards, 2k + 1 downwards.
inline constexpr unsigned max_bits = 20;
constexpr unsigned up(unsigned bit) noexcept { return 2 * bit; }
constexpr unsigned down(unsigned bit) noexcept { return 2 * bit + 1; }
/// The number of a lane at its other end.
constexpr unsigned mirror(unsigned lane) noexcept { return lane ^ 1; }
/// The number of distances in a group of `n`: the least `bits` with 2^bits >= n.
constexpr unsigned bits_of(unsigned n) noexcept
{
    unsigned bits = 0;
    while ((std::uint64_t{1} << bits) < n)
        bits++;
    return bits;
}
constexpr unsigned member_at(unsigned lane, unsigned rank, unsigned n) noexcept
{
    const std::uint64_t distance = std::uint64_t{1} << lane / 2;
    return static_cast<unsigned>((rank + (lane % 2 == 0 ? distance : n - distance)) % n);
}

/// The payload of one message, a multiple of every datatype's size.
inline constexpr std::size_t chunk = 4064;
static_assert(chunk % 32 == 0);

/// Pieces of an array of blocks, read as one stream of bytes.
struct View {
    std::byte* base = nullptr;
    std::size_t stride = 0; ///< of blocks
    std::size_t piece = 0;  ///< bytes of each
    unsigned first = 0;     ///< block
    unsigned count = 1;     ///< of blocks
    unsigned ring = 1;      ///< blocks are counted modulo this
    int bit = -1;           ///< >= 0: only blocks with this bit set in their number, from the lowest on

    [[nodiscard]] std::size_t bytes() const noexcept { return piece * count; }
    void read(std::size_t at, void* to, std::size_t size) const noexcept;
    void write(std::size_t at, const void* from, std::size_t size) const noexcept;

  private:
    [[nodiscard]] std::size_t block(unsigned i) const noexcept;
    template <class Visit>
    void each(std::size_t at, std::size_t size, Visit&& visit) const noexcept;
};

/// What a member does with data that arrives.
enum class Take : std::uint8_t {
    copy,
    left, ///< mine = mine op theirs
    right ///< mine = theirs op mine
};

struct Transfer {
    View view;
    std::size_t done = 0; ///< bytes transferred
    bool over = false;    ///< it has ended; even an empty transfer is one message
    std::uint8_t lane = 0;
    Take take = Take::copy;
    /// For a receive: the number of the send of this round that reads the same memory, and goes before it chunk by
    /// chunk; or none.
    static constexpr std::uint8_t none = 0xff;
    std::uint8_t behind = none;
};

/// The transfers of a round, which go on side by side. The next round begins when all are over: sends have been copied
/// out, receives have been taken.
struct Round {
    unsigned sends = 0;
    unsigned receives = 0;
    Transfer send[max_bits + 1];
    Transfer receive[max_bits + 1];

    void add_send(unsigned lane, const View& view) noexcept;
    void add_receive(unsigned lane, const View& view, Take take = Take::copy, std::uint8_t behind = Transfer::none) noexcept;
};

/// The place of a member in its group, and in the binomial tree of the root, whose children are at distances 2^k.
struct Standing {
    unsigned rank = 0;
    unsigned members = 1;
    unsigned bits = 0;    ///< number of distances in the group
    // The place in the tree, after count_from().
    unsigned turned = 0;  ///< rank counted from the root
    unsigned reach = 0;   ///< number of distances to children; the parent, if any, is at the next one
    unsigned subtree = 1; ///< number of members at and below this one

    void count_from(unsigned root) noexcept;
    [[nodiscard]] bool is_root() const noexcept { return turned == 0; }
    [[nodiscard]] bool has_child(unsigned k) const noexcept { return turned + (std::uint64_t{1} << k) < members; }
};

/// The signature of a collective, never 0. Bit 31 is left to the caller, which marks the way by it.
[[nodiscard]] std::uint32_t signature_of(const Shape& shape) noexcept;

/// One collective of one member.
class Plan {
  public:
    /// Begins a collective. `in` and `out` are the call's buf and result; a broadcast has only `out`. 0 or -FI_ENOMEM.
    [[nodiscard]] int open(const Shape& shape, unsigned rank, unsigned members, const void* in, void* out) noexcept;
    void close() noexcept { own_.reset(); }
    /// Fills in the next round that is not empty. False: the collective is over.
    [[nodiscard]] bool next(Round& round) noexcept;
    /// Applies the operation to `bytes` at `mine`, by Take::left or right; `theirs` is overwritten.
    void combine(std::byte* mine, std::byte* theirs, std::size_t bytes, Take take) const noexcept;

  private:
    /// Fills in round number step_, or none. False: the collective is over.
    using Way = bool (Plan::*)(Round& round) noexcept;
    [[nodiscard]] bool barrier(Round& round) noexcept;
    [[nodiscard]] bool broadcast(Round& round) noexcept;
    [[nodiscard]] bool reduce(Round& round) noexcept;
    [[nodiscard]] bool doubling(Round& round) noexcept;
    [[nodiscard]] bool ring(Round& round) noexcept;
    [[nodiscard]] bool allgather(Round& round) noexcept;
    [[nodiscard]] bool gather(Round& round) noexcept;
    [[nodiscard]] bool scatter(Round& round) noexcept;
    [[nodiscard]] bool alltoall(Round& round) noexcept;
    [[nodiscard]] bool next_segment() noexcept;
    [[nodiscard]] bool confirm(Round& round) noexcept;
    [[nodiscard]] View part(unsigned block) const noexcept;
    [[nodiscard]] View subtree(std::byte* whole) const noexcept;
    [[nodiscard]] bool make_own(std::size_t bytes) noexcept;

    Shape shape_;
    Way way_ = &Plan::barrier;
    Kernel kernel_ = nullptr;
    Standing self_;
    std::size_t size_ = 1; ///< of an element
    std::size_t bytes_ = 0; ///< of a block, which one member contributes or gets
    std::size_t segment_ = 0; ///< bytes of a block that go at a time
    std::size_t at_ = 0;      ///< offset of the segment in the block
    unsigned step_ = 0;
    std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
    std::byte* work_ = nullptr; ///< own_ or out_
    std::unique_ptr<std::byte[]> own_;
};

} // namespace tofu::coll
