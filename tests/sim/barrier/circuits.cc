// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Barrier circuits of several shapes for any number of members, as settings of gates.
#include "circuits.h"

#include <bit>

namespace tofu::sim::test {
namespace {

// Adds a gate whose signal comes from the gate before, and returns its number.
int follow(std::vector<GatePlan>& plan)
{
    const int number = static_cast<int>(plan.size());
    plan.push_back({});
    plan.back().src_lcl = number - 1;
    plan[number - 1].dst_lcl = number;
    return number;
}

// The signal of the last gate ends the round.
void close(std::vector<GatePlan>& plan)
{
    plan.back().dst_lcl = 0;
    plan[0].src_lcl = static_cast<int>(plan.size()) - 1;
}

// Once around to gather, once more to spread: member 0 has start and turn, the others start, gather, spread.
std::vector<GatePlan> plan_ring(int members, int member)
{
    std::vector<GatePlan> plan(1);
    const int next = (member + 1) % members;
    if (member == 0) {
        plan[0].dst_rmt = {1, 1};
        plan.push_back({-1, {members - 1, 1}, 0, {1, 2}});
        plan[0].src_lcl = 1;
        return plan;
    }
    plan[0].dst_lcl = 1;
    plan.push_back({0, {member - 1, member == 1 ? 0 : 1}, -1, {next, 1}});
    plan.push_back({-1, {member - 1, member == 1 ? 1 : 2}, 0, {}});
    if (next != 0)
        plan[2].dst_rmt = {next, 2};
    plan[0].src_lcl = 2;
    return plan;
}

// The 2^k first members exchange in k steps; each of the others gives its part to one of them first and gets the
// result from it last, as in figure 2.17 of the guide.
std::vector<GatePlan> plan_butterfly(int members, int member)
{
    const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(members)));
    const int steps = std::countr_zero(static_cast<unsigned>(core));
    const auto has_guest = [=](int m) { return m + core < members; };
    std::vector<GatePlan> plan(1);
    if (member >= core) {
        const int host = member - core;
        plan[0].dst_rmt = {host, 1};
        plan[0].src_rmt = {host, 1 + steps};
        return plan;
    }
    // Gate number of a member that takes part in step `step` (1 … steps); the last step is the end of gate 0 where no
    // guest waits for the result.
    const auto gate_of = [=](int m, int step) {
        return step == steps && !has_guest(m) ? 0 : (has_guest(m) ? 1 : 0) + step;
    };
    if (has_guest(member))
        plan[follow(plan)].src_rmt = {member + core, 0};
    for (int step = 1; step <= steps; step++) {
        const int peer = member ^ (1 << (step - 1));
        const int from = static_cast<int>(plan.size()) - 1;
        plan[from].dst_rmt = {peer, gate_of(peer, step)};
        const GateAt source = {peer, step == 1 ? (has_guest(peer) ? 1 : 0) : gate_of(peer, step - 1)};
        if (gate_of(member, step) == 0)
            plan[0].src_rmt = source;
        else
            plan[follow(plan)].src_rmt = source;
    }
    if (has_guest(member))
        plan.back().dst_rmt = {member + core, 0};
    close(plan);
    return plan;
}

// Up a binary tree and down again. Gates: start; one for each child on the way up; one on the way down that takes
// the parent's packet; one more for the second child.
std::vector<GatePlan> plan_tree(int members, int member)
{
    const auto children = [=](int m) { return 2 * m + 2 < members ? 2 : 2 * m + 1 < members ? 1 : 0; };
    const auto up_end = [=](int m) { return children(m); }; // its last gate on the way up
    std::vector<GatePlan> plan(1);
    for (int c = 0; c < children(member); c++) {
        const int child = 2 * member + 1 + c;
        plan[follow(plan)].src_rmt = {child, up_end(child)};
    }
    const int last_up = static_cast<int>(plan.size()) - 1;
    int down = 0;
    if (member == 0) {
        down = follow(plan);
    } else {
        const int parent = (member - 1) / 2;
        const int which = (member - 1) % 2;
        plan[last_up].dst_rmt = {parent, 1 + which};
        down = static_cast<int>(plan.size());
        plan.push_back({});
        plan[down].src_rmt = {parent, up_end(parent) + 1 + which};
    }
    for (int c = 0; c < children(member); c++) {
        const int child = 2 * member + 1 + c;
        const int from = c == 0 ? down : follow(plan);
        plan[from].dst_rmt = {child, up_end(child) + 1};
    }
    close(plan);
    return plan;
}

} // namespace

std::vector<GatePlan> plan_circuit(Shape shape, int members, int member)
{
    if (members == 1) { // a signal around
        std::vector<GatePlan> plan(1);
        (void)follow(plan);
        close(plan);
        return plan;
    }
    switch (shape) {
    case Shape::ring: return plan_ring(members, member);
    case Shape::butterfly: return plan_butterfly(members, member);
    case Shape::tree: return plan_tree(members, member);
    }
    return {};
}

std::vector<utofu_vbg_setting> settings_of(const std::vector<GatePlan>& plan, int member,
                                           const std::function<utofu_vbg_id_t(GateAt)>& id_of)
{
    std::vector<utofu_vbg_setting> settings(plan.size());
    const auto id = [&](GateAt at) { return at.member < 0 ? UTOFU_VBG_ID_NULL : id_of(at); };
    const auto local = [&](int gate) { return gate < 0 ? UTOFU_VBG_ID_NULL : id_of({member, gate}); };
    for (size_t i = 0; i < plan.size(); i++) {
        settings[i].vbg_id = id_of({member, static_cast<int>(i)});
        settings[i].src_lcl_vbg_id = local(plan[i].src_lcl);
        settings[i].src_rmt_vbg_id = id(plan[i].src_rmt);
        settings[i].dst_lcl_vbg_id = local(plan[i].dst_lcl);
        settings[i].dst_rmt_vbg_id = id(plan[i].dst_rmt);
        settings[i].dst_path_coords[0] = UTOFU_PATH_COORD_NULL;
    }
    return settings;
}

} // namespace tofu::sim::test
