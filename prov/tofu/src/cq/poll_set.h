// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_poll sets, which libfabric 2 has dropped, and fi_trywait (fi_poll(3)). Called by the application through domain and
// fabric; calls cq, cntr, eq and their wait objects.
#pragma once

#include <mutex>

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "core/containers.h"
#include "core/object.h"
#include "cq/domain_base.h"

namespace tofu {

/// fi_poll_open: a set of objects that one call looks at.
class PollSet final : public Object<PollSet, fid_poll, DomainBase> {
  public:
    explicit PollSet(DomainBase& domain) noexcept;
    /// 0 or -FI_EINVAL.
    [[nodiscard]] static int open(fid_domain* domain, fi_poll_attr* attr, fid_poll** set) noexcept;
    [[nodiscard]] int set_up(const fi_poll_attr* attr) noexcept { return given(attr).flags != 0 ? -FI_EINVAL : 0; }

    // --- the calls of fi_poll's operation table
    int add(struct fid* object, std::uint64_t flags) noexcept;
    int remove(struct fid* object, std::uint64_t flags) noexcept;
    int poll(void** contexts, int count) noexcept;

  private:
    std::mutex mutex_;
    Array<struct fid*> members_;
};

/// fi_ops_fabric.trywait: 0, or -FI_EAGAIN if one of the objects has something to read.
int try_wait(fid_fabric* fabric, struct fid** fids, int count) noexcept;

} // namespace tofu
