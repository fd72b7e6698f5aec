// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_msg, fi_tagged: the operation tables of an enabled endpoint with FI_MSG or FI_TAGGED (calls.cc). Called by the
// application; their functions call the sender and the receive queue.
#pragma once

#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

namespace tofu {

extern fi_ops_msg msg_ops;
extern fi_ops_tagged tagged_ops;

} // namespace tofu
