// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sets of objects: fi_wait sets (WaitSet) and fi_poll sets (PollSet), which libfabric 2 has dropped, and fi_trywait
// (fi_poll(3)). All of it is slow path.
#pragma once

#include <mutex>

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "core/containers.h"
#include "core/object.h"
#include "cq/domain_base.h"
#include "cq/wait.h"

namespace tofu {

// --- WaitSet

/// fi_wait_open. Queues and counters join when they are opened with FI_WAIT_SET, and leave when they are closed.
class WaitSet final : public Object<WaitSet, fid_wait, FabricBase>, public ProgressSource {
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

    int wait(int timeout_ms);
    // --- fi_trywait, as for a single object (WaitObject)
    void clear() noexcept { signal_.clear(); }
    /// Makes progress for all members. True if one has something.
    [[nodiscard]] bool poll() noexcept;
    int control(int command, void* argument) noexcept { return signal_.control(kind_, command, argument); }
    // --- of ProgressSource: the members. Another thread may close one while this one sleeps.
    bool run(bool) noexcept override { return poll(); }
    [[nodiscard]] std::size_t vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept override;

  private:
    fi_wait_obj kind_ = FI_WAIT_UNSPEC;
    WakeSignal signal_;
    Mutex mutex_;
    Array<WaitObject*> members_;
};

// --- PollSet, and fi_trywait

/// fi_poll_open: a set of objects that one call polls.
class PollSet final : public Object<PollSet, fid_poll, DomainBase> {
  public:
    explicit PollSet(DomainBase& domain) noexcept;
    /// 0 or -FI_EINVAL.
    [[nodiscard]] static int open(fid_domain* domain, fi_poll_attr* attr, fid_poll** set) noexcept;
    [[nodiscard]] int set_up(const fi_poll_attr* attr) noexcept
    {
        return attr_or_default(attr).flags != 0 ? -FI_EINVAL : 0;
    }

    // --- the calls of fi_poll's operation table
    int add(struct fid* object, std::uint64_t flags) noexcept;
    int remove(struct fid* object, std::uint64_t flags) noexcept;
    int poll(void** contexts, int count) noexcept;

  private:
    Mutex mutex_;
    Array<struct fid*> members_;
};

/// fi_ops_fabric.trywait: 0, or -FI_EAGAIN if one of the objects has something to read.
int try_wait(fid_fabric* fabric, struct fid** fids, int count) noexcept;

} // namespace tofu
