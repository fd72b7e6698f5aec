// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The ways by which a transmit context's long transfers go: its own VCQ, and branches, further VCQs on TNIs that nobody of
// the node posts from, as long as there are such. Transfers with one peer share a link, and so a way; those with several
// peers have a way each. Used by rma and message under the context's lock; calls vcq and local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "local/local_memory.h"
#include "vcq/vcq.h"

namespace tofu {

class DomainBase;

class Branches {
  public:
    /// Shorter transfers stay with the context's own VCQ: a link has them in 2.6 us.
    static constexpr std::size_t least_length = 16384;
    /// Who carries a transfer out, and with it where its bytes go: a TNI sends and receives at the same time, and only what
    /// we post is told to our VCQ.
    enum class By : std::uint8_t { peer, us };
    /// Of a transfer. 0 and `own`: by the context's own VCQ; 0 of one that is not counted, since it is short or may not leave.
    using Way = std::uint8_t;
    static constexpr Way own = 1;

    Branches() = default;
    Branches(const Branches&) = delete;
    Branches& operator=(const Branches&) = delete;

    /// The context's own VCQ, and its local memory; with a domain long transfers may leave it from now on.
    void begin(vcq::Vcq& own, std::unique_ptr<LocalMemory> memory) noexcept
    {
        own_ = &own;
        ways_[0].memory = std::move(memory);
    }
    void allow(DomainBase& domain) noexcept { domain_ = &domain; }
    /// For a transfer of so many bytes with the peer that has this home VCQ, until give().
    [[nodiscard]] Way take(By by, utofu_vcq_id_t peer, std::size_t length) noexcept;
    void give(By by, Way way) noexcept;
    /// From which it is posted, and the local memory that goes with that.
    [[nodiscard]] vcq::Vcq& vcq(Way way) noexcept { return way > own ? *ways_[way - own].branch : *own_; }
    [[nodiscard]] LocalMemory& memory(Way way) noexcept { return *ways_[way > own ? way - own : 0].memory; }
    /// Behind the end of all transfers.
    void drop_memory() noexcept;

  private:
    static constexpr std::size_t most = 8; ///< ways: a node of Tofu-D has six TNIs
    struct Load {
        std::uint32_t transfers = 0; ///< under way
        utofu_vcq_id_t peer = 0;     ///< of the last one that was begun
    };
    struct Place {
        std::unique_ptr<vcq::Vcq> branch;
        std::unique_ptr<LocalMemory> memory;
        Load load[2]{};
    };
    [[nodiscard]] bool grow() noexcept;

    DomainBase* domain_ = nullptr; ///< null: nothing leaves the context's own VCQ
    vcq::Vcq* own_ = nullptr;
    std::size_t count_ = 1;
    bool may_grow_ = true;
    Place ways_[most]; ///< the first is the context's own VCQ, `branch` is null there
};

} // namespace tofu
