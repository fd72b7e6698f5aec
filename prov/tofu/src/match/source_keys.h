// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a receive from a source compares with a message's: the key of the peer that the address names. Part of the
// receive queue; calls address.
#pragma once

#include <cstdint>

#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "match/match.h"
#include "match/srx_peer.h"
#include "provider/array.h"

namespace tofu::proto {

class SourceKeys {
  public:
    /// `directed`: FI_DIRECTED_RECV. Without it the argument is ignored (fi_msg(3)). The address vector is that of those
    /// who have joined.
    SourceKeys(bool directed, const Array<SrxPeer*>& members) noexcept : directed_(directed), members_(members) {}
    /// 0, or -FI_EINVAL: an address of nobody.
    [[nodiscard]] int find(fi_addr_t source, std::uint64_t& key) noexcept
    {
        key = any_source;
        if (!directed_ || source == FI_ADDR_UNSPEC)
            return 0;
        if (source != last_source_ || members_[0]->peers.generation() != last_generation_) [[unlikely]]
            return look_up(source, key);
        key = last_key_;
        return 0;
    }
    /// Somebody has left.
    void forget() noexcept { last_source_ = FI_ADDR_UNSPEC; }

  private:
    [[nodiscard, gnu::noinline]] int look_up(fi_addr_t source, std::uint64_t& key) noexcept;

    const bool directed_;
    const Array<SrxPeer*>& members_;
    // The source looked up last: valid as long as the address vector is what it was.
    std::uint32_t last_generation_ = 0;
    fi_addr_t last_source_ = FI_ADDR_UNSPEC;
    std::uint64_t last_key_ = any_source;
};

} // namespace tofu::proto
