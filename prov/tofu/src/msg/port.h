// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the two directions of an endpoint's rings share: our identity, the area, the clock; and the interface of the
// protocol above. Calls nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/lock.h"
#include "mem/bounce_pool.h"
#include "msg/channel.h"
#include "msg/rx_area.h"
#include "utofu/vcq.h"

namespace tofu::proto {

/// Our endpoint, as its peers know it.
struct Local {
    vcq::Vcq& vcq;       ///< the endpoint posts from it
    vcq::Vcq& home;      ///< the domain's home VCQ, through which peers reach the area,
    Lock& home_lock;     ///< and its lock
    std::uint64_t nonce; ///< of the domain
    unsigned index;      ///< of the endpoint in the domain
    EndpointAddress known; ///< the address that peers know
};

/// The protocol above the rings. None of these is called for a packet in a ring: Inbound::poll hands those on.
class Protocol {
  public:
    /// Makes a channel for one more peer. Null: there are as many as there may be.
    [[nodiscard]] virtual Channel* make_channel() noexcept = 0;
    /// The channel has failed: requests to its peer end. `waiter`: that of a packet that has never left, or null.
    virtual void channel_failed(Channel& channel, vcq::Waiter* waiter) noexcept = 0;
    /// Takes an anonymous packet; `anonymous` is a ring with that one slot. False: the packet stays.
    [[nodiscard]] virtual bool take_anonymous(Ring& anonymous) noexcept = 0;
    /// Called every few milliseconds.
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
    bool open = false;     ///< false: notices that still come change nothing
    std::uint64_t now = 0; ///< milliseconds, as of the last slow round

    /// Rings a doorbell in the area at `at`, in strong order behind what it announces. If the TNI has no room, the peer
    /// finds out in one of its slow rounds.
    void ring_doorbell(utofu_vcq_id_t home, utofu_stadd_t at, Doorbell bell) noexcept;
    /// Posts the Get of `size` bytes of an inquiry that is not under way. Post::busy also when all bounce blocks are in
    /// use.
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

/// Does the header of an area, as a Get brought it, belong to the domain with that nonce?
[[nodiscard]] bool same_process(const Bounce& answer, std::uint64_t nonce) noexcept;

} // namespace tofu::proto
