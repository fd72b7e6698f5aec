// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From the source address of a receive to the key of that peer, which is compared with the key of a message's sender.
// Part of the receive queue; calls address.
#pragma once

#include <cstdint>

#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "av/peer_table.h"
#include "core/containers.h"
#include "msg/match.h"
#include "msg/srx_peer.h"

namespace tofu::proto {

class SourceKeys {
  public:
    /// `directed`: FI_DIRECTED_RECV; without it the source argument of receives is ignored (fi_msg(3)). The address
    /// vector is that of the endpoints that have joined.
    SourceKeys(bool directed, const Array<SrxPeer*>& members) noexcept : directed_(directed), members_(members) {}
    /// 0 and the key, or -FI_EINVAL: no peer has this address.
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
    /// An endpoint has left: forgets the keys found so far.
    void forget() noexcept { recent_ = {}; }

  private:
    [[nodiscard, gnu::noinline]] int look_up(fi_addr_t source, std::uint64_t& key) noexcept;

    const bool directed_;
    const Array<SrxPeer*>& members_;
    /// A key found earlier; valid as long as the address vector has not changed.
    struct Found {
        fi_addr_t address = FI_ADDR_UNSPEC;
        std::uint32_t generation = 0;
        std::uint64_t key = any_source;
    };
    Recent<Found> recent_;
};

} // namespace tofu::proto
