// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An endpoint's message area: the memory that its peers write to (layout: msg/wire.h). The rings register it with the
// target VCQ. Pages are touched only where a peer talks. And what both directions of an endpoint's rings know: our
// identity (LocalEndpoint), the protocol above (Protocol), the area and the VCQ (RingContext).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/lock.h"
#include "core/system.h"
#include "mem/bounce_pool.h"
#include "msg/wire.h"
#include "utofu/vcq.h"

namespace tofu::proto {

// --- ReceiveArea

class ReceiveArea final : ForkAware {
  public:
    ReceiveArea() = default;
    /// Takes over what the other one has, which is closed then.
    ReceiveArea(ReceiveArea&& other) noexcept;
    ReceiveArea& operator=(const ReceiveArea&) = delete;
    ~ReceiveArea() { close(); }

    /// Maps the area and registers it under the reserved STag of endpoint `index`. Takes the target lock. 0 or
    /// -FI_E*.
    [[nodiscard]] int open(vcq::Vcq& target_vcq, Lock& target_lock, std::uint64_t nonce, unsigned index,
                           const Geometry& geometry) noexcept;
    /// Registers the rings that are not registered yet. False: there are none, another thread has the target lock, or
    /// the registration failed.
    [[nodiscard]] bool grow() noexcept;
    [[nodiscard]] bool is_open() const noexcept { return base_ != nullptr; }
    /// The number of registered rings.
    [[nodiscard]] std::uint32_t open_rings() const noexcept { return open_rings_; }
    /// Deregisters the memory: peers reach it no more, its owner still does. Takes the target lock.
    void hide() noexcept;
    /// Lets peers see that the endpoint is closed, while they still reach the completion words.
    void mark_closed() noexcept;
    void close() noexcept;
    /// Frees the memory that closed areas have left for later ones. Any thread.
    static void drop_spare() noexcept;

    [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
    [[nodiscard]] std::byte* ring(unsigned n) const noexcept { return base_ + geometry_.ring(n); }
    [[nodiscard]] std::byte* anon_slots() const noexcept { return base_ + anon_slots_offset; }
    /// Words that peers' TNIs write; each access pairs with their Put or ARMW.
    [[nodiscard]] std::atomic_ref<std::uint64_t> completion(unsigned n) const noexcept
    {
        return word(completion_offset(n));
    }
    [[nodiscard]] const void* completion_address(unsigned n) const noexcept { return base_ + completion_offset(n); }
    [[nodiscard]] std::atomic_ref<std::uint64_t> consumed(unsigned n) const noexcept { return word(credit_offset(n)); }
    /// All doorbells in one word. A peer Puts a doorbell behind what it announces.
    [[nodiscard]] std::atomic_ref<std::uint64_t> doorbells() const noexcept { return word(doorbells_offset); }
    [[nodiscard]] std::uint64_t* slot_counter() const noexcept
    {
        return reinterpret_cast<std::uint64_t*>(base_ + slot_counter_offset);
    }
    /// CreditBlock::status and, above, ::check.
    [[nodiscard]] std::atomic_ref<std::uint64_t> status(unsigned n) const noexcept
    {
        return word(credit_offset(n) + offsetof(CreditBlock, status));
    }

  private:
    /// The child gets a private copy at its first write, so its fi_close changes nothing that peers see.
    void in_child() noexcept override;
    [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint64_t offset) const noexcept
    {
        return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(base_ + offset));
    }

