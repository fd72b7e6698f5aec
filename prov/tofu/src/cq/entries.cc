// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See entries.h.
#include "cq/entries.h"

#include <cstring>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"

namespace tofu {

CqEntry CqEntry::of_unknown_source(const Completion& completion, const EndpointAddress& source) noexcept
{
    CqEntry entry{completion, FI_EADDRNOTAVAIL, source.flags << 16 | source.further << 8 | source.index, source.nonce};
    entry.completion.source = source.home;
    return entry;
}

std::optional<AddressForm> CqEntry::tell(fi_cq_err_entry& to, bool room_for_source, bool textual) const noexcept
{
    constexpr std::size_t source_at = 80;
    static_assert(offsetof(fi_cq_err_entry, err_data_size) + sizeof(std::size_t) == source_at);
    const Completion& c = completion;
    const bool unknown = has_unknown_source();
    const fi_addr_t source = unknown ? FI_ADDR_NOTAVAIL : c.source;
    to.op_context = c.context;
    to.flags = c.flags;
    to.len = c.length;
    to.buf = c.buffer;
    to.data = c.data;
    to.tag = c.tag;
    to.olen = unknown ? 0 : overflow_length;
    to.err = err;
    to.prov_errno = unknown ? 0 : prov_errno;
    if (room_for_source)
        std::memcpy(reinterpret_cast<char*>(&to) + source_at, &source, sizeof(source));
    if (!unknown)
        return {};
    const auto rest = static_cast<unsigned>(prov_errno);
    return AddressForm(make_address(c.source, overflow_length, rest & 0xff, rest >> 8 & 0xff, rest >> 16), textual);
}

bool Entries::open(std::size_t size) noexcept
{
    ring_.reset(new (std::nothrow) CqEntry[size]);
    mask_ = size - 1;
    return ring_ != nullptr;
}

void Entries::put(const CqEntry& entry) noexcept
{
    const int err = tail_ - head_ < mask_ ? 0 : make_room();
    if (err < 0)
        return;
    CqEntry& last = ring_[tail_ & mask_];
    last = entry;
    if (err != 0)
        last.err = err;
    set(tail_, tail_ + 1);
}

/// Called where no more than the last place is free. 0: the ring has grown; FI_EOVERRUN, for the entry in that place;
/// negative: that place is taken.
int Entries::make_room() noexcept
{
    return grow() ? 0 : tail_ - head_ <= mask_ ? FI_EOVERRUN : -FI_EOVERRUN;
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
