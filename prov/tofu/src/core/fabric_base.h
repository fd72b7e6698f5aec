// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A fabric as the objects opened from it see it. Opened by api/fabric.h; calls nothing.
#pragma once

#include <rdma/fabric.h>

#include "core/object.h"
#include "core/open_list.h"

namespace tofu {

class FabricBase : public Object<FabricBase, fid_fabric, Counted> {
  public:
    FabricBase() noexcept : Object(nullptr, FI_CLASS_FABRIC) {}
    /// Those open in this process.
    static OpenList<FabricBase>& all() noexcept
    {
        static constinit OpenList<FabricBase> list;
        return list;
    }

    FabricBase* next_open = nullptr; ///< the list's
};

} // namespace tofu
