// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The ways by which a transmit context's long transfers go: its own VCQ, and branches, which are further VCQs on TNIs
// that no process of the node posts from. Transfers with one peer share a link, and therefore a way; transfers with
// several peers take a way each. Used by rma, send and message under the context's lock; calls vcq and local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "mem/local_buffer.h"
#include "utofu/vcq.h"

namespace tofu {

class DomainBase;

class Branches {
  public:
    /// Shorter transfers stay with the context's own VCQ: they occupy a link for less than 2.6 us.
    static constexpr std::size_t least_length = 16384;
    /// Who posts a transfer: we, or the peer, which fetches from us. The two are counted apart, since a TNI sends and
    /// receives at the same time, and our VCQ has notices only of what we post.
    enum class By : std::uint8_t { peer, us };
    /// The way of a transfer. 0 and `own` are the context's own VCQ; a transfer with 0 is not counted, because it is
    /// short or may not take a branch.
    using Way = std::uint8_t;
    static constexpr Way own = 1;

    Branches() = default;
    Branches(const Branches&) = delete;
    Branches& operator=(const Branches&) = delete;

    /// Sets the context's own VCQ and its local memory.
    void begin(vcq::Vcq& own, std::unique_ptr<LocalMemory> memory) noexcept
    {
        own_ = &own;
        ways_[0].memory = std::move(memory);
    }
    /// From now on long transfers may take branches, which are opened from this domain.
    void allow(DomainBase& domain) noexcept { domain_ = &domain; }
    /// Chooses the way of a transfer of `length` bytes with the peer that has this home VCQ. The transfer has it until
    /// give().
    [[nodiscard]] Way take(By by, utofu_vcq_id_t peer, std::size_t length) noexcept;
    void give(By by, Way way) noexcept;
    /// The VCQ of a way, and the local memory that is registered with that VCQ.
    [[nodiscard]] vcq::Vcq& vcq(Way way) noexcept { return way > own ? *ways_[way - own].branch : *own_; }
    [[nodiscard]] LocalMemory& memory(Way way) noexcept { return *ways_[way > own ? way - own : 0].memory; }
    /// Frees the local memory of all ways. Called when all transfers have ended.
    void drop_memory() noexcept;

  private:
    static constexpr std::size_t most = 8; ///< ways: a node of Tofu-D has six TNIs
    struct Load {
        std::uint32_t transfers = 0; ///< under way
        utofu_vcq_id_t peer = 0;     ///< of the transfer that was begun last
    };
    struct Place {
        std::unique_ptr<vcq::Vcq> branch;
        std::unique_ptr<LocalMemory> memory;
        Load load[2]{};
    };
    [[nodiscard]] bool grow() noexcept;

    DomainBase* domain_ = nullptr; ///< null: all transfers stay with the context's own VCQ
    vcq::Vcq* own_ = nullptr;
    std::size_t count_ = 1;
    bool may_grow_ = true;
    Place ways_[most]; ///< the first is the context's own VCQ, `branch` is null there
};

} // namespace tofu
