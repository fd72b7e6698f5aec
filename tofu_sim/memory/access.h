// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a posting VCQ reaches bytes named by (VCQ, STADD): put, get and ARMW, and a cache of translations.
//
// The cache maps an STag to a pointer. A line holds the entry's sequence number as it was when the line was
// filled; the shared word is compared on every use, so that a deregistration or a move is seen at once.
#pragma once

#include "memory/copy.h"
#include "memory/memory.h"
#include "memory/rent.h"

#include <array>

namespace tofu::sim {

enum class Need : uint32_t { read = 1, write = 2 };

/// One per posting VCQ (18 KiB); used by one thread at a time.
class AddressCache {
  public:
    /// The bytes at `stadd` as an address of this process, or null: not allowed, not mapped, or not yet seen.
    [[nodiscard]] std::byte* find(const RemoteVcq& vcq, uint64_t stadd, size_t length, Need need) const noexcept
    {
        const Line& line = lines_[index(vcq.serial, uint32_t(stadd >> stadd_offset_bits))];
        return find_in(line, vcq, stadd, length, need);
    }

    /// find() for a Put. Where Puts follow each other at a fixed distance, as in a ring, prefetches the lines of one to
    /// come: a network interface stores beside the processor, but here the stores of the poster wait for each line that
    /// the target's processor has read.
    [[nodiscard]] std::byte* find_target(const RemoteVcq& vcq, uint64_t stadd, size_t length) noexcept
    {
        Line& line = lines_[index(vcq.serial, uint32_t(stadd >> stadd_offset_bits))];
        std::byte* const target = find_in(line, vcq, stadd, length, Need::write);
        if (target == nullptr) [[unlikely]]
            return nullptr;
        const int32_t distance = int32_t(uint32_t(stadd) - line.last_put);
        line.last_put = uint32_t(stadd);
        if (distance == line.distance) {
            std::byte* const later = target + puts_ahead * distance;
            prefetch_to_write(later);
            prefetch_to_write(later + length - 1);
        }
        line.distance = distance;
        return target;
    }

    /// The same, filling the cache first. For bytes of this process (vcq.process null) the only way needed:
    /// `ok` and a pointer, or why not. For a peer a pointer may stay null with `ok`: use put, get or armw.
    [[nodiscard]] AccessStatus translate(const RemoteVcq& vcq, uint64_t stadd, size_t length, Need need,
                                         std::byte** pointer) noexcept
    {
        *pointer = find(vcq, stadd, length, need);
        return *pointer != nullptr ? AccessStatus::ok : translate_slow(vcq, stadd, length, need, pointer);
    }

    /// Are these bytes registered with these rights? No transfer, no mapping. `address`, unless null: where the first
    /// one is in their owner, which is a number and nothing more; set on success.
    [[nodiscard]] AccessStatus check(const RemoteVcq& vcq, uint64_t stadd, size_t length, Need need,
                                     uint64_t* address = nullptr) noexcept;

    /// Copies `length` bytes; complete when they return. An error leaves any part of the destination written.
    [[nodiscard]] AccessStatus put(const RemoteVcq& target, uint64_t stadd, const void* source, size_t length,
                                   CopyOrder order) noexcept
    {
        std::byte* to = find(target, stadd, length, Need::write);
        if (to == nullptr) [[unlikely]]
            return put_slow(target, stadd, source, length, order);
        copy_bytes(to, source, length, order);
        return AccessStatus::ok;
    }
    [[nodiscard]] AccessStatus get(const RemoteVcq& target, uint64_t stadd, void* destination, size_t length,
                                   CopyOrder order) noexcept
    {
        const std::byte* from = find(target, stadd, length, Need::read);
        if (from == nullptr) [[unlikely]]
            return get_slow(target, stadd, destination, length, order);
        copy_bytes(destination, from, length, order);
        return AccessStatus::ok;
    }

