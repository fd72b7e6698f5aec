// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A uTofu library that hands every call on to another (COUNTED_LIBRARY) and keeps count: operations, bytes, and a
// logical clock of what waits for what.
//
// For one thread and two sides in one process that do one thing at a time. Times are those of
// Tofu-D between neighbours, as published measurements have them (docs/performance.md,
// "Ten figures").
#include "counted.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <map>
#include <utility>
#include <utofu.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace tofu::bench;

constexpr double post_ns = 230;                 // the processor, for each call
constexpr double put_inline_ns = 980;           // 8 bytes, one way
constexpr double put_ns = 1230;                 // plus the payload
constexpr double get_ns = 1490, armw_ns = 1330; // and back
constexpr double bytes_per_ns = 6.36;

struct Pending {
    std::uint64_t hops;
    double ns;
};

struct Prepared {
    std::size_t size; // of a descriptor
    std::uint64_t out, back;
    unsigned long flags;
};

struct State {
    std::map<utofu_vcq_hdl_t, int> side_of;
    std::map<std::pair<utofu_vcq_hdl_t, utofu_stadd_t>, std::size_t> registered; // bytes
    std::map<utofu_vcq_hdl_t, std::deque<Pending>> notices; // local ones come in the order of posts
    std::map<utofu_vcq_hdl_t, Prepared> prepared;
    double link_free[wire_sides] = {};
};
State state;

void* library()
{
    static void* const handle = [] {
        const char* path = std::getenv("COUNTED_LIBRARY");
        void* found = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
        if (found == nullptr) {
            std::fprintf(stderr, "libcounted: COUNTED_LIBRARY is not a uTofu library\n");
            std::abort();
        }
        return found;
    }();
    return handle;
}

template <class F>
F* real(F*, const char* name)
{
    void* symbol = dlsym(library(), name);
    if (symbol == nullptr) {
        std::fprintf(stderr, "libcounted: %s is missing\n", name);
        std::abort();
    }
    return reinterpret_cast<F*>(symbol);
}
#define REAL(name) static auto* const next = real(static_cast<decltype(&::name)>(nullptr), #name)

} // namespace

EXPORT Wire counted_wire;
Wire counted_wire = {};

namespace {

enum class Kind { put_inline, put, get, armw };

// A call that was accepted.
void posted(utofu_vcq_hdl_t vcq, Kind kind, std::uint64_t out, std::uint64_t back, unsigned long flags,
            double call_ns = post_ns)
{
    const int side = state.side_of[vcq];
    WireCounts& mine = counted_wire.side[side];
    WireCounts& theirs = counted_wire.side[1 - side];
    mine.puts += kind == Kind::put || kind == Kind::put_inline;
    // guide 2.2.11: what does not cover a line goes there with padding only, which only an inline Put may have
    constexpr unsigned long whole_line = UTOFU_ONESIDED_FLAG_CACHE_INJECTION | UTOFU_ONESIDED_FLAG_PADDING;
    mine.injected += (kind == Kind::put_inline && (flags & whole_line) == whole_line) ||
                     (kind == Kind::put && (flags & UTOFU_ONESIDED_FLAG_CACHE_INJECTION) != 0);
    mine.gets += kind == Kind::get;
    mine.armws += kind == Kind::armw;
    mine.bytes_out += out;
    mine.bytes_back += back;
    // The bytes of a Get use the link the other way.
    double& link = state.link_free[back > out ? 1 - side : side];
    const double start = std::max(mine.ns, link);
    const double wire = double(std::max(out, back)) / bytes_per_ns;
    link = start + wire;
    const double there = start + (kind == Kind::put ? put_ns + wire : put_inline_ns);
    // The way back of a Put's answer is as long as that of an ARMW's.
    const double notice = kind == Kind::get    ? start + get_ns + wire
                          : kind == Kind::armw ? start + armw_ns
                                               : there + (armw_ns - put_inline_ns);
    if (kind != Kind::get) {
        theirs.hops = std::max(theirs.hops, mine.hops + 1);
        theirs.ns = std::max(theirs.ns, there);
    }
    if (flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)
        state.notices[vcq].push_back({mine.hops + 2, notice});
    mine.ns += call_ns;
}

} // namespace

namespace {

int registered(int code, utofu_vcq_hdl_t vcq, size_t size, const utofu_stadd_t* stadd)
{
    if (code != UTOFU_SUCCESS)
        return code;
    WireCounts& side = counted_wire.side[state.side_of[vcq]];
    side.registrations++;
    side.registered += std::int64_t(size);
    state.registered[{vcq, *stadd}] = size;
    return code;
}

} // namespace

