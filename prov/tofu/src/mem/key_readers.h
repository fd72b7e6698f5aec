// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The domains that cache keys of this domain, and the revocation of those keys. Owned by the region table, under the home
// lock; calls vcq.
//
// A library may give the STADD of a closed region to a new one at once (guide 3.6 promises nothing else). An initiator that
// has cached the closed region's entry would then reach the new region at wrong bytes, and no TNI would refuse it. So an
// initiator enters its domain into the table of readers before it caches the first key of a domain. The owner revokes
// all cached keys before it publishes a region whose STADD a closed region may have had (docs/wire-protocol.md,
// "Revocation of keys").
#pragma once

#include <cstdint>

#include <utofu.h>

#include "utofu/vcq.h"

namespace tofu {

class DomainBase;

class KeyReaders {
  public:
    explicit KeyReaders(DomainBase& domain) noexcept : domain_(domain) {}
    /// Makes all readers look keys of this domain up anew. Returns when the TNIs of all readers have confirmed it; a
    /// reader that cannot be reached is removed.
    void revoke() noexcept;

  private:
    /// The ARMW to one reader.
    struct Revocation : vcq::Waiter {
        enum class State : std::uint8_t { unused, to_post, under_way, ended };
        State state = State::unused;
        bool again = false; ///< its slot has been cleared since the first attempt
        int code = 0;       ///< ended: the uTofu code
        unsigned slot = 0;
        utofu_vcq_id_t reader = 0;
    };
    static constexpr unsigned most_at_once = 64;

    [[nodiscard]] std::uint64_t& word(std::size_t offset) const noexcept;
    [[nodiscard]] Revocation& unused() noexcept;
    bool advance() noexcept;
    void post(Revocation& revocation) noexcept;
    void end(Revocation& revocation) noexcept;
    void enter(utofu_vcq_id_t reader) noexcept;
    static void on_notice(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    DomainBase& domain_;
    Revocation revocations_[most_at_once];
};

} // namespace tofu
