// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The channels of an endpoint, and the lookup of a channel by address. Part of Outbound, under the endpoint's lock;
// calls nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "av/peer_table.h"
#include "core/containers.h"
#include "msg/channel.h"

namespace tofu::proto {

/// What the address vector says of an address: where a channel has to lead.
struct Target {
    std::uint64_t address; ///< the address itself; all bits set: none
    const Peer& peer;
    std::uint64_t place;   ///< in the address vector
    unsigned context;      ///< receive context (fi_rx_addr)
};

/// Channels by place of the address vector and receive context (fi_rx_addr), in pages that are allocated at first use.
class ChannelTable {
  public:
    static constexpr std::size_t page_size = 1024; ///< places
    static constexpr std::size_t most_places = std::size_t{1} << 32;

    /// The contexts of a peer are numbered below 2^`context_bits`; `context_bits` is at most 8.
    explicit ChannelTable(int context_bits) noexcept : context_bits_(context_bits) {}

    /// The channel entered for a place and a context, or null. A context out of bounds shares the entry of another one,
    /// so the caller checks that the channel is the right one.
    [[nodiscard]] Channel* find(std::uint64_t place, unsigned context) const noexcept
    {
        const std::size_t page = page_of(place, context);
        return page < count_ && pages_[page] != nullptr ? pages_[page][place % page_size] : nullptr;
    }
    /// False: no memory, nothing has changed.
    [[nodiscard]] bool enter(std::uint64_t place, unsigned context, Channel& channel) noexcept
    {
        const std::size_t page = page_of(place, context);
        if (place >= most_places || (page >= count_ && !grow(page + 1)))
            return false;
        if (pages_[page] == nullptr)
            pages_[page].reset(new (std::nothrow) Channel*[page_size]());
        if (pages_[page] == nullptr)
            return false;
        pages_[page][place % page_size] = &channel;
        return true;
    }
    void leave(std::uint64_t place, unsigned context) noexcept
    {
        if (find(place, context) != nullptr)
            pages_[page_of(place, context)][place % page_size] = nullptr;
    }
    /// Removes all entries of a channel.
    void leave(const Channel& channel) noexcept
    {
        for (std::size_t page = 0; page < count_; page++)
            if (pages_[page] != nullptr)
                std::replace(&pages_[page][0], &pages_[page][page_size], const_cast<Channel*>(&channel),
                             static_cast<Channel*>(nullptr));
    }

  private:
    using Page = std::unique_ptr<Channel*[]>;
    [[nodiscard]] std::size_t page_of(std::uint64_t place, unsigned context) const noexcept
    {
        return (place / page_size << context_bits_) + (context & ((1u << context_bits_) - 1));
    }
    [[nodiscard, gnu::noinline]] bool grow(std::size_t least) noexcept
    {
        const std::size_t count = std::max(least, 2 * count_);
        std::unique_ptr<Page[]> more(new (std::nothrow) Page[count]);
        if (more == nullptr)
            return false;
        std::move(pages_.get(), pages_.get() + count_, more.get());
        pages_ = std::move(more);
        count_ = count;
        return true;
    }

    int context_bits_;
    std::size_t count_ = 0;
    std::unique_ptr<Page[]> pages_;
};

class Channels {
  public:
    explicit Channels(int context_bits) noexcept : by_address_(context_bits) {}
    /// The channel that an earlier find() or enter() of this address gave, if the address still leads there. Null: call
    /// find().
    [[nodiscard, gnu::always_inline]] Channel* recent(std::uint64_t address) const noexcept
    {
        const Found& found = recent_.at(address);
        if (found.address != address || found.generation != found.peer->generation) [[unlikely]]
            return nullptr;
        return found.channel;
    }
    /// The channel entered for this target, or null.
    [[nodiscard]] Channel* find(const Target& target) noexcept
    {
        Channel* const found = by_address_.find(target.place, target.context);
        if (found == nullptr || !found->is_to(target.peer, target.peer.index + target.context)) [[unlikely]]
            return nullptr;
        note(target, *found);
        return found;
    }
    /// The channel to this endpoint, whatever address it was entered for, or null.
    [[nodiscard]] Channel* to(const Peer& peer, unsigned index) const noexcept
    {
        const auto found = std::find_if(all_.begin(), all_.end(),
                                        [&](const Channel* ch) { return ch->is_to(peer, index); });
        return found != all_.end() ? *found : nullptr;
    }
    /// Makes room for one more channel. False: no memory.
    [[nodiscard]] bool reserve() noexcept { return all_.reserve(all_.size() + 1); }
    void add(Channel& channel) noexcept { all_.push_reserved(&channel); }
    /// Lets the target lead to the channel from now on. False: no memory.
    [[nodiscard]] bool enter(const Target& target, Channel& channel) noexcept
    {
        if (!by_address_.enter(target.place, target.context, channel))
            return false;
        note(target, channel);
        return true;
    }
    /// Removes the channel from all lookups.
    void unlink(Channel& channel) noexcept
    {
        recent_.forget_if([&](const Found& found) { return found.channel == &channel; });
        if (channel.aliased)
            by_address_.leave(channel);
        else
            by_address_.leave(channel.place, channel.context);
        channel.aliased = false;
    }
    [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
    [[nodiscard]] Channel& operator[](std::size_t number) const noexcept { return *all_[number]; }
    [[nodiscard]] Channel* const* begin() const noexcept { return all_.begin(); }
    [[nodiscard]] Channel* const* end() const noexcept { return all_.end(); }

  private:
    static constexpr Peer nobody{};
    /// Where an address led, as long as the place of the address vector is what it was.
    struct Found {
        std::uint64_t address = FI_ADDR_NOTAVAIL;
        std::uint32_t generation = ~0u; // not that of nobody
        const Peer* peer = &nobody;
        Channel* channel = nullptr;
    };
    void note(const Target& target, Channel& channel) noexcept
    {
        recent_.note({target.address, target.peer.generation, &target.peer, &channel});
    }

    Recent<Found> recent_;
    ChannelTable by_address_;
    Array<Channel*> all_;
};

} // namespace tofu::proto