EXPORT int utofu_create_vcq(utofu_tni_id_t tni, unsigned long flags, utofu_vcq_hdl_t* vcq)
{
    REAL(utofu_create_vcq);
    const int code = next(tni, flags, vcq);
    if (code == UTOFU_SUCCESS)
        state.side_of[*vcq] = counted_wire.creating;
    return code;
}

EXPORT int utofu_reg_mem(utofu_vcq_hdl_t vcq, void* address, size_t size, unsigned long flags, utofu_stadd_t* stadd)
{
    REAL(utofu_reg_mem);
    return registered(next(vcq, address, size, flags, stadd), vcq, size, stadd);
}

EXPORT int utofu_reg_mem_with_stag(utofu_vcq_hdl_t vcq, void* address, size_t size, unsigned int stag,
                                   unsigned long flags, utofu_stadd_t* stadd)
{
    REAL(utofu_reg_mem_with_stag);
    return registered(next(vcq, address, size, stag, flags, stadd), vcq, size, stadd);
}

EXPORT int utofu_dereg_mem(utofu_vcq_hdl_t vcq, utofu_stadd_t stadd, unsigned long flags)
{
    REAL(utofu_dereg_mem);
    const auto found = state.registered.find({vcq, stadd});
    if (found != state.registered.end()) {
        counted_wire.side[state.side_of[vcq]].registered -= std::int64_t(found->second);
        state.registered.erase(found);
    }
    return next(vcq, stadd, flags);
}

EXPORT int utofu_put(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, utofu_stadd_t local, utofu_stadd_t remote, size_t length,
                     uint64_t edata, unsigned long flags, void* data)
{
    REAL(utofu_put);
    const int code = next(vcq, to, local, remote, length, edata, flags, data);
    if (code == UTOFU_SUCCESS)
        posted(vcq, Kind::put, length, 0, flags);
    return code;
}

EXPORT int utofu_put_piggyback(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, void* bytes, utofu_stadd_t remote, size_t length,
                               uint64_t edata, unsigned long flags, void* data)
{
    REAL(utofu_put_piggyback);
    const int code = next(vcq, to, bytes, remote, length, edata, flags, data);
    if (code == UTOFU_SUCCESS)
        posted(vcq, Kind::put_inline, length, 0, flags);
    return code;
}

EXPORT int utofu_put_piggyback8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, uint64_t value, utofu_stadd_t remote,
                                size_t length, uint64_t edata, unsigned long flags, void* data)
{
    REAL(utofu_put_piggyback8);
    const int code = next(vcq, to, value, remote, length, edata, flags, data);
    if (code == UTOFU_SUCCESS)
        posted(vcq, Kind::put_inline, length, 0, flags);
    return code;
}

EXPORT int utofu_get(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, utofu_stadd_t local, utofu_stadd_t remote, size_t length,
                     uint64_t edata, unsigned long flags, void* data)
{
    REAL(utofu_get);
    const int code = next(vcq, to, local, remote, length, edata, flags, data);
    if (code == UTOFU_SUCCESS)
        posted(vcq, Kind::get, 0, length, flags);
    return code;
}

EXPORT int utofu_armw4(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, enum utofu_armw_op op, uint32_t value,
                       utofu_stadd_t remote, uint64_t edata, unsigned long flags, void* data)
{
    REAL(utofu_armw4);
    const int code = next(vcq, to, op, value, remote, edata, flags, data);
    if (code == UTOFU_SUCCESS)
        posted(vcq, Kind::armw, 4, 4, flags);
    return code;
}

EXPORT int utofu_armw8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, enum utofu_armw_op op, uint64_t value,
                       utofu_stadd_t remote, uint64_t edata, unsigned long flags, void* data)
{
    REAL(utofu_armw8);
    const int code = next(vcq, to, op, value, remote, edata, flags, data);
    if (code == UTOFU_SUCCESS)
        posted(vcq, Kind::armw, 8, 8, flags);
    return code;
}

EXPORT int utofu_cswap4(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, uint32_t old_value, uint32_t new_value,
                        utofu_stadd_t remote, uint64_t edata, unsigned long flags, void* data)
{
    REAL(utofu_cswap4);
    const int code = next(vcq, to, old_value, new_value, remote, edata, flags, data);
    if (code == UTOFU_SUCCESS)
        posted(vcq, Kind::armw, 8, 4, flags);
    return code;
}

EXPORT int utofu_cswap8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, uint64_t old_value, uint64_t new_value,
                        utofu_stadd_t remote, uint64_t edata, unsigned long flags, void* data)
{
    REAL(utofu_cswap8);
    const int code = next(vcq, to, old_value, new_value, remote, edata, flags, data);
    if (code == UTOFU_SUCCESS)
        posted(vcq, Kind::armw, 16, 8, flags);
    return code;
}

