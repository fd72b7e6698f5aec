// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A domain over the network inside the process (fake_net.h), for tests of what stands above a VCQ: target VCQ, region
// table, locks that are off. No endpoint makes progress by itself. Used by tests only.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

#include "cq/domain_base.h"
#include "mem/mr.h"
#include "prov/lib/fake_net.h"

namespace fake {

inline constexpr std::uint64_t domain_nonce = 0x222233334444;

inline utofu_onesided_caps caps()
{
    utofu_onesided_caps c{};
    c.max_piggyback_size = 32;
    c.max_putget_size = 1 << 24;
    c.num_reserved_stags = 256;
    return c;
}

inline tofu::FabricBase fabric;

struct Domain final : tofu::DomainBase {
    Domain() : DomainBase(fabric), table(*this), backend(functions(), caps(), 1)
    {
        model_.serialised = true;
        vcqs_.backend = &backend;
        nonce_ = domain_nonce;
        regions_ = &table;
        target_lock_.set_enabled(false);
        shared_lock_.set_enabled(false);
        EXPECT_EQ(target_vcq_.open(backend, 0, false, {}), 0);
        EXPECT_EQ(table.open(), 0);
    }
    ~Domain() { table.close(); }
    bool progress_domain(bool) noexcept override { return false; }
    std::size_t target_vcqs(utofu_vcq_hdl_t*, std::size_t) noexcept override { return 0; }

    tofu::RegionTable table;
    tofu::vcq::Backend backend;
};

} // namespace fake
