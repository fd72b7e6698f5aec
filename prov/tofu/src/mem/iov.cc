// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See iov.h.
#include "mem/iov.h"

#include <rdma/fi_errno.h>

#include "core/log.h"

namespace tofu {

/// Open MPI 4.1 has a null buffer where MPI_BOTTOM is sent with a type of absolute addresses, and waits for ever for the
/// operation that is refused: the line is all that its user sees.
int refuse_nowhere() noexcept
{
    TOFU_WARN(FI_LOG_EP_DATA, "a buffer has a length and a null address: pass the address of the data\n");
    return -FI_EINVAL;
}

} // namespace tofu
