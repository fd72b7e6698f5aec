// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_wait sets (fi_poll(3)), which libfabric 2 has dropped, for older programs. Called by the application through
// fabric; calls the wait objects of its members.
#pragma once

#include <mutex>

#include <rdma/fi_eq.h>

#include "core/containers.h"
#include "core/object.h"
#include "cq/wait.h"

namespace tofu {

/// fi_wait_open. Queues and counters join when they are opened with FI_WAIT_SET, and leave when they are closed.
class WaitSet final : public Object<WaitSet, fid_wait, FabricBase> {
  public:
    explicit WaitSet(FabricBase& fabric) noexcept;
    [[nodiscard]] static int open(fid_fabric* fabric, fi_wait_attr* attr, fid_wait** set) noexcept;
    /// 0, -FI_EINVAL, -FI_ENOSYS (a wait object that is not offered), or an error of the signal.
    [[nodiscard]] int set_up(const fi_wait_attr* attr) noexcept;

    /// The signal that its members raise; null where the application waits only by fi_wait.
    [[nodiscard]] WakeSignal* wake_signal() noexcept { return WakeSignal::offers(kind_) ? &signal_ : nullptr; }
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int add(WaitObject& member) noexcept;
    void remove(WaitObject& member) noexcept;

    int wait(int timeout_ms) noexcept;
    // --- fi_trywait, as for a single object (WaitObject)
    void clear() noexcept { signal_.clear(); }
    /// Makes progress for all members. True if one has something.
    [[nodiscard]] bool look() noexcept;
    int control(int command, void* argument) noexcept { return signal_.control(kind_, command, argument); }

  private:
    fi_wait_obj kind_ = FI_WAIT_UNSPEC;
    WakeSignal signal_;
    std::mutex mutex_;
    Array<WaitObject*> members_;
};

} // namespace tofu
