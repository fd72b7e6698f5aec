// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See post.h.
#include "utofu/post.h"

namespace tofu::vcq {

/// There is no room to note the post's waiter or its peer.
Post Posts::no_room() noexcept
{
    statistics_.count(Stat::again_post);
    return Post::busy;
}

Post Posts::refuse(int code, When when, std::uint64_t edata) noexcept
{
    if (when == When::delivered)
        window_.give_back(static_cast<std::uint8_t>(edata));
    else if (when == When::sent)
        sent_pending_--;
    if (code == UTOFU_ERR_BUSY) {
        statistics_.count(Stat::again_post);
        wanted_ |= tcq_wanted; // reading it makes room in the TOQ (guide 3.7)
        return Post::busy;
    }
    last_error_ = code;
    return Post::error;
}

/// Posts also while the VCQ is closing.
Post Posts::post_fence(utofu_vcq_id_t peer, Waiter& waiter) noexcept
{
    utofu_stadd_t area = 0;
    Post posted = Post::error; // no VCQ of this machine: nothing is there
    if (query_stadd(peer, fence_stag, area) == 0)
        posted = post_even_closing(Signaled{&waiter, delivered_flags(true, false)}, &Functions::armw8, peer,
                                   UTOFU_ARMW_OP_OR, std::uint64_t{0}, area + fence_offset);
    if (posted != Post::busy)
        unsignaled_.fenced(peer);
    return posted;
}

std::uint8_t Posts::open_batch(Waiter* waiter, unsigned notices) noexcept
{
    const std::uint8_t number = closing_ ? std::uint8_t{0} : window_.take(waiter);
    if (number != 0)
        window_.expect(number, notices);
    return number;
}

} // namespace tofu::vcq
