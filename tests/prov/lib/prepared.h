// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Prepared descriptors of ARMWs (guide 3.7.2) for networks of tests: their form in memory, and the functions of the
// table that write it. Used by tests only.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "utofu/library.h"

namespace tofu::test {

/// An ARMW or a CSWAP of 4 or 8 bytes. In memory the compare value of a CSWAP of 8 bytes stands behind 32 bytes.
struct PreparedArmw {
    std::uint8_t swaps;
    std::uint8_t width;
    std::uint8_t op;
    std::uint8_t edata;
    std::uint32_t flags;
    std::uint64_t peer;
    std::uint64_t remote;
    std::uint64_t operand;
    std::uint64_t compare;

    [[nodiscard]] std::size_t size() const { return swaps != 0 && width == 8 ? 64 : 32; }
    std::size_t write(void* to) const
    {
        PreparedArmw image = *this;
        if (swaps != 0 && width == 4)
            image.operand |= compare << 32;
        unsigned char bytes[64] = {};
        std::memcpy(bytes, &image, size() == 64 ? sizeof image : 32);
        std::memcpy(to, bytes, size());
        return size();
    }
    static PreparedArmw read(const void* from)
    {
        PreparedArmw made{};
        std::memcpy(&made, from, 32);
        if (made.size() == 64)
            std::memcpy(&made, from, sizeof made);
        if (made.swaps != 0 && made.width == 4) {
            made.compare = made.operand >> 32;
            made.operand &= 0xffffffff;
        }
        return made;
    }
    /// All in `size` bytes.
    static std::vector<PreparedArmw> read_all(const void* from, std::size_t size)
    {
        std::vector<PreparedArmw> all;
        for (std::size_t at = 0; at < size; at += all.back().size())
            all.push_back(read(static_cast<const char*>(from) + at));
        return all;
    }
};

template <class Word>
int prepare_armw(utofu_vcq_hdl_t, utofu_vcq_id_t peer, utofu_armw_op op, Word operand, utofu_stadd_t remote,
                 std::uint64_t edata, unsigned long flags, void* to, std::size_t* size)
{
    *size = PreparedArmw{0,
                         sizeof(Word),
                         static_cast<std::uint8_t>(op),
                         static_cast<std::uint8_t>(edata),
                         static_cast<std::uint32_t>(flags),
                         peer,
                         remote,
                         operand,
                         0}
                .write(to);
    return UTOFU_SUCCESS;
}
template <class Word>
int prepare_cswap(utofu_vcq_hdl_t, utofu_vcq_id_t peer, Word compare, Word swap, utofu_stadd_t remote,
                  std::uint64_t edata, unsigned long flags, void* to, std::size_t* size)
{
    *size =
        PreparedArmw{
            1,      sizeof(Word), 0,      static_cast<std::uint8_t>(edata), static_cast<std::uint32_t>(flags), peer,
            remote, swap,         compare}
            .write(to);
    return UTOFU_SUCCESS;
}
inline void add_prepare(vcq::Functions& f)
{
    f.prepare_armw4 = prepare_armw<std::uint32_t>;
    f.prepare_armw8 = prepare_armw<std::uint64_t>;
    f.prepare_cswap4 = prepare_cswap<std::uint32_t>;
    f.prepare_cswap8 = prepare_cswap<std::uint64_t>;
}

} // namespace tofu::test
