// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See entries.h.
#include "queue/entries.h"

#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "provider/log.h"

namespace tofu {

CqEntry CqEntry::from_stranger(const Completion& completion, const EndpointAddress& source) noexcept
{
    CqEntry entry{completion, FI_EADDRNOTAVAIL, source.flags << 16 | source.further << 8 | source.index, source.nonce};
    entry.completion.source = source.home;
    return entry;
}

EndpointAddress CqEntry::take_stranger() noexcept
{
    const auto rest = static_cast<unsigned>(prov_errno);
    const EndpointAddress address =
        make_address(completion.source, overflow_length, rest & 0xff, rest >> 8 & 0xff, rest >> 16);
    completion.source = FI_ADDR_NOTAVAIL;
    prov_errno = 0;
    overflow_length = 0;
    return address;
}

bool Entries::open(std::size_t size) noexcept
{
    ring_.reset(new (std::nothrow) CqEntry[size]);
    mask_ = size - 1;
    return ring_ != nullptr;
}

void Entries::put(CqEntry entry) noexcept
{
    if (tail_ - head_ >= mask_ && !grow()) {
        if (tail_ - head_ > mask_)
            return;
        entry.err = FI_EOVERRUN;
    }
    ring_[tail_ & mask_] = entry;
    set(tail_, tail_ + 1);
}

bool Entries::grow() noexcept
{
    const std::size_t size = (mask_ + 1) * 2;
    std::unique_ptr<CqEntry[]> larger(new (std::nothrow) CqEntry[size]);
    if (larger == nullptr) {
        TOFU_WARN(FI_LOG_CQ, "completion queue: no memory for more than %zu entries: read it more often\n", mask_ + 1);
        return false;
    }
    for (std::uint64_t i = head_; i != tail_; i++)
        larger[i & (size - 1)] = ring_[i & mask_];
    ring_ = std::move(larger);
    mask_ = size - 1;
    return true;
}

} // namespace tofu
