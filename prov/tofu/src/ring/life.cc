// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The watch over peers that are silent while something waits for them, and over claims that nobody stands behind.
// Part of the messenger; calls vcq.
#include "message/messenger.h"

#include <algorithm>

#include <rdma/fi_errno.h>

#include "endpoint/endpoint.h"
#include "memory/region.h"

namespace tofu::proto {

/// Asks for a sign of life where something waits for a peer, and of one sender after the other; of claimants that
/// have not said HELLO all the time.
void Messenger::watch() noexcept
{
    constexpr unsigned at_once = 64;
    unsigned asked = 0;
    for (std::size_t i = 0; i < channels_.size() && asked < at_once; i++) {
        Channel& ch = *channels_[next_asked_++ % channels_.size()];
        if (ch.outstanding == 0 && ch.starved == 0 && ch.state != ChannelState::leaving)
            continue;
        ch.starved = 0;
        start_probe(ch);
        asked++;
    }
    if (polls_.empty())
        return;
    next_watched_ = (next_watched_ + 1) % polls_.size();
    start_probe(*inbound_[polls_[next_watched_].ring]);
    for (const Poll& poll : polls_) {
        Inbound& in = *inbound_[poll.ring];
        if (!in.greeted && asked < at_once) {
            start_probe(in);
            asked++;
        }
    }
}

bool Messenger::same_process(const Bounce& scratch, std::uint64_t nonce) const noexcept
{
    AreaHeader header;
    std::memcpy(&header, scratch.data, sizeof header);
    return header.magic == area_magic && header.nonce == nonce;
}

void Messenger::start_probe(Channel& ch) noexcept
{
    if (ch.probing || ch.state == ChannelState::failed || ch.area == 0)
        return;
    ch.life_scratch = bounces_.alloc(sizeof(AreaHeader));
    if (ch.life_scratch.data == nullptr)
        return;
    ch.probing = true;
    if (vcq_.get(ch.peer.home, ch.life_scratch.stadd, ch.area, sizeof(AreaHeader),
                 {.when = vcq::When::delivered, .waiter = &ch.life}) == vcq::Post::done)
        return;
    ch.probing = false;
    bounces_.release(ch.life_scratch);
    ch.life_scratch = {};
}

void Messenger::on_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Channel& ch = *static_cast<Channel::Step*>(waiter)->channel;
    Messenger& m = *ch.owner;
    const bool lives =
        notice.code == UTOFU_SUCCESS && m.same_process(ch.life_scratch, ch.peer.nonce);
    m.bounces_.release(ch.life_scratch);
    ch.life_scratch = {};
    ch.probing = false;
    if (m.open_ && !lives)
        m.fail(ch, FI_EHOSTDOWN, notice.code != UTOFU_SUCCESS ? notice.code : UTOFU_ERR_MRQ_PEER);
}

/// A claimant without HELLO has not said which of its endpoints it is: its domain is asked.
void Messenger::start_probe(Inbound& in) noexcept
{
    if (in.probing)
        return;
    utofu_stadd_t from = in.area;
    std::size_t size = sizeof(AreaHeader);
    if (!in.greeted) {
        if (vcq_.query_stadd(in.home, directory_stag, from) != 0) {
            set_gone(in); // no VCQ ID at all
            return;
        }
        from += directory::contacts_offset;
        size = sizeof(directory::Contacts);
    }
    in.scratch = bounces_.alloc(sizeof(AreaHeader));
    if (in.scratch.data == nullptr)
        return;
    in.life.notify = on_inbound_life;
    in.life.inbound = &in;
    in.probing = true;
    in.asked_domain = !in.greeted;
    const vcq::Post post = vcq_.get(in.home, in.scratch.stadd, from, size,
                                    {.when = vcq::When::delivered, .waiter = &in.life});
    if (post == vcq::Post::done)
        return;
    in.probing = false;
    bounces_.release(in.scratch);
    in.scratch = {};
    if (post == vcq::Post::error)
        set_gone(in);
}

/// What it had sent before is still taken.
void Messenger::set_gone(Inbound& in) noexcept
{
    if (in.gone)
        return;
    in.gone = true;
    gone_++;
}

/// What an answer, or that there is none, says of a sender.
bool Messenger::shows_death(const Inbound& in, const vcq::Notice& notice) const noexcept
{
    if (notice.code == UTOFU_ERR_MRQ_PEER)
        return true;
    // Another nonce, or no such area: another process has the VCQ ID, or the endpoint was closed.
    if (!in.asked_domain)
        return notice.code == UTOFU_ERR_MRQ_RMT_STADD ||
               (notice.code == UTOFU_SUCCESS && !same_process(in.scratch, in.nonce));
    if (in.greeted)
        return false; // it has greeted meanwhile
    if (notice.code == UTOFU_ERR_MRQ_RMT_STADD)
        return true; // no domain of ours
    if (notice.code != UTOFU_SUCCESS)
        return false;
    directory::Contacts contacts;
    std::memcpy(&contacts, in.scratch.data, sizeof contacts);
    // acquire: when the count was 0, the HELLO of an honest claim had arrived
    const std::uint64_t word = std::atomic_ref<std::uint64_t>(*polls_[in.place].word)
                                   .load(std::memory_order_acquire);
    return contacts.claims == 0 && static_cast<std::uint32_t>(word >> 32) != in.next_seq;
}

void Messenger::on_inbound_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    auto* step = static_cast<Inbound::Step*>(waiter);
    Inbound& in = *step->inbound;
    Messenger& m = *in.owner;
    const bool gone = m.open_ && !in.closing && m.shows_death(in, notice);
    m.bounces_.release(in.scratch);
    in.scratch = {};
    in.probing = false;
    if (!m.open_)
        return;
    if (in.closing) {
        m.close_ring(in);
    } else if (gone) {
        m.set_gone(in);
    }
}

} // namespace tofu::proto
