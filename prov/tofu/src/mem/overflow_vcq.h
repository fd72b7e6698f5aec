// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The VCQs by which peers reach a domain's regions. A VCQ has some 6144 steering tags: when those of the home VCQ
// are used up, the domain opens a further VCQ, an overflow VCQ, and so on as long as the node has any. The RegionTable
// (mem/mr.h) asks for them under the domain's home lock.
//
// An overflow VCQ has the domain's directory memory under the same reserved STag as the home VCQ. By the nonce there a
// peer recognises the domain, and the lock words of wide atomics are the same words through either VCQ. A region in an
// overflow VCQ is found only through the directory, with either kind of keys. An overflow VCQ stays until the domain is
// closed: peers remember its ID, which another process must not get.
#pragma once

#include <cstddef>
#include <memory>

#include <utofu.h>

#include "mem/mr_directory.h"
#include "utofu/vcq.h"

namespace tofu {

class DomainBase;
class RegionTable;

class OverflowVcqs {
  public:
    OverflowVcqs(DomainBase& domain, RegionTable& regions) noexcept : domain_(domain), regions_(regions) {}

    /// `area`: the directory memory, directory::area_bytes of it, that is under directory_stag of the home VCQ.
    void open(std::byte* area) noexcept { area_ = area; }
    /// Closes the overflow VCQs. All regions have been deregistered.
    void close() noexcept;

    /// Registers with the first VCQ, from `number` on, that has a tag left. `number`: 0 for the home VCQ, or the number
    /// of the overflow VCQ. 0 or -FI_E* (-FI_ENOSPC: none has, and there is no further one).
    [[nodiscard]] int reg(const void* address, std::size_t size, bool read_only, unsigned& number,
                          utofu_stadd_t& stadd) noexcept;
    void dereg(unsigned number, utofu_stadd_t stadd) noexcept;

    /// Hands the notices of the overflow VCQs to the region table. True if there were some.
    bool poll() noexcept
    {
        bool some = false;
        for (unsigned i = 0; i < count_; i++)
            some |= vcqs_[i]->vcq.poll() != 0;
        return some;
    }
    /// Writes the handles of the overflow VCQs, at most `most`, and returns how many.
    [[nodiscard]] std::size_t handles(utofu_vcq_hdl_t* to, std::size_t most) const noexcept;

  private:
    struct OverflowVcq {
        OverflowVcqs* owner;
        unsigned number; ///< from 1 on
        vcq::Vcq vcq;
    };
    [[nodiscard]] vcq::Vcq& vcq_of(unsigned number) noexcept;
    [[nodiscard]] int add() noexcept;
    void announce(const OverflowVcq& overflow) noexcept;
    static void on_remote(void* overflow, const vcq::RemoteNotice& notice) noexcept;

    DomainBase& domain_;
    RegionTable& regions_;
    std::byte* area_ = nullptr;
    unsigned count_ = 0;
    unsigned roomy_ = 0; ///< all VCQs with lower numbers are full
    std::unique_ptr<OverflowVcq> vcqs_[directory::max_overflow_vcqs];
};

} // namespace tofu
