// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A member of a barrier circuit in a test process: its gates, allocated and connected.
#pragma once

#include "circuits.h"
#include "lib/harness.h"

#include <gtest/gtest.h>

namespace tofu::sim::test {

inline constexpr unsigned max_gates = 16; // of a member, on the board

// One member of a circuit; a process may be several.
struct Member {
    int number = 0;
    std::vector<utofu_vbg_id_t> ids;
    [[nodiscard]] utofu_vbg_id_t start() const { return ids[0]; }
};

inline Member allocate(const Rank& rank, Shape shape, int members, int number, utofu_tni_id_t tni,
                       unsigned long flags = 0)
{
    Member member;
    member.number = number;
    member.ids.resize(plan_circuit(shape, members, number).size());
    EXPECT_LE(member.ids.size(), max_gates);
    EXPECT_EQ(utofu_alloc_vbg(tni, member.ids.size(), flags, member.ids.data()), UTOFU_SUCCESS);
    for (size_t i = 0; i < member.ids.size(); i++)
        rank.set(number * max_gates + i, member.ids[i]);
    return member;
}

inline void connect(const Rank& rank, Shape shape, int members, const Member& member)
{
    auto settings = settings_of(plan_circuit(shape, members, member.number), member.number, [&](GateAt at) {
        return rank.get(static_cast<unsigned>(at.member) * max_gates + static_cast<unsigned>(at.gate));
    });
    EXPECT_EQ(utofu_set_vbg(settings.data(), settings.size()), UTOFU_SUCCESS);
}

template <typename Poll>
int wait_for(Poll poll)
{
    int rc = UTOFU_ERR_NOT_COMPLETED;
    (void)wait_until([&] { return (rc = poll()) != UTOFU_ERR_NOT_COMPLETED; });
    return rc;
}

inline int wait_barrier(utofu_vbg_id_t id)
{
    return wait_for([=] { return utofu_poll_barrier(id, 0); });
}

} // namespace tofu::sim::test
