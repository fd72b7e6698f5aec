// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: what the queues say about an instruction: error codes and the fields of notices (guide 3.1.2.1, 3.7.6.1).
// Called by: tni/engine, tni/session, tni/chaos. Calls: nothing.
#include "tni/notices.h"

namespace tofu::sim {

int local_tcq_error(AccessStatus status) noexcept
{
    switch (status) {
    case AccessStatus::ok: return UTOFU_SUCCESS;
    case AccessStatus::bad_stadd: return UTOFU_ERR_TCQ_STADD;
    case AccessStatus::bad_length: return UTOFU_ERR_TCQ_LENGTH;
    case AccessStatus::not_permitted:
    case AccessStatus::unreachable: return UTOFU_ERR_TCQ_MEMORY;
    case AccessStatus::peer_gone: return UTOFU_ERR_TCQ_OTHER;
    }
    return UTOFU_ERR_TCQ_OTHER;
}

int local_mrq_error(AccessStatus status) noexcept
{
    switch (status) {
    case AccessStatus::ok: return UTOFU_SUCCESS;
    case AccessStatus::bad_stadd: return UTOFU_ERR_MRQ_LCL_STADD;
    case AccessStatus::bad_length: return UTOFU_ERR_MRQ_LCL_LENGTH;
    case AccessStatus::not_permitted:
    case AccessStatus::unreachable: return UTOFU_ERR_MRQ_LCL_MEMORY;
    case AccessStatus::peer_gone: return UTOFU_ERR_MRQ_OTHER;
    }
    return UTOFU_ERR_MRQ_OTHER;
}

int remote_mrq_error(AccessStatus status) noexcept
{
    switch (status) {
    case AccessStatus::ok: return UTOFU_SUCCESS;
    case AccessStatus::bad_stadd: return UTOFU_ERR_MRQ_RMT_STADD;
    case AccessStatus::bad_length: return UTOFU_ERR_MRQ_RMT_LENGTH;
    case AccessStatus::not_permitted:
    case AccessStatus::unreachable: return UTOFU_ERR_MRQ_RMT_MEMORY;
    case AccessStatus::peer_gone: return UTOFU_ERR_MRQ_PEER;
    }
    return UTOFU_ERR_MRQ_PEER;
}

MrqEntry remote_entry(const Descriptor& d, uint64_t origin) noexcept
{
    const uint64_t rmt_end = d.rmt_stadd + d.length;
    MrqEntry entry{};
    entry.vcq_id = origin;
    entry.edata = d.edata;
    if (is_put(d.op)) {
        entry.type = UTOFU_MRQ_TYPE_RMT_PUT;
        entry.rmt_stadd = entry.rmt_value = rmt_end;
    } else if (d.op == Op::get) {
        entry.type = UTOFU_MRQ_TYPE_RMT_GET;
        entry.rmt_stadd = rmt_end;
        entry.lcl_stadd = d.lcl_stadd + d.length;
    } else {
        entry.type = UTOFU_MRQ_TYPE_RMT_ARMW;
        entry.rmt_stadd = entry.rmt_value = d.rmt_stadd;
    }
    return entry;
}

MrqEntry local_entry(const Descriptor& d, uint64_t old_value, int mrq_error) noexcept
{
    MrqEntry entry{};
    entry.vcq_id = with_default_path(d.rmt_vcq_id);
    entry.edata = d.edata;
    entry.result = static_cast<int16_t>(mrq_error);
    if (is_put(d.op)) {
        entry.type = UTOFU_MRQ_TYPE_LCL_PUT;
        entry.rmt_stadd = d.rmt_stadd + d.length;
    } else if (d.op == Op::get) {
        entry.type = UTOFU_MRQ_TYPE_LCL_GET;
        entry.lcl_stadd = entry.rmt_value = d.lcl_stadd + d.length;
    } else {
        entry.type = UTOFU_MRQ_TYPE_LCL_ARMW;
        entry.rmt_value = old_value;
        entry.rmt_stadd = d.rmt_stadd;
    }
    return entry;
}

} // namespace tofu::sim
