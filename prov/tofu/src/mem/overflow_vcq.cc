// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See overflow_vcq.h.
#include "mem/overflow_vcq.h"

#include <algorithm>
#include <atomic>
#include <new>

#include <rdma/fi_errno.h>

#include "av/address.h"
#include "core/log.h"
#include "cq/domain_base.h"
#include "mem/mr.h"

namespace tofu {

vcq::Vcq& OverflowVcqs::vcq_of(unsigned number) noexcept
{
    return number == 0 ? domain_.home() : vcqs_[number - 1]->vcq;
}

int OverflowVcqs::reg(const void* address, std::size_t size, bool read_only, unsigned& number,
                      utofu_stadd_t& stadd) noexcept
{
    for (number = std::max(number, roomy_);; number++) {
        if (number > count_)
            if (int ret = add(); ret != 0) {
                roomy_ = std::min(roomy_, count_); // ask there again: the last one may get a tag back unseen
                return ret;
            }
        const int ret = vcq_of(number).reg(address, size, read_only, stadd);
        if (ret != -FI_ENOSPC)
            return ret;
        if (number == roomy_)
            roomy_++;
    }
}

void OverflowVcqs::dereg(unsigned number, utofu_stadd_t stadd) noexcept
{
    vcq_of(number).dereg(stadd);
    roomy_ = std::min(roomy_, number);
}

int OverflowVcqs::add() noexcept
{
    std::unique_ptr<OverflowVcq> made;
    int ret = -FI_ENOSPC;
    if (count_ < directory::max_overflow_vcqs) {
        made.reset(new (std::nothrow) OverflowVcq{this, count_ + 1, {}});
        if (made == nullptr)
            return -FI_ENOMEM;
        ret = domain_.vcqs().open(made->vcq, {.owner = made.get(), .remote = on_remote}, true);
    }
    utofu_stadd_t stadd = 0;
    if (ret == 0)
        ret = made->vcq.reg_with_stag(area_, directory::area_bytes, directory_stag, stadd);
    if (ret != 0) {
        TOFU_WARN(FI_LOG_MR,
                  "domain: its %u VCQs have no free steering tag for a region, and no further VCQ can be opened (%s): "
                  "close regions, register larger ones, or run fewer processes per node\n",
                  count_ + 1, fi_strerror(-ret));
        return -FI_ENOSPC;
    }
    announce(*made);
    vcqs_[count_++] = std::move(made);
    // Threads that sleep until something arrives do not know this overflow VCQ yet.
    if (auto* wake = domain_.backend().functions().wake; wake != nullptr)
        wake();
    return 0;
}

/// Writes the check last, as in entries: a reader of a half written line finds that there is no overflow VCQ.
void OverflowVcqs::announce(const OverflowVcq& overflow) noexcept
{
    auto& line = *reinterpret_cast<directory::OverflowLine*>(area_ + directory::overflow_offset(overflow.number));
    std::atomic_ref<utofu_vcq_id_t>(line.vcq).store(overflow.vcq.id(), std::memory_order_relaxed);
    // release: partner is the Get of RemoteKeys::ask_directory
    std::atomic_ref<std::uint64_t>(line.check)
        .store(directory::check_of_overflow(overflow.vcq.id(), overflow.number, domain_.nonce()),
               std::memory_order_release);
}

void OverflowVcqs::close() noexcept
{
    for (; count_ != 0; count_--) {
        std::unique_ptr<OverflowVcq>& last = vcqs_[count_ - 1];
        utofu_stadd_t stadd = 0;
        if (last->vcq.query_stadd(last->vcq.id(), directory_stag, stadd) == 0)
            last->vcq.dereg(stadd);
        last.reset();
    }
    roomy_ = 0;
}

std::size_t OverflowVcqs::handles(utofu_vcq_hdl_t* to, std::size_t most) const noexcept
{
    const std::size_t n = std::min<std::size_t>(count_, most);
    for (std::size_t i = 0; i < n; i++)
        to[i] = vcqs_[i]->vcq.handle();
    return n;
}

void OverflowVcqs::on_remote(void* overflow, const vcq::RemoteNotice& notice) noexcept
{
    const OverflowVcq& from = *static_cast<OverflowVcq*>(overflow);
    from.owner->regions_.remote_event(from.number, notice);
}

} // namespace tofu
