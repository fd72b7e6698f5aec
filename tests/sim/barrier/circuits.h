// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Barrier circuits of several shapes for any number of members, as settings of gates.
#pragma once

#include <utofu.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace tofu::sim::test {

enum class Shape { ring, butterfly, tree };
inline constexpr Shape all_shapes[] = {Shape::ring, Shape::butterfly, Shape::tree};

// The other end of a packet: gate number `gate` of member `member`; member -1: none.
struct GateAt {
    int member = -1;
    int gate = -1;
};

// Gate 0 is the start/end gate; signals name a gate of the same member, -1: none.
struct GatePlan {
    int src_lcl = -1;
    GateAt src_rmt;
    int dst_lcl = -1;
    GateAt dst_rmt;
};

// The gates of one member of a circuit with `members` members.
[[nodiscard]] std::vector<GatePlan> plan_circuit(Shape shape, int members, int member);

// The settings for a plan; `id_of` gives the VBG ID of a gate of any member.
[[nodiscard]] std::vector<utofu_vbg_setting> settings_of(const std::vector<GatePlan>& plan, int member,
                                                         const std::function<utofu_vbg_id_t(GateAt)>& id_of);

} // namespace tofu::sim::test
