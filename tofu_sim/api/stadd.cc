// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Guide 3.6: STADDs.
#include "api/exports.h"

#include "clock/clock.h"
#include "tni/remote.h"
#include "tni/vcq.h"

using namespace tofu::sim;

namespace {

constexpr uintptr_t stag_alignment = 256;

int code_of(RegisterStatus status) noexcept
{
    switch (status) {
    case RegisterStatus::ok: return UTOFU_SUCCESS;
    case RegisterStatus::full: return UTOFU_ERR_FULL;
    case RegisterStatus::used: return UTOFU_ERR_USED;
    case RegisterStatus::bad_address: return UTOFU_ERR_INVALID_ADDRESS;
    case RegisterStatus::bad_size: return UTOFU_ERR_INVALID_SIZE;
    case RegisterStatus::bad_stag: return UTOFU_ERR_INVALID_STAG;
    case RegisterStatus::bad_stadd: return UTOFU_ERR_INVALID_STADD;
    case RegisterStatus::out_of_memory: return UTOFU_ERR_OUT_OF_MEMORY;
    }
    return UTOFU_ERR_FATAL;
}

/// `bytes`: of which pages are pinned.
int done(RegisterStatus status, size_t bytes) noexcept
{
    if (has_clock()) [[unlikely]]
        clock_registration(bytes);
    return checked(code_of(status));
}

int check_region(const Vcq* vcq, const void* addr, size_t size, unsigned long flags,
                 const utofu_stadd_t* stadd) noexcept
{
    if (vcq == nullptr)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    if (stadd == nullptr)
        return UTOFU_ERR_INVALID_POINTER;
    if (addr == nullptr)
        return UTOFU_ERR_INVALID_ADDRESS;
    if (size == 0)
        return UTOFU_ERR_INVALID_SIZE;
    return (flags & ~UTOFU_REG_MEM_FLAG_READ_ONLY) == 0 ? UTOFU_SUCCESS : UTOFU_ERR_INVALID_FLAGS;
}

} // namespace

extern "C" {

int putofu_reg_mem(utofu_vcq_hdl_t vcq_hdl, void* addr, size_t size, unsigned long int flags, utofu_stadd_t* stadd)
{
    Vcq* const vcq = find_vcq(vcq_hdl);
    if (const int rc = check_region(vcq, addr, size, flags, stadd); rc != UTOFU_SUCCESS)
        return fail(rc);
    const TurnedCall call(TurnedCall::Kind::sets_up);
    if (call.is_refused())
        return fail(UTOFU_ERR_NOT_AVAILABLE);
    const bool read_only = (flags & UTOFU_REG_MEM_FLAG_READ_ONLY) != 0;
    return done(vcq->registrations->add(addr, size, read_only, no_slot, stadd), size);
}

int putofu_reg_mem_with_stag(utofu_vcq_hdl_t vcq_hdl, void* addr, size_t size, unsigned int stag,
                             unsigned long int flags, utofu_stadd_t* stadd)
{
    Vcq* const vcq = find_vcq(vcq_hdl);
    if (const int rc = check_region(vcq, addr, size, flags, stadd); rc != UTOFU_SUCCESS)
        return fail(rc);
    if (reinterpret_cast<uintptr_t>(addr) % stag_alignment != 0)
        return fail(UTOFU_ERR_INVALID_ADDRESS);
    if (size % stag_alignment != 0)
        return fail(UTOFU_ERR_INVALID_SIZE);
    if (stag >= reserved_stags)
        return fail(UTOFU_ERR_INVALID_STAG);
    const TurnedCall call(TurnedCall::Kind::sets_up);
    if (call.is_refused())
        return fail(UTOFU_ERR_NOT_AVAILABLE);
    const bool read_only = (flags & UTOFU_REG_MEM_FLAG_READ_ONLY) != 0;
    return done(vcq->registrations->add(addr, size, read_only, stag, stadd), size);
}

int putofu_query_stadd(utofu_vcq_id_t vcq_id, unsigned int stag, utofu_stadd_t* stadd)
{
    if (stadd == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    Process& self = Process::self();
    if (const int rc = self.enter(); rc != UTOFU_SUCCESS)
        return fail(rc);
    if (!is_possible_vcq_id(vcq_id, self.topology()))
        return fail(UTOFU_ERR_INVALID_VCQ_ID);
    if (stag >= reserved_stags)
        return fail(UTOFU_ERR_INVALID_STAG);
    // Follows from the component alone: no question to the remote process, which need not even have started.
    *stadd = make_stadd(reserved_hw_stag(decode_vcq_id(vcq_id).component, stag), 0);
    return UTOFU_SUCCESS;
}

int putofu_dereg_mem(utofu_vcq_hdl_t vcq_hdl, utofu_stadd_t stadd, unsigned long int flags)
{
    Vcq* const vcq = find_vcq(vcq_hdl);
    if (vcq == nullptr)
        return fail(UTOFU_ERR_INVALID_VCQ_HDL);
    if (flags != 0)
        return fail(UTOFU_ERR_INVALID_FLAGS);
    const TurnedCall call(TurnedCall::Kind::sets_up);
    if (call.is_refused())
        return fail(UTOFU_ERR_NOT_AVAILABLE);
    return done(vcq->registrations->remove(stadd), 0);
}

} // extern "C"

TOFU_SIM_ALIAS(reg_mem);
TOFU_SIM_ALIAS(reg_mem_with_stag);
TOFU_SIM_ALIAS(query_stadd);
TOFU_SIM_ALIAS(dereg_mem);
