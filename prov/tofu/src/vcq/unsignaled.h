// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which remote VCQs have unsignaled posts under way, that is, posts of whose effect no notice will tell: those posted to
// without a notice since the last fence. Part of the VCQ, under its owner's lock; calls nothing.
//
// A post to the peer of the last one pays for one comparison, another for a look into a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <utofu.h>

namespace tofu::vcq {

class UnsignaledPeers {
  public:
    /// Before a post without a notice. False: no memory, the post must not be made.
    [[nodiscard, gnu::always_inline]] bool note(utofu_vcq_id_t peer) noexcept
    {
        return last_ == peer || note_other(peer);
    }
    /// A fence has been posted: its notice tells of all before it.
    void fenced(utofu_vcq_id_t peer) noexcept;
    [[nodiscard]] bool has(utofu_vcq_id_t peer) const noexcept
    {
        const std::size_t at = find(peer);
        return size_ != 0 && table_[at].peer == peer && table_[at].unsignaled;
    }
    void clear() noexcept;
    /// Calls `fence(peer)` for each as long as it answers true; false: not for all yet. `hand` is where to go on; begin
    /// with 0.
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

    /// Its entry, or the free one where it belongs. Not for an empty table.
    [[nodiscard]] std::size_t find(utofu_vcq_id_t peer) const noexcept
    {
        std::size_t at = size_ == 0 ? 0 : (peer * 0x9e3779b97f4a7c15u >> 32) & (size_ - 1);
        while (size_ != 0 && table_[at].peer != peer && table_[at].peer != none)
            at = (at + 1) & (size_ - 1);
        return at;
    }
    /// Not the last one.
    [[gnu::noinline]] bool note_other(utofu_vcq_id_t peer) noexcept
    {
        if (!has(peer) && !note_slowly(peer))
            return false;
        last_ = peer;
        return true;
    }
    [[nodiscard]] bool note_slowly(utofu_vcq_id_t peer) noexcept;
    [[nodiscard]] bool grow() noexcept;

    utofu_vcq_id_t last_ = none;              ///< the one noted last, while it has unsignaled posts
    std::unique_ptr<Entry[]> table_; ///< all that ever were; a power of two, half of it free
    std::size_t size_ = 0;
    std::size_t used_ = 0;
};

} // namespace tofu::vcq