    /// Atomic against all CPU atomics on these bytes. `size` 4 or 8; the address must be a multiple of it
    /// (checked: bad_stadd). A 4-byte operation uses the low halves; *old_value is set on success.
    [[nodiscard]] AccessStatus armw(const RemoteVcq& target, uint64_t stadd, unsigned size, ArmwOp op, uint64_t operand,
                                    uint64_t compare, uint64_t* old_value) noexcept;

  private:
    struct alignas(apart) Line {
        uint64_t serial = 0;
        uint32_t stag = 0;
        uint32_t sequence = 0;
        const SharedWord<uint32_t>* sequence_word = nullptr;
        std::byte* base = nullptr; ///< address of offset 0, which itself need not be mapped
        uint64_t first = 0;        ///< offsets reachable through base
        uint64_t limit = 0;
        uint32_t rights = 0;   ///< of Need
        uint32_t last_put = 0; ///< low half of its STADD
        int32_t distance = 0;  ///< of the last two Puts
    };
    static_assert(sizeof(Line) == 64);
    static constexpr size_t num_lines = 256;
    /// Measured: with fewer the lines come late, with more the target's own prefetches take them away again.
    static constexpr ptrdiff_t puts_ahead = 3;

    [[nodiscard]] static std::byte* find_in(const Line& line, const RemoteVcq& vcq, uint64_t stadd, size_t length,
                                            Need need) noexcept
    {
        const uint64_t offset = stadd & stadd_offset_mask;
        if (line.serial != vcq.serial || line.stag != uint32_t(stadd >> stadd_offset_bits))
            return nullptr;
        // Acquire: the mapping described is at least as new as the sequence (partner: registry, publish).
        if (line.sequence_word->load_acquire() != line.sequence)
            return nullptr;
        if (offset < line.first || offset > line.limit || length > line.limit - offset)
            return nullptr;
        if ((line.rights & uint32_t(need)) == 0)
            return nullptr;
        return line.base + offset;
    }

    /// The cost of copies from or to one address of a peer. Not part of a line, because a program that registers memory
    /// for each transfer gives it a new STag each time.
    struct Heat {
        uint64_t serial = 0;
        uint64_t address = 0;
        Rent rent{};
        bool refused = false; ///< the last move that was waited for
    };
    /// Of buffers in use at a time: a set that they do not fit into forgets the coldest over and over, and moves none.
    static constexpr size_t heat_sets = 128;
    static constexpr size_t heat_ways = 4;

    [[nodiscard]] static size_t index(uint64_t serial, uint32_t stag) noexcept
    {
        return size_t((stag >> 1) ^ (stag << 7) ^ (serial * 37)) % num_lines;
    }
    struct Transfer;
    struct Location;
    AccessStatus put_slow(const RemoteVcq& target, uint64_t stadd, const void* source, size_t length,
                          CopyOrder order) noexcept;
    AccessStatus get_slow(const RemoteVcq& target, uint64_t stadd, void* destination, size_t length,
                          CopyOrder order) noexcept;
    AccessStatus translate_slow(const RemoteVcq& vcq, uint64_t stadd, size_t length, Need need,
                                std::byte** pointer) noexcept;
    AccessStatus transfer_slow(Transfer& transfer) noexcept;
    AccessStatus transfer_piece(Transfer& transfer, const Location& at) noexcept;
    AccessStatus transfer_by_copy(Transfer& transfer, const Location& at, size_t bytes) noexcept;
    AccessStatus transfer_by_owner(Transfer& transfer, size_t bytes) noexcept;
    [[nodiscard]] Heat& heat_of(const RemoteVcq& vcq, uint64_t address) noexcept;
    void fill(const RemoteVcq& vcq, const Location& at) noexcept;

    std::array<Line, num_lines> lines_{};
    std::array<std::array<Heat, heat_ways>, heat_sets> heats_{};
};

} // namespace tofu::sim
