// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the queues say about an instruction: error codes and the fields of notices (guide 3.1.2.1, 3.7.6.1).
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

} // namespace tofu::sim
