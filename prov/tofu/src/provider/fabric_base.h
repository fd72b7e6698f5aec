// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A fabric as the objects opened from it see it. Opened by object/fabric.h; calls nothing.
#pragma once

#include <rdma/fabric.h>

#include "provider/counted.h"
#include "provider/open_list.h"

namespace tofu {

class FabricBase : public fid_fabric, public Counted {
  public:
    static FabricBase& of(fid_fabric* f) noexcept { return *static_cast<FabricBase*>(f); }
    /// Those open in this process.
    static OpenList<FabricBase>& all() noexcept
    {
        static constinit OpenList<FabricBase> list;
        return list;
    }

    FabricBase* next_open = nullptr; ///< the list's
};

} // namespace tofu
