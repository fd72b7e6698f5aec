// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a receive from a source compares with a message's: the key of the peer that the address names. Part of the
// receive queue; calls address.
#pragma once

#include <cstdint>

#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "address/recent.h"
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
        const Found& found = recent_.at(source);
        if (source != found.address || members_[0]->peers.generation() != found.generation) [[unlikely]]
            return look_up(source, key);
        key = found.key;
        return 0;
    }
    /// Somebody has left.
    void forget() noexcept { recent_ = {}; }

  private:
    [[nodiscard, gnu::noinline]] int look_up(fi_addr_t source, std::uint64_t& key) noexcept;

    const bool directed_;
    const Array<SrxPeer*>& members_;
    /// Valid as long as the address vector is what it was.
    struct Found {
        fi_addr_t address = FI_ADDR_UNSPEC;
        std::uint32_t generation = 0;
        std::uint64_t key = any_source;
    };
    Recent<Found> recent_;
};

} // namespace tofu::proto