    vcq::Vcq* target_vcq_ = nullptr;
    Lock* target_lock_ = nullptr;
    int fd_ = -1;
    std::byte* base_ = nullptr;
    std::uint64_t stadd_ = 0;
    std::uint64_t further_ = 0; ///< STADD of the rings that were registered later
    std::uint32_t open_rings_ = 0;
    unsigned index_ = 0;
    bool full_ = false; ///< their registration failed
    bool hidden_ = false;
    Geometry geometry_{};
};

/// A peer's area.
struct PeerArea {
    utofu_vcq_id_t target_vcq = 0;
    utofu_stadd_t area = 0;
    std::uint64_t nonce = 0;
    bool operator==(const PeerArea&) const noexcept = default;
};

// --- LocalEndpoint, Protocol, RingContext: what the two directions of an endpoint's rings share

struct TxChannel;
struct RxRing;

/// Our endpoint, as its peers know it.
struct LocalEndpoint {
    vcq::Vcq& vcq;         ///< the endpoint posts from it
    vcq::Vcq& target_vcq;  ///< the domain's target VCQ, through which peers reach the area,
    Lock& target_lock;     ///< and its lock
    std::uint64_t nonce;   ///< of the address
    unsigned index;        ///< of the endpoint in the domain
    EndpointAddress known; ///< the address that peers know
};

/// The protocol above the rings. None of these is called for a packet in a ring: RxRings::poll hands those on.
class Protocol {
  public:
    /// Makes a channel for one more peer. Null: there are as many as there may be.
    [[nodiscard]] virtual TxChannel* make_channel() noexcept = 0;
    /// The channel has failed: requests to its peer end. `handler`: that of a packet that has never left, or null.
    virtual void channel_failed(TxChannel& channel, vcq::CompletionHandler* handler) noexcept = 0;
    /// Takes an anonymous packet; `anonymous` is a ring with that one slot. False: the packet stays.
    [[nodiscard]] virtual bool accept_anonymous(RxRing& anonymous) noexcept = 0;
    /// Called every few milliseconds.
    virtual void tick() noexcept = 0;

  protected:
    ~Protocol() = default;
};

/// A read of a peer's memory that answers a question. Each object has one under way at most.
template <class Of>
struct PeerRead : vcq::CompletionHandler {
    Of* of = nullptr;
    Bounce answer{}; ///< where the Get writes
    bool under_way = false;
};

struct RingContext : LocalEndpoint {
    RingContext(const LocalEndpoint& self, Protocol& protocol) noexcept
        : LocalEndpoint(self), protocol(protocol), bounces(self.vcq)
    {
    }

    Protocol& protocol;
    BouncePool bounces;
    ReceiveArea area;
    bool open = false;     ///< false: notices that still come change nothing
    std::uint64_t now = 0; ///< milliseconds, as of the last slow round

    /// Rings a doorbell in the area at `at`, in strong order behind what it announces. If the TNI has no room, the peer
    /// finds out in one of its slow rounds.
    void ring_doorbell(utofu_vcq_id_t target_vcq, utofu_stadd_t at, Doorbell bell) noexcept;
    /// Posts the Get of `size` bytes of an inquiry that is not under way. Post::busy also when all bounce blocks are in
    /// use.
    template <class Of>
    [[nodiscard]] vcq::Post read_peer(PeerRead<Of>& peer_read, utofu_vcq_id_t target_vcq, utofu_stadd_t from,
                                      std::size_t size) noexcept
    {
        peer_read.answer = bounces.alloc(size);
        if (peer_read.answer.data == nullptr)
            return vcq::Post::busy;
        peer_read.under_way = true; // the notice may come within the post
        const vcq::Post post = vcq.get(target_vcq, peer_read.answer.stadd, from, size,
                                       {.level = vcq::CompletionLevel::delivered, .handler = &peer_read});
        if (post != vcq::Post::done)
            end(peer_read);
        return post;
    }
    template <class Of>
    void end(PeerRead<Of>& peer_read) noexcept
    {
        peer_read.under_way = false;
        bounces.release(peer_read.answer);
        peer_read.answer = {};
    }
};

/// Does the header of an area, as a Get brought it, belong to the endpoint with that nonce?
[[nodiscard]] bool same_process(const Bounce& answer, std::uint64_t nonce) noexcept;

} // namespace tofu::proto
