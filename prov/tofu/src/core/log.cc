// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See log.h.
#include "core/log.h"

#include <cstdarg>
#include <cstdio>

#include <rdma/fi_errno.h>

namespace tofu {

void warn_user(const char* format, ...) noexcept
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (fi_log_enabled(&provider, FI_LOG_WARN, FI_LOG_CORE))
        TOFU_WARN(FI_LOG_CORE, "%s\n", text);
    else
        std::fprintf(stderr, "libfabric:tofu: %s\n", text);
}

// The table of uTofu's codes (guide 3.1.2.1).

namespace {

struct Entry {
    int utofu;
    int fi;
    const char* text;
};

// What a peer's memory answered comes back as the codes that fi_rma(3) and fi_errno(3) name for it.
constexpr Entry table[] = {
    {UTOFU_SUCCESS, 0, "success"},
    {UTOFU_ERR_NOT_FOUND, FI_EAGAIN, "no new queue entry"},
    {UTOFU_ERR_NOT_COMPLETED, FI_EAGAIN, "operation not completed yet"},
    {UTOFU_ERR_NOT_PROCESSED, FI_EAGAIN, "operation not processed"},
    {UTOFU_ERR_BUSY, FI_EAGAIN, "resource busy"},
    {UTOFU_ERR_USED, FI_EBUSY, "resource in use"},
    {UTOFU_ERR_FULL, FI_ENOSPC, "resource full"},
    {UTOFU_ERR_NOT_AVAILABLE, FI_EOPNOTSUPP, "resource not available"},
    {UTOFU_ERR_NOT_SUPPORTED, FI_EOPNOTSUPP, "operation not supported"},
    {UTOFU_ERR_TCQ_OTHER, FI_EIO, "TCQ: error at the local interface"},
    {UTOFU_ERR_TCQ_DESC, FI_EINVAL, "TCQ: bad descriptor"},
    {UTOFU_ERR_TCQ_MEMORY, FI_EFAULT, "TCQ: local memory cannot be accessed"},
    {UTOFU_ERR_TCQ_STADD, FI_EFAULT, "TCQ: local steering address is not registered"},
    {UTOFU_ERR_TCQ_LENGTH, FI_EFAULT, "TCQ: local address range exceeds its registration"},
    {UTOFU_ERR_MRQ_OTHER, FI_EIO, "MRQ: communication ended without an answer"},
    {UTOFU_ERR_MRQ_PEER, FI_EHOSTDOWN, "MRQ: the peer process is gone"},
    {UTOFU_ERR_MRQ_LCL_MEMORY, FI_EFAULT, "MRQ: local memory cannot be accessed"},
    {UTOFU_ERR_MRQ_RMT_MEMORY, FI_EACCES, "MRQ: remote memory does not permit this access"},
    {UTOFU_ERR_MRQ_LCL_STADD, FI_EFAULT, "MRQ: local steering address is not registered"},
    {UTOFU_ERR_MRQ_RMT_STADD, FI_EKEYREJECTED, "MRQ: remote key or address is not registered"},
    {UTOFU_ERR_MRQ_LCL_LENGTH, FI_EFAULT, "MRQ: local address range exceeds its registration"},
    {UTOFU_ERR_MRQ_RMT_LENGTH, FI_EKEYREJECTED, "MRQ: remote address range exceeds its region"},
    {never_notified, FI_ETIMEDOUT,
     "no notice within the time limit: the operation may still take effect, and a read may still write into its "
     "buffer"},
    {UTOFU_ERR_INVALID_ARG, FI_EINVAL, "invalid argument"},
    {UTOFU_ERR_INVALID_POINTER, FI_EINVAL, "invalid pointer"},
    {UTOFU_ERR_INVALID_FLAGS, FI_EINVAL, "invalid flags"},
    {UTOFU_ERR_INVALID_TNI_ID, FI_EINVAL, "invalid TNI"},
    {UTOFU_ERR_INVALID_CQ_ID, FI_EINVAL, "invalid CQ"},
    {UTOFU_ERR_INVALID_CMP_ID, FI_EINVAL, "invalid component"},
    {UTOFU_ERR_INVALID_VCQ_HDL, FI_EINVAL, "invalid VCQ handle"},
    {UTOFU_ERR_INVALID_VCQ_ID, FI_EINVAL, "invalid VCQ ID: is the peer on this interconnect?"},
    {UTOFU_ERR_INVALID_STADD, FI_EINVAL, "invalid steering address"},
    {UTOFU_ERR_INVALID_ADDRESS, FI_EFAULT, "invalid memory address"},
    {UTOFU_ERR_INVALID_SIZE, FI_EINVAL, "invalid size"},
    {UTOFU_ERR_INVALID_STAG, FI_EINVAL, "invalid steering tag"},
    {UTOFU_ERR_INVALID_EDATA, FI_EINVAL, "invalid EDATA"},
    {UTOFU_ERR_INVALID_OP, FI_EINVAL, "invalid operation"},
    {UTOFU_ERR_INVALID_DESC, FI_EINVAL, "invalid descriptor"},
    {UTOFU_ERR_OUT_OF_RESOURCE, FI_ENOMEM, "out of resources"},
    {UTOFU_ERR_OUT_OF_MEMORY, FI_ENOMEM, "out of memory"},
    {UTOFU_ERR_FATAL, FI_EIO, "fatal error of the uTofu library"},
};

constexpr Entry unknown{0, FI_EIO, "unknown uTofu code"};

const Entry& entry_of(int code) noexcept
{
    for (const Entry& entry : table)
        if (entry.utofu == code)
            return entry;
    return unknown;
}

} // namespace

int fi_error_of(int utofu_code) noexcept
{
    return entry_of(utofu_code).fi;
}

const char* utofu_text(int utofu_code) noexcept
{
    return entry_of(utofu_code).text;
}

} // namespace tofu