EXPORT int utofu_poll_mrq(utofu_vcq_hdl_t vcq, unsigned long flags, struct utofu_mrq_notice* notice)
{
    REAL(utofu_poll_mrq);
    const int code = next(vcq, flags, notice);
    const bool local = code == UTOFU_SUCCESS && (notice->notice_type == UTOFU_MRQ_TYPE_LCL_PUT ||
                                                 notice->notice_type == UTOFU_MRQ_TYPE_LCL_GET ||
                                                 notice->notice_type == UTOFU_MRQ_TYPE_LCL_ARMW);
    if (auto& pending = state.notices[vcq]; local && !pending.empty()) {
        WireCounts& mine = counted_wire.side[state.side_of[vcq]];
        mine.hops = std::max(mine.hops, pending.front().hops);
        mine.ns = std::max(mine.ns, pending.front().ns);
        pending.pop_front();
    }
    return code;
}

// A row of descriptors of one kind, that of the last one prepared.
#define PREPARE(name, parameters, arguments, out, back)                                                                \
    EXPORT int name parameters                                                                                         \
    {                                                                                                                  \
        REAL(name);                                                                                                    \
        const int code = next arguments;                                                                               \
        state.prepared[vcq] = {*size, out, back, flags};                                                               \
        return code;                                                                                                   \
    }
PREPARE(utofu_prepare_armw4,
        (utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, enum utofu_armw_op op, uint32_t value, utofu_stadd_t remote,
         uint64_t edata, unsigned long flags, void* descriptor, size_t* size),
        (vcq, to, op, value, remote, edata, flags, descriptor, size), 4, 4)
PREPARE(utofu_prepare_armw8,
        (utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, enum utofu_armw_op op, uint64_t value, utofu_stadd_t remote,
         uint64_t edata, unsigned long flags, void* descriptor, size_t* size),
        (vcq, to, op, value, remote, edata, flags, descriptor, size), 8, 8)
PREPARE(utofu_prepare_cswap4,
        (utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, uint32_t old_value, uint32_t new_value, utofu_stadd_t remote,
         uint64_t edata, unsigned long flags, void* descriptor, size_t* size),
        (vcq, to, old_value, new_value, remote, edata, flags, descriptor, size), 8, 4)
PREPARE(utofu_prepare_cswap8,
        (utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, uint64_t old_value, uint64_t new_value, utofu_stadd_t remote,
         uint64_t edata, unsigned long flags, void* descriptor, size_t* size),
        (vcq, to, old_value, new_value, remote, edata, flags, descriptor, size), 16, 8)

EXPORT int utofu_post_toq(utofu_vcq_hdl_t vcq, void* descriptors, size_t size, void* data)
{
    REAL(utofu_post_toq);
    const int code = next(vcq, descriptors, size, data);
    const Prepared& each = state.prepared[vcq];
    for (size_t at = 0; code == UTOFU_SUCCESS && each.size != 0 && at < size; at += each.size)
        posted(vcq, Kind::armw, each.out, each.back, each.flags, at == 0 ? post_ns : 0);
    return code;
}

// What is not counted.
#define HAND_ON(name, parameters, arguments)                                                                           \
    EXPORT int name parameters                                                                                         \
    {                                                                                                                  \
        REAL(name);                                                                                                    \
        return next arguments;                                                                                         \
    }
HAND_ON(utofu_get_onesided_tnis, (utofu_tni_id_t * *ids, size_t* count), (ids, count))
HAND_ON(utofu_query_onesided_caps, (utofu_tni_id_t tni, struct utofu_onesided_caps** caps), (tni, caps))
HAND_ON(utofu_free_vcq, (utofu_vcq_hdl_t vcq), (vcq))
HAND_ON(utofu_query_vcq_id, (utofu_vcq_hdl_t vcq, utofu_vcq_id_t* id), (vcq, id))
HAND_ON(utofu_query_vcq_info,
        (utofu_vcq_id_t id, uint8_t coords[], utofu_tni_id_t* tni, utofu_cq_id_t* cq, uint16_t* extra),
        (id, coords, tni, cq, extra))
HAND_ON(utofu_query_stadd, (utofu_vcq_id_t vcq, unsigned int stag, utofu_stadd_t* stadd), (vcq, stag, stadd))
HAND_ON(utofu_poll_tcq, (utofu_vcq_hdl_t vcq, unsigned long flags, void** data), (vcq, flags, data))
HAND_ON(utofu_query_my_coords, (uint8_t coords[]), (coords))
