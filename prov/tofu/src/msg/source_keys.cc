// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See source_keys.h.
#include "msg/source_keys.h"

#include "av/peer_table.h"

namespace tofu::proto {

int SourceKeys::look_up(fi_addr_t source, std::uint64_t& key) noexcept
{
    if (members_.empty())
        return -FI_EINVAL;
    const Peers& peers = members_[0]->peers;
    const std::uint32_t generation = peers.generation(); // before the lookup: a change during it is noticed later
    const Peer* peer = peers.find(source);
    if (peer == nullptr)
        return -FI_EINVAL;
    key = peer_key(peer->home, peer->nonce, peer->index);
    recent_.note({source, generation, key});
    return 0;
}

} // namespace tofu::proto
