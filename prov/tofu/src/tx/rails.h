// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Rails: the VCQs by which the long transfers of a transmit context go, its own and further ones on TNIs
// that no process of the node posts from. Transfers with one peer share a link, and therefore a rail; transfers with
// several peers take a rail each. rma and msg use them, under the context's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "mem/local_buffer.h"
#include "utofu/vcq.h"

namespace tofu {

class DomainBase;

class Rails {
  public:
    /// Shorter transfers stay with the context's own VCQ: they occupy a link for less than 2.6 us.
    static constexpr std::size_t least_length = 16384;
    /// The poster of a transfer: this endpoint, or the peer, which fetches. The two are counted apart, since a TNI
    /// sends and receives at the same time, and the VCQ has notices only of its own posts.
    enum class By : std::uint8_t { peer, us };
    /// The rail of a transfer. 0 and `own` are the context's own VCQ; a transfer with 0 is not counted, because it is
    /// short or may not take a rail.
    using Index = std::uint8_t;
    static constexpr Index own = 1;

    Rails() = default;
    Rails(const Rails&) = delete;
    Rails& operator=(const Rails&) = delete;

    /// Sets the context's own VCQ and its local memory.
    void begin(vcq::Vcq& own, std::unique_ptr<LocalMemory> memory) noexcept
    {
        own_ = &own;
        rails_[0].memory = std::move(memory);
    }
    /// From now on long transfers may take rails, which are opened from this domain.
    void allow(DomainBase& domain) noexcept { domain_ = &domain; }
    /// Chooses the rail of a transfer of `length` bytes with the peer that has this home VCQ. The transfer has it until
    /// give().
    [[nodiscard]] Index take(By by, utofu_vcq_id_t peer, std::size_t length) noexcept;
    void give(By by, Index rail) noexcept;
    /// The VCQ of a rail, and the local memory that is registered with that VCQ.
    [[nodiscard]] vcq::Vcq& vcq(Index rail) noexcept { return rail > own ? *rails_[rail - own].vcq : *own_; }
    [[nodiscard]] LocalMemory& memory(Index rail) noexcept { return *rails_[rail > own ? rail - own : 0].memory; }
    /// Frees the local memory of all rails. Called when all transfers have ended.
    void drop_memory() noexcept;

  private:
    static constexpr std::size_t most = 8; ///< rails: a node of Tofu-D has six TNIs
    struct Load {
        std::uint32_t transfers = 0; ///< under way
        utofu_vcq_id_t peer = 0;     ///< of the transfer that was begun last
    };
    struct Rail {
        std::unique_ptr<vcq::Vcq> vcq;
        std::unique_ptr<LocalMemory> memory;
        Load load[2]{};
    };
    [[nodiscard]] bool grow() noexcept;

    DomainBase* domain_ = nullptr; ///< null: all transfers stay with the context's own VCQ
    vcq::Vcq* own_ = nullptr;
    std::size_t count_ = 1;
    bool may_grow_ = true;
    Rail rails_[most]; ///< the first is the context's own VCQ, `vcq` is null there
};

} // namespace tofu
