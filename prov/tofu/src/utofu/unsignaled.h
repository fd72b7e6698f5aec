// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The remote VCQs that have unsignaled posts under way: posts since the last fence of whose effect no notice will tell.
// Part of the VCQ, under its owner's lock; calls nothing.
//
// A post to the same peer as the last one costs one comparison, another post costs one lookup in a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <utofu.h>

namespace tofu::vcq {

class UnsignaledPeers {
  public:
    /// Notes an unsignaled post that is about to be made. False: no memory, so the post must not be made.
    [[nodiscard, gnu::always_inline]] bool note(utofu_vcq_id_t peer) noexcept
    {
        return last_ == peer || note_other(peer);
    }
    /// A fence has been posted, whose notice will tell of all posts before it.
    void fenced(utofu_vcq_id_t peer) noexcept;
    [[nodiscard]] bool has(utofu_vcq_id_t peer) const noexcept
    {
        const std::size_t at = find(peer);
        return size_ != 0 && table_[at].peer == peer && table_[at].unsignaled;
    }
    void clear() noexcept;
    /// Calls `fence(peer)` for each peer as long as it answers true. False: some peers are left. `hand` is the place to
    /// go on from; begin with 0.
    template <class Fence>
    [[nodiscard]] bool visit(std::size_t& hand, Fence&& fence)
    {
        for (; hand < size_; hand++)
            if (table_[hand].unsignaled && !fence(table_[hand].peer))
                return false;
        return true;
    }

  private:
    struct Entry {
        utofu_vcq_id_t peer = none;
        bool unsignaled = false;
    };
    static constexpr utofu_vcq_id_t none = ~utofu_vcq_id_t{0}; // no VCQ has this ID

    /// The entry of a peer, or the free entry where it belongs. The table must not be empty.
    [[nodiscard]] std::size_t find(utofu_vcq_id_t peer) const noexcept
    {
        std::size_t at = size_ == 0 ? 0 : (peer * 0x9e3779b97f4a7c15u >> 32) & (size_ - 1);
        while (size_ != 0 && table_[at].peer != peer && table_[at].peer != none)
            at = (at + 1) & (size_ - 1);
        return at;
    }
    /// Notes a peer that is not `last_`. False: no memory.
    [[gnu::noinline]] bool note_other(utofu_vcq_id_t peer) noexcept
    {
        if (!has(peer) && !note_slowly(peer))
            return false;
        last_ = peer;
        return true;
    }
    [[nodiscard]] bool note_slowly(utofu_vcq_id_t peer) noexcept;
    [[nodiscard]] bool grow() noexcept;

    utofu_vcq_id_t last_ = none;              ///< the peer noted last, while it has unsignaled posts
    std::unique_ptr<Entry[]> table_; ///< every peer that was ever noted; its size is a power of two, half of it free
    std::size_t size_ = 0;
    std::size_t used_ = 0;
};

} // namespace tofu::vcq
