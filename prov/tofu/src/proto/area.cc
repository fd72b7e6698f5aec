// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Mapping and registering a message area. See area.h.
#include "proto/area.h"

#include <mutex>

#include <rdma/fi_errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "domain.h"
#include "log.h"

namespace tofu::proto {

int Area::open(Domain& domain, unsigned index, const Geometry& geometry) noexcept
{
    const std::size_t bytes = geometry.size();
    // A shared object, so that fork() does not take the pages away that the TNI writes to; of a size that nobody
    // can change.
    fd_ = memfd_create("tofu-area", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0 ||
        fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        close_file();
        return -FI_ENOMEM;
    }
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (at == MAP_FAILED) {
        close_file();
        return -FI_ENOMEM;
    }
    base_ = static_cast<std::byte*>(at);
    geometry_ = geometry;
    const AreaHeader header{area_magic,     wire_version,        static_cast<std::uint16_t>(index),
                            geometry.ring_count, domain.nonce(), geometry.ring_slots,
                            0};
    std::memcpy(base_, &header, sizeof header); // before any peer can see it
    std::lock_guard guard(domain.home_lock());
    if (int ret = domain.home().reg_with_stag(base_, bytes, endpoint_stag(index), stadd_); ret != 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "endpoint %u: its message area of %zu bytes could not be registered: "
                                  "set FI_TOFU_RINGS lower\n", index, bytes);
        munmap(at, bytes);
        close_file();
        base_ = nullptr;
        return ret;
    }
    domain_ = &domain;
    return 0;
}

void Area::close() noexcept
{
    if (base_ == nullptr)
        return;
    {
        std::lock_guard guard(domain_->home_lock());
        domain_->home().dereg(stadd_);
    }
    munmap(base_, geometry_.size());
    close_file();
    base_ = nullptr;
}

void Area::close_file() noexcept
{
    if (fd_ >= 0)
        ::close(fd_);
    fd_ = -1;
}

} // namespace tofu::proto
