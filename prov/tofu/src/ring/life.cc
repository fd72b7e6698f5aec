// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The watch over peers that are silent while something waits for them.
// Part of Outbound and of Inbound; calls vcq.
#include <cstring>
#include <utility>

#include <rdma/fi_errno.h>

#include "ring/inbound.h"
#include "ring/outbound.h"

namespace tofu::proto {

bool same_process(const Bounce& answer, std::uint64_t nonce) noexcept
{
    AreaHeader header;
    std::memcpy(&header, answer.data, sizeof header);
    return header.magic == area_magic && header.nonce == nonce;
}

// --- receivers

void Outbound::watch(unsigned at_once) noexcept
{
    for (std::size_t i = 0; i < channels.size() && at_once != 0; i++) {
        Channel& ch = channels[next_asked_++ % channels.size()];
        if (ch.outstanding == 0 && ch.starved == 0 && ch.state != ChannelState::leaving && !ch.visit.asked)
            continue;
        ch.starved = 0;
        start_probe(ch);
        at_once--;
    }
}

void Outbound::start_probe(Channel& ch) noexcept
{
    if (!ch.life.under_way && ch.state != ChannelState::failed && ch.area != 0)
        (void)port_.ask(ch.life, ch.peer.home, ch.area, sizeof(AreaHeader));
}

void Outbound::on_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Channel& ch = *static_cast<Inquiry<Channel>*>(waiter)->of;
    Outbound& out = *ch.owner;
    const bool lives = notice.code == UTOFU_SUCCESS && same_process(ch.life.answer, ch.peer.nonce);
    out.port_.end(ch.life);
    if (out.port_.open && !lives)
        out.fail(ch, FI_EHOSTDOWN, notice.code != UTOFU_SUCCESS ? notice.code : UTOFU_ERR_MRQ_PEER);
}

// --- senders

void Inbound::watch() noexcept
{
    if (polls_.empty())
        return;
    next_watched_ = (next_watched_ + 1) % polls_.size();
    start_probe(*rings_[polls_[next_watched_].ring]);
}

void Inbound::peer_failed(utofu_vcq_id_t home) noexcept
{
    for (std::size_t i = polls_.size(); i-- > 0;)
        if (Ring& ring = *rings_[polls_[i].ring]; ring.home == home)
            start_probe(ring);
}

void Inbound::start_probe(Ring& ring) noexcept
{
    if (!ring.life.under_way &&
        port_.ask(ring.life, ring.home, ring.area, sizeof(AreaHeader)) == vcq::Post::error)
        set_gone(ring);
}

/// What it had sent before is still taken.
void Inbound::set_gone(Ring& ring) noexcept
{
    gone_ += !std::exchange(ring.gone, true);
}

/// What an answer, or that there is none, says of a sender.
bool Inbound::shows_death(const Ring& ring, const vcq::Notice& notice) noexcept
{
    // Another nonce, or no such area: another process has the VCQ ID, or the endpoint was closed.
    return notice.code == UTOFU_ERR_MRQ_PEER || notice.code == UTOFU_ERR_MRQ_RMT_STADD ||
           (notice.code == UTOFU_SUCCESS && !same_process(ring.life.answer, ring.nonce));
}

void Inbound::on_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Ring& ring = *static_cast<Inquiry<Ring>*>(waiter)->of;
    Inbound& in = *ring.owner;
    const bool gone = in.port_.open && !ring.closing && shows_death(ring, notice);
    in.port_.end(ring.life);
    if (!in.port_.open)
        return;
    if (ring.closing)
        in.close_ring(ring);
    else if (gone)
        in.set_gone(ring);
}

} // namespace tofu::proto
