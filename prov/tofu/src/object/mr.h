// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_mr(3): the operations table that a domain hands out for memory regions.
#pragma once

#include <rdma/fi_domain.h>

namespace tofu {

extern fi_ops_mr region_ops;

} // namespace tofu
