// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Keeps the order of communications to a peer whose regions are reached by several VCQs, its home VCQ and annexes. Also
// orders reads behind writes, where that was promised: with strong order a Get waits for earlier Gets and a Put for
// earlier Puts (guide 2.2.10), but a Get may read before an earlier Put has written. And it orders what goes to one region
// behind what went to another, where keys may be stale: a communication that is refused is repeated later, and until
// that is known nothing to another region may take effect. Used by rma and atomic, each for its own operations, under the
// context's lock; calls vcq.
//
// uTofu keeps order from one VCQ to one VCQ (guide 2.2.10). When the VCQ of the peer changes from one communication to
// the next, a fence goes to the former: an ARMW that changes nothing, in strong order, so that its notice comes when
// all before it have taken effect, and after their notices. Until then nothing goes to that peer. Endpoints that never met
// an annex skip all this, unless keys of the user's choice may be stale.
#pragma once

#include <cstdint>
#include <map>

#include <utofu.h>

#include "core/containers.h"
#include "utofu/vcq.h"

namespace tofu {

class VcqOrder {
  public:
    explicit VcqOrder(vcq::Vcq& vcq) noexcept : vcq_(vcq) {}
    VcqOrder(const VcqOrder&) = delete;
    VcqOrder& operator=(const VcqOrder&) = delete;

    /// An annex of a peer has been met: from now on ordered communications have to pass().
    void begin() noexcept { begun_ = true; }
    [[nodiscard]] bool begun() const noexcept { return begun_; }

    /// Orders reads behind writes, from the first operation on.
    void order_reads() noexcept { begun_ = reads_ordered_ = true; }

    /// Orders regions behind each other, from the first operation on.
    void order_regions() noexcept { begun_ = regions_ordered_ = true; }
    [[nodiscard]] bool orders_regions() const noexcept { return regions_ordered_; }

    /// May a communication with the peer at `home` go to `vcq`, that home or an annex of it, now? False: try again
    /// after a poll. `reads`: a Get. `region`: names the region, where these are ordered.
    [[nodiscard]] bool pass(utofu_vcq_id_t home, utofu_vcq_id_t vcq, bool reads = false, std::uint64_t region = 0) noexcept
    {
        if (!begun_ || (home == last_home_ && last_->vcq == vcq && last_->region == region && !last_->fenced)) [[likely]]
            return true;
        return pass_peer(home, vcq, reads, region);
    }

  private:
    /// The last communication to a peer.
    struct Way : vcq::Waiter {
        utofu_vcq_id_t vcq; ///< it went to this VCQ; 0: it has taken effect
        std::uint64_t region;
        bool fenced;        ///< the fence is under way
        bool wrote;         ///< one of the communications was no Get
    };
    [[nodiscard, gnu::noinline]] bool pass_peer(utofu_vcq_id_t home, utofu_vcq_id_t vcq, bool reads,
                                                std::uint64_t region) noexcept;
    static void on_fence(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    vcq::Vcq& vcq_;
    bool begun_ = false;
    bool reads_ordered_ = false;
    bool regions_ordered_ = false;
    utofu_vcq_id_t last_home_ = 0; ///< of the peer that passed last; 0: none, or it has to be asked each time
    const Way* last_ = nullptr;
    SpareNodeMap<std::map, utofu_vcq_id_t, Way> ways_; ///< by home VCQ: of peers with annexes, or of all
};

} // namespace tofu
