// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_poll sets, which libfabric 2 has dropped, and fi_trywait (fi_poll(3)). Called by the application through domain and
// fabric; calls cq, cntr, eq and their wait objects.
#pragma once

#include <mutex>

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "provider/array.h"

namespace tofu {

class DomainBase;

/// fi_poll_open: a list to be looked at by one call.
class PollSet final : public fid_poll {
  public:
    /// Holds the domain. 0, -FI_EINVAL, -FI_ENOMEM.
    static int open(fid_domain* domain, fi_poll_attr* attr, fid_poll** set) noexcept;
    static PollSet& of(fid_poll* p) noexcept { return *static_cast<PollSet*>(p); }

    int add(struct fid* object) noexcept;
    int remove(struct fid* object) noexcept;
    int poll(void** contexts, int count) noexcept;
    int close() noexcept;

  private:
    explicit PollSet(DomainBase& domain) noexcept : domain_(domain) {}

    DomainBase& domain_;
    std::mutex mutex_;
    Array<struct fid*> members_;
};

/// fi_ops_fabric.trywait: 0, or -FI_EAGAIN where one of the objects has something to read.
int try_wait(fid_fabric* fabric, struct fid** fids, int count) noexcept;

} // namespace tofu
