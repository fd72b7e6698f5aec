// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The watch over peers that are silent while something waits for them, and over claims that nobody stands behind.
// Part of Outbound and of Inbound; calls vcq.
#include <cstring>
#include <utility>

#include <rdma/fi_errno.h>

#include "memory/directory.h"
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
    for (std::size_t i = 0; i < channels_.size() && at_once != 0; i++) {
        Channel& ch = *channels_[next_asked_++ % channels_.size()];
        if (ch.outstanding == 0 && ch.starved == 0 && ch.state != ChannelState::leaving)
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

void Inbound::watch(unsigned at_once) noexcept
{
    if (polls_.empty())
        return;
    next_watched_ = (next_watched_ + 1) % polls_.size();
    start_probe(*rings_[polls_[next_watched_].ring]);
    for (const Poll& poll : polls_) {
        Ring& ring = *rings_[poll.ring];
        if (!ring.greeted && at_once != 0) {
            start_probe(ring);
            at_once--;
        }
    }
}

void Inbound::peer_failed(utofu_vcq_id_t home) noexcept
{
    for (std::size_t i = polls_.size(); i-- > 0;)
        if (Ring& ring = *rings_[polls_[i].ring]; ring.home == home)
            start_probe(ring);
}

/// A claimant without HELLO has not said which of its endpoints it is: its domain is asked.
void Inbound::start_probe(Ring& ring) noexcept
{
    if (ring.life.under_way)
        return;
    utofu_stadd_t from = ring.area;
    std::size_t size = sizeof(AreaHeader);
    if (!ring.greeted) {
        if (port_.self.vcq.query_stadd(ring.home, directory_stag, from) != 0) {
            set_gone(ring); // no VCQ ID at all
            return;
        }
        from += directory::contacts_offset;
        size = sizeof(directory::Contacts);
    }
    ring.asked_domain = !ring.greeted;
    if (port_.ask(ring.life, ring.home, from, size) == vcq::Post::error)
        set_gone(ring);
}

/// What it had sent before is still taken.
void Inbound::set_gone(Ring& ring) noexcept
{
    gone_ += !std::exchange(ring.gone, true);
}

/// What an answer, or that there is none, says of a sender.
bool Inbound::shows_death(const Ring& ring, const vcq::Notice& notice) const noexcept
{
    if (notice.code == UTOFU_ERR_MRQ_PEER)
        return true;
    // Another nonce, or no such area: another process has the VCQ ID, or the endpoint was closed.
    if (!ring.asked_domain)
        return notice.code == UTOFU_ERR_MRQ_RMT_STADD ||
               (notice.code == UTOFU_SUCCESS && !same_process(ring.life.answer, ring.nonce));
    if (ring.greeted)
        return false; // it has greeted meanwhile
    if (notice.code == UTOFU_ERR_MRQ_RMT_STADD)
        return true; // no domain of ours
    if (notice.code != UTOFU_SUCCESS)
        return false;
    directory::Contacts contacts;
    std::memcpy(&contacts, ring.life.answer.data, sizeof contacts);
    // When the count was 0, the HELLO of an honest claim had arrived.
    return contacts.claims == 0 && !arrived(read(polls_[ring.place]), polls_[ring.place]);
}

void Inbound::on_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Ring& ring = *static_cast<Inquiry<Ring>*>(waiter)->of;
    Inbound& in = *ring.owner;
    const bool gone = in.port_.open && !ring.closing && in.shows_death(ring, notice);
    in.port_.end(ring.life);
    if (!in.port_.open)
        return;
    if (ring.closing)
        in.close_ring(ring);
    else if (gone)
        in.set_gone(ring);
}

} // namespace tofu::proto
