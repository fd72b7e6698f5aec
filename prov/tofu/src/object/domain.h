// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_domain: opens and closes what the objects of a domain share (progress/domain_base.h), and polls the VCQs at which
// peers reach it. Called by fabric and the application; calls vcq, region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fi_domain.h>

#include "progress/domain_base.h"

namespace tofu {

class FabricBase;
class RegionTable;

class Domain final : public DomainBase {
  public:
    /// fi_domain(3); holds the fabric. 0, -FI_EINVAL, -FI_ENOMEM, or an error of the backend, the home VCQ or the
    /// thread.
    static int open(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) noexcept;
    static Domain& of(fid_domain* d) noexcept { return *static_cast<Domain*>(d); }

    bool progress_home(bool patient) noexcept override;
    [[nodiscard]] std::size_t homes(utofu_vcq_hdl_t* handles, std::size_t most) noexcept override;

    int bind(EventQueue& events, std::uint64_t flags) noexcept;
    int close() noexcept;

  private:
    Domain() noexcept;
    ~Domain();
    int set_up(FabricBase& fabric, const fi_info& info, void* context) noexcept;
    static void on_remote(void* self, const vcq::RemoteNotice& notice) noexcept;

    FabricBase* fabric_ = nullptr;
    std::unique_ptr<RegionTable> own_regions_;
    std::unique_ptr<coll::Doors> own_doors_;
};

} // namespace tofu
