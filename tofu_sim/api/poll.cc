// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Guide 3.7.4 and 3.7.5: confirming completion.
#include "api/exports.h"
#include "clock/clock.h"
#include "tni/engine.h"
#include "tni/watch.h"

using namespace tofu::sim;

namespace {

/// Counted per CQ, as the guide says.
template <typename Count>
int count_cq(utofu_vcq_hdl_t vcq_hdl, size_t* count, uint64_t Watched::*seen, Count&& count_vcq) noexcept
{
    Vcq* const vcq = find_vcq(vcq_hdl);
    if (vcq == nullptr)
        return fail(UTOFU_ERR_INVALID_VCQ_HDL);
    if (count == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    TurnedCall call(TurnedCall::Kind::looks);
    if (call.is_refused())
        return fail(UTOFU_ERR_NOT_AVAILABLE);
    if (is_exact())
        (void)call.wait((*vcq->watch).*seen); // a program may count until there are so many
    const unsigned first = vcq->index / vcqs_per_cq * vcqs_per_cq;
    size_t sum = 0;
    for (unsigned index = first; index < first + vcqs_per_cq; index++) {
        Vcq& other = vcq_table[index];
        if (other.live.load_acquire() != 0) {
            const VcqGuard guard(other);
            sum += count_vcq(other);
        }
    }
    *count = sum;
    return UTOFU_SUCCESS;
}

} // namespace

extern "C" {

int putofu_poll_tcq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void** cbdata)
{
    Vcq* const vcq = find_vcq(vcq_hdl);
    if (vcq == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_VCQ_HDL);
    if (flags != 0 || cbdata == nullptr) [[unlikely]]
        return fail(flags != 0 ? UTOFU_ERR_INVALID_FLAGS : UTOFU_ERR_INVALID_POINTER);
    return poll_tcq(*vcq, *cbdata);
}

int putofu_poll_mrq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, struct utofu_mrq_notice* notice)
{
    Vcq* const vcq = find_vcq(vcq_hdl);
    if (vcq == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_VCQ_HDL);
    if (flags != 0 || notice == nullptr) [[unlikely]]
        return fail(flags != 0 ? UTOFU_ERR_INVALID_FLAGS : UTOFU_ERR_INVALID_POINTER);
    return poll_mrq(*vcq, *notice);
}

int putofu_query_num_unread_tcq(utofu_vcq_hdl_t vcq_hdl, size_t* count)
{
    return count_cq(vcq_hdl, count, &Watched::vain_tcq, [](const Vcq& vcq) { return toq_entries - toq_room(vcq); });
}

int putofu_query_num_unread_mrq(utofu_vcq_hdl_t vcq_hdl, size_t* count)
{
    return count_cq(vcq_hdl, count, &Watched::vain_mrq, [](const Vcq& vcq) { return unread_mrq(vcq); });
}

} // extern "C"

TOFU_SIM_ALIAS(poll_tcq);
TOFU_SIM_ALIAS(poll_mrq);
TOFU_SIM_ALIAS(query_num_unread_tcq);
TOFU_SIM_ALIAS(query_num_unread_mrq);
