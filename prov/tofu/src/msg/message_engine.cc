// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opening the messenger. See message_engine.h.
#include "msg/message_engine.h"

#include <utility>

#include <rdma/fi_errno.h>

#include "core/params.h"
#include "cq/domain_base.h"

namespace tofu::proto {

namespace {

constexpr std::size_t anon_slot_count = 1024; // 256 KiB; peers without a ring that may send at a time

Local local(TxContext& tx) noexcept
{
    DomainBase& domain = tx.domain();
    const auto& config = tx.config();
    return {tx.vcq(), domain.home(), domain.home_lock(), config.known.nonce, config.number, config.known};
}

} // namespace

Messenger::Messenger(TxContext& tx, RxContext& rx) noexcept
    : tx_(tx), rx_(rx), rings_(local(tx), *this, tx.peers().context_bits(), receiver_), sender_(tx, rings_),
      receiver_(tx, rx, rings_.port)
{
}

bool Messenger::hand_over_to(Estate& estate) noexcept
{
    std::unique_ptr<Copies> copies = sender_.requests().hand_over_copies();
    if (copies == nullptr)
        return false;
    estate.take(std::move(copies), std::move(rings_.port.area), rings_.port.self.index);
    return true;
}

int Messenger::open() noexcept
{
    if (int ret = check_params(); ret != 0)
        return ret;
    // No peer sends to a transmit context, or CQ data to an RMA endpoint without a queue to report it to.
    const bool receives = rx_.is_open && ((tx_.config().caps & (FI_MSG | FI_TAGGED)) != 0 || rx_.binding.cq != nullptr);
    const std::size_t rings = receives ? param_size("rings", 256) : 1;
    if (!delivery().queue().valid())
        return -FI_ENOMEM;
    const std::size_t anon_slots = receives ? anon_slot_count : 1;
    if (int ret = rings_.open(rings, param_size("ring_slots", 128), anon_slots); ret != 0)
        return ret;
    return delivery().join_queue();
}

} // namespace tofu::proto
