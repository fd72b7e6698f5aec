// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A uTofu library with one fault (FAULT), for the test of tofu-check: it is linked to the simulator's, which dlsym()
// finds behind it, and redefines what is faulty over the twins that profilers use.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <putofu.h>
#include <unistd.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

bool has(const char* fault)
{
    const char* const wanted = std::getenv("FAULT");
    return wanted != nullptr && std::strcmp(wanted, fault) == 0;
}
const bool unordered = has("unordered");
const bool repeats = has("repeats"); // each Put of a word comes again behind its successor
const bool silent = has("silent");
const bool mixed_up = has("mixed-up");
const bool other_stag = has("other-stag");
const bool other_refusal = has("other-refusal");
const bool dies = has("dies");
const bool hangs = has("hangs");
const bool late_copy = has("late-copy");
const bool writable = has("writable");
const bool gates = has("gates");
const bool still = has("still");   // words filled with one byte do not come, but for the last one
const bool halves = has("halves"); // a word comes in two parts
const bool spills = has("spills"); // padding goes on in the next line

unsigned long flags_of(unsigned long flags)
{
    return unordered ? flags & ~UTOFU_ONESIDED_FLAG_STRONG_ORDER : flags;
}

} // namespace

EXPORT int utofu_put(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_stadd_t from, utofu_stadd_t to, std::size_t length,
                     std::uint64_t edata, unsigned long flags, void* cbdata)
{
    return putofu_put(vcq, peer, still ? from + 64 : from, to, length, edata, flags_of(flags), cbdata);
}

EXPORT int utofu_put_piggyback(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, void* data, utofu_stadd_t to,
                               std::size_t length, std::uint64_t edata, unsigned long flags, void* cbdata)
{
    static unsigned char before[32];
    static std::size_t had;
    unsigned char now[32];
    std::memcpy(now, data, length);
    if (late_copy && had == length) // the bytes of the call before this one
        data = before;
    if (still && length == 8 && now[0] != 255 && std::memcmp(now, now + 1, 7) == 0)
        return UTOFU_SUCCESS;
    if (halves && length == 8) {
        (void)putofu_put_piggyback(vcq, peer, now, to, 4, 0, flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr);
        usleep(1);
    }
    const int code = putofu_put_piggyback(vcq, peer, data, to, length, edata, flags_of(flags), cbdata);
    if (repeats && code == UTOFU_SUCCESS && length == 8) {
        static utofu_stadd_t there;
        if (had == length && there == to)
            (void)putofu_put_piggyback(vcq, peer, before, to, length, 0, UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr);
        there = to;
    }
    std::memcpy(before, now, length);
    had = length;
    if (spills && code == UTOFU_SUCCESS && (flags & UTOFU_ONESIDED_FLAG_PADDING) != 0)
        (void)putofu_put_piggyback(vcq, peer, now, to + length, 8, 0, 0, nullptr);
    return code;
}

EXPORT int utofu_poll_reduce_uint64(utofu_vbg_id_t gate, unsigned long flags, std::uint64_t data[])
{
    const int code = putofu_poll_reduce_uint64(gate, flags, data);
    if (gates && code == UTOFU_SUCCESS)
        data[0] &= 0xffffffff;
    return code;
}

EXPORT int utofu_free_vbg(utofu_vbg_id_t ids[], std::size_t count)
{
    return gates ? UTOFU_SUCCESS : putofu_free_vbg(ids, count);
}

EXPORT int utofu_armw8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_armw_op op, std::uint64_t operand,
                       utofu_stadd_t to, std::uint64_t edata, unsigned long flags, void* cbdata)
{
    return putofu_armw8(vcq, peer, op, operand, to, edata, flags_of(flags), cbdata);
}

EXPORT int utofu_poll_mrq(utofu_vcq_hdl_t vcq, unsigned long flags, utofu_mrq_notice* notice)
{
    const int code = putofu_poll_mrq(vcq, flags, notice);
    if (silent && code <= UTOFU_ERR_MRQ_OTHER && code >= UTOFU_ERR_MRQ_RMT_LENGTH)
        return UTOFU_ERR_NOT_FOUND;
    if (mixed_up && code == UTOFU_SUCCESS)
        notice->edata ^= 1;
    return code;
}

EXPORT int utofu_query_stadd(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t* stadd)
{
    const int code = putofu_query_stadd(vcq, stag, stadd);
    if (other_stag)
        *stadd += 256;
    return code;
}

EXPORT int utofu_create_vcq(utofu_tni_id_t tni, unsigned long flags, utofu_vcq_hdl_t* vcq)
{
    const int code = putofu_create_vcq(tni, flags, vcq);
    return other_refusal && code == UTOFU_ERR_FULL ? UTOFU_ERR_OUT_OF_RESOURCE : code;
}

EXPORT int utofu_reg_mem(utofu_vcq_hdl_t vcq, void* address, std::size_t size, unsigned long flags,
                         utofu_stadd_t* stadd)
{
    static char other[65536];
    if (writable && (flags & UTOFU_REG_MEM_FLAG_READ_ONLY) != 0 && size <= sizeof other)
        return putofu_reg_mem(vcq, other, size, 0, stadd);
    return putofu_reg_mem(vcq, address, size, flags, stadd);
}

EXPORT int utofu_query_my_coords(std::uint8_t coords[])
{
    if (dies)
        std::abort();
    while (hangs)
        pause();
    return putofu_query_my_coords(coords);
}
