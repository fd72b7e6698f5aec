// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the two directions of an endpoint's rings share: who we are, the area, the clock; and the protocol above, as
// they see it. Calls nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "area/area.h"
#include "local/bounce.h"
#include "provider/lock.h"
#include "ring/channel.h"
#include "vcq/vcq.h"

namespace tofu::proto {

/// An endpoint, as its peers know it.
struct Local {
    vcq::Vcq& vcq;       ///< what it posts from
    vcq::Vcq& home;      ///< the domain's, through which peers reach the area,
    Lock& home_lock;     ///< and its lock
    std::uint64_t nonce; ///< of the domain
    unsigned index;      ///< of the endpoint in it
    EndpointAddress known; ///< the address it is known by
};

/// The protocol above. None of this is called for a packet in a ring: those go by Inbound::poll.
class Protocol {
  public:
    /// For a further peer, or null: there are as many as there may be.
    [[nodiscard]] virtual Channel* make_channel() noexcept = 0;
    /// The channel has failed; what waits for its peer ends. `waiter`: whose packet has never left, or null.
    virtual void channel_failed(Channel& channel, vcq::Waiter* waiter) noexcept = 0;
    /// A visitor's packet, as Inbound::poll() would hand it on: `visit` is a ring of this one slot. False: it stays.
    [[nodiscard]] virtual bool take_visit(Ring& visit) noexcept = 0;
    /// Some milliseconds have passed.
    virtual void tick() noexcept = 0;

  protected:
    ~Protocol() = default;
};

struct Port {
    Port(const Local& self, Protocol& protocol) noexcept : self(self), protocol(protocol), bounces(self.vcq) {}

    Local self;
    Protocol& protocol;
    BouncePool bounces;
    Area area;
    bool open = false;     ///< else notices change nothing any more
    std::uint64_t now = 0; ///< milliseconds, as of the last slow round

    /// Behind what it announces, which is in order with it. Where the TNI has no room for it the peer finds out in one
    /// of its slow rounds.
    void ring_doorbell(utofu_vcq_id_t home, utofu_stadd_t at, Doorbell bell) noexcept;
    /// A Get of `size` bytes for `inquiry`, at most one. Busy where all blocks are out, too.
    template <class Of>
    [[nodiscard]] vcq::Post ask(Inquiry<Of>& inquiry, utofu_vcq_id_t home, utofu_stadd_t from,
                                std::size_t size) noexcept
    {
        inquiry.answer = bounces.alloc(size);
        if (inquiry.answer.data == nullptr)
            return vcq::Post::busy;
        inquiry.under_way = true; // the notice may come within the post
        const vcq::Post post = self.vcq.get(home, inquiry.answer.stadd, from, size,
                                            {.when = vcq::When::delivered, .waiter = &inquiry});
        if (post != vcq::Post::done)
            end(inquiry);
        return post;
    }
    template <class Of>
    void end(Inquiry<Of>& inquiry) noexcept
    {
        inquiry.under_way = false;
        bounces.release(inquiry.answer);
        inquiry.answer = {};
    }
};

/// Does what a Get brought from the start of an area say that this is the domain with that nonce?
[[nodiscard]] bool same_process(const Bounce& answer, std::uint64_t nonce) noexcept;

} // namespace tofu::proto
