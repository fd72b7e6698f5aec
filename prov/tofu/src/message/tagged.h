// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_tagged: the table that an enabled endpoint with FI_TAGGED carries. Entered by the application; calls the
// messenger.
#pragma once

#include <rdma/fi_tagged.h>

namespace tofu {

extern fi_ops_tagged tagged_ops;

} // namespace tofu
