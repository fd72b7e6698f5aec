// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which channel an address leads to: by place of the address vector and receive context (fi_rx_addr), in pages that are
// made at first use. Part of Outbound, under the endpoint's lock; calls nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace tofu::proto {

struct Channel;

class ChannelTable {
  public:
    static constexpr std::size_t page_size = 1024; ///< places
    static constexpr std::size_t most_places = std::size_t{1} << 32;

    /// Contexts of a peer are those below 2^`context_bits`, at most 8.
    explicit ChannelTable(int context_bits) noexcept : context_bits_(context_bits) {}

    /// The channel entered for a place and a context, or null. Contexts out of bounds share the entry of another one:
    /// the caller looks whose channel it is.
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
    /// All entries of a channel.
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

} // namespace tofu::proto
