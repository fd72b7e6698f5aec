// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the network (net.cc) and the functions of uTofu over it (net_calls.cc) share: places, registered memory, posts
// and VCQs. See net.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "net.h"

namespace swarm {

constexpr unsigned line = 256;
constexpr std::uint64_t page = 65536;
constexpr unsigned first_tag = 0x1000;
constexpr unsigned window = 12; ///< posts of a VCQ that the network works at

struct Net::Place {
    unsigned node, tni, cq, component;
    [[nodiscard]] std::size_t index() const noexcept
    {
        return ((std::size_t{node} * Net::tnis + tni) * Net::cqs + cq) * Net::components + component;
    }
    [[nodiscard]] utofu_vcq_id_t id() const noexcept
    {
        return std::uint64_t{tni} << 61 | std::uint64_t{node} << 32 | 1u << 27 | component << 24 | cq;
    }
    /// False: no such place.
    static bool of(utofu_vcq_id_t id, Place& place) noexcept
    {
        place = {static_cast<unsigned>(id >> 32 & 0xff), static_cast<unsigned>(id >> 61),
                 static_cast<unsigned>(id & 0xffffff), static_cast<unsigned>(id >> 24 & 7)};
        return place.node < most_processes && place.tni < Net::tnis && place.cq < Net::cqs && (id >> 27 & 1) != 0;
    }
};

struct Net::Region {
    unsigned char* base = nullptr;
    std::size_t size = 0;
    std::uint64_t first = 0; ///< offset of its first byte in its STADDs
    unsigned users = 0;
    bool read_only = false;
};

struct Net::Op {
    enum Kind : std::uint8_t { put, get, armw, cswap };
    enum Stage : std::uint8_t { posted, read, written, told };
    Kind kind = put;
    Stage stage = posted;
    std::uint8_t width = 0; ///< of an ARMW
    bool strong = false, sent_told = false, mute = false;
    bool here = false; ///< a put of what stands in the descriptor
    int armw_op = 0;
    int tcq_code = UTOFU_SUCCESS, code = UTOFU_SUCCESS;
    utofu_vcq_id_t peer = 0;
    utofu_stadd_t local = 0, remote = 0;
    std::size_t length = 0;
    std::uint64_t operand = 0, compare = 0, old = 0, edata = 0;
    unsigned long flags = 0;
    void* cbdata = nullptr;
    std::vector<unsigned char> bytes;
    std::vector<std::uint32_t> left; ///< pieces that are still to be written, by their number

    [[nodiscard]] bool is_armw() const noexcept { return kind == armw || kind == cswap; } ///< reads and writes at once
};

struct Net::Vcq {
    Place place{};
    utofu_vcq_id_t id = 0;
    unsigned process = 0;
    bool alive = false, exclusive = false, active = false;
    Region of_user[reserved];
    std::vector<Region> others;
    std::vector<std::unique_ptr<Op>> ops; ///< in the order of the posts
    std::deque<std::pair<int, void*>> tcq;
    std::deque<std::pair<int, utofu_mrq_notice>> mrq;

    Region* region(unsigned tag) noexcept
    {
        if (tag >= first_tag) {
            const std::size_t at = (tag - first_tag) / 2;
            return at < others.size() && others[at].users != 0 ? &others[at] : nullptr;
        }
        const unsigned base = (8 + place.component) << 8;
        return tag >= base && tag < base + reserved && of_user[tag - base].users != 0 ? &of_user[tag - base] : nullptr;
    }
    /// Null: the bytes are not all registered.
    unsigned char* at(utofu_stadd_t stadd, std::size_t length, bool writes, bool& stray_tag) noexcept
    {
        Region* const found = region(static_cast<unsigned>(stadd >> 40));
        stray_tag = found == nullptr || (writes && found->read_only);
        if (stray_tag)
            return nullptr;
        const std::uint64_t offset = (stadd & 0xffffffffff) - found->first; // below the start: huge
        return offset <= found->size && length <= found->size - offset ? found->base + offset : nullptr;
    }
};

} // namespace swarm
