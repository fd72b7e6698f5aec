// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_msg: the table that an enabled endpoint with FI_MSG carries. Entered by the application; calls the
// messenger.
#pragma once

#include <rdma/fi_endpoint.h>

namespace tofu {

extern fi_ops_msg msg_ops;

} // namespace tofu
