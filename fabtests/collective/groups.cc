// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Members: fi_av_set(3), fi_join_collective, fi_mc_addr, and what fi_query_collective tells.
#include "collective_checks.h"

#include <algorithm>

#include <rdma/fi_cm.h>

namespace fabtests {
namespace {

/// The order of a set as a group shows it: what fi_allgather brings of the members' ranks.
std::vector<std::uint32_t> order_of(World& w, Party& p, fid_av_set* set)
{
    fid_mc* const mc = p.join(set);
    CHECK(w, p.joined(mc));
    std::uint32_t mine = w.rank(), ranks[max_ranks];
    std::fill_n(ranks, max_ranks, ~0u);
    CHECK(w, p.done([&] {
        return fi_allgather(p.ep(), &mine, 1, nullptr, ranks, nullptr, fi_mc_addr(mc), FI_UINT32, 0, nullptr);
    }));
    p.leave(mc);
    return {ranks, std::find(ranks, ranks + max_ranks, ~0u)};
}

} // namespace

/// Sets that this provider refuses, or members of them.
void check_refused_sets(World& w, Party& p)
{
    const auto n = static_cast<std::uint32_t>(w.ranks());
    fid_av_set* set = nullptr;
    fi_av_set_attr attr{};
    attr.count = 1;
    attr.end_addr = n - 1;
    attr.stride = 1; // "must be less than or equal to the specified count value"
    CHECK(w, fi_av_set(p.station().av(), &attr, &set, nullptr) == (n > 1 ? -FI_EINVAL : 0));
    if (n == 1)
        CHECK(w, fi_close(&set->fid) == 0);
    attr.count = n;
    attr.start_addr = FI_ADDR_NOTAVAIL; // both or none
    CHECK(w, fi_av_set(p.station().av(), &attr, &set, nullptr) == -FI_EINVAL);
    attr = {};
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    std::uint8_t key = 1;
    attr.comm_key = &key;
    attr.comm_key_size = 1; // "If supported by the fabric"
    CHECK(w, fi_av_set(p.station().av(), &attr, &set, nullptr) == -FI_EOPNOTSUPP);
    attr.comm_key_size = 0;
    attr.flags = std::uint64_t{1} << 62;
    CHECK(w, fi_av_set(p.station().av(), &attr, &set, nullptr) == -FI_EBADFLAGS);
    // The flags of single collectives narrow what a set must be good for.
    attr.flags = FI_BARRIER_SET | FI_ALLREDUCE_SET;
    CHECK(w, fi_av_set(p.station().av(), &attr, &set, nullptr) == 0);
    CHECK(w, fi_av_set_remove(set, 0) < 0);                                  // not a member
    CHECK(w, fi_av_set_insert(set, FI_ADDR_NOTAVAIL) < 0);                   // the address of no endpoint
    CHECK(w, fi_av_set_insert(set, 0) == 0 && fi_av_set_insert(set, 0) < 0); // twice
    CHECK(w, fi_close(&p.station().av()->fid) == -FI_EBUSY);
    CHECK(w, fi_close(&set->fid) == 0);
}

/// fi_av_set(3): "an ordered subset of addresses of an address vector"
void check_sets(World& w)
{
    Party p(w);
    const auto n = static_cast<std::uint32_t>(w.ranks());
    std::vector<std::uint32_t> ranks(n);
    for (std::uint32_t i = 0; i < n; ++i)
        ranks[i] = i;
    fi_av_set_attr attr{};
    fid_av_set* set = nullptr;
    // "The starting and ending addresses, inclusive"; "all addresses from start_addr + stride x i"
    attr.count = n;
    attr.start_addr = 0;
    attr.end_addr = n - 1;
    attr.stride = 1;
    CHECK(w, fi_av_set(p.station().av(), &attr, &set, &attr) == 0);
    CHECK(w, set->fid.fclass == FI_CLASS_AV_SET && set->fid.context == &attr);
    CHECK(w, order_of(w, p, set) == ranks);
    CHECK(w, fi_close(&set->fid) == 0);
    // FI_UNIVERSE: "all addresses stored in the corresponding AV"
    attr = {};
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    attr.flags = FI_UNIVERSE;
    CHECK(w, fi_av_set(p.station().av(), &attr, &set, nullptr) == 0);
    CHECK(w, order_of(w, p, set) == ranks);
    // Intersection and difference leave the order, union and insertion go to the end.
    std::vector<fi_addr_t> every_other, backwards;
    for (std::uint32_t i = 0; i < n; i += 2)
        every_other.push_back(p.station().peer(i));
    for (std::uint32_t i = n; i-- > 0;)
        backwards.push_back(p.station().peer(i));
    fid_av_set* const even = p.set(every_other);
    fid_av_set* const reverse = p.set(backwards);
    CHECK(w, order_of(w, p, reverse) == std::vector<std::uint32_t>(ranks.rbegin(), ranks.rend()));
    CHECK(w, fi_av_set_diff(set, even) == 0);     // the odd ones
    CHECK(w, fi_av_set_union(set, reverse) == 0); // and the even ones, backwards
    std::vector<std::uint32_t> expected;
    for (std::uint32_t i = 1; i < n; i += 2)
        expected.push_back(i);
    for (std::uint32_t i = n; i-- > 0;)
        if (i % 2 == 0)
            expected.push_back(i);
    CHECK(w, order_of(w, p, set) == expected);
    CHECK(w, fi_av_set_remove(set, p.station().peer(0)) == 0 && fi_av_set_insert(set, p.station().peer(0)) == 0);
    CHECK(w, order_of(w, p, set) == expected); // it was the last one
    CHECK(w, fi_av_set_intersect(set, reverse) == 0);
    CHECK(w, order_of(w, p, set) == expected);
    CHECK(w, fi_av_set_intersect(set, even) == 0);
    expected.erase(std::remove_if(expected.begin(), expected.end(), [](std::uint32_t r) { return r % 2 != 0; }),
                   expected.end());
    if (w.rank() % 2 == 0)
        CHECK(w, order_of(w, p, set) == expected);
    w.barrier();
    for (fid_av_set* one : {set, even, reverse})
        CHECK(w, fi_close(&one->fid) == 0);
    if (w.ours())
        check_refused_sets(w, p);
}

/// "All participating peers must call fi_join_collective before any individual peer will report that the join has
/// completed." "Applications cannot issue collective transfers until receiving notification"
void check_join(World& w)
{
    Party p(w);
    fid_av_set* const set = p.set(p.all());
    int context = 0;
    auto& early = w.shared().word[0];
    w.barrier();
    if (w.rank() == 0)
        early = 0;
    w.barrier();
    if (w.rank() != 1) {
        fid_mc* const mc = p.join(set, FI_ADDR_NOTAVAIL, &context);
        CHECK(w, mc->fid.fclass == FI_CLASS_MC && mc->fid.context == &context);
        for (int i = 0; i < 2000; ++i) {
            std::uint32_t event = 0;
            fi_eq_entry entry{};
            early += fi_eq_read(p.station().eq(), &event, &entry, sizeof entry, 0) != -FI_EAGAIN;
            w.progress();
        }
        if (w.ours())
            CHECK(w, fi_barrier(p.ep(), fi_mc_addr(mc), nullptr) == -FI_EOPBADSTATE);
        w.barrier();
        CHECK(w, p.joined(mc));
        CHECK(w, p.done([&] { return fi_barrier(p.ep(), fi_mc_addr(mc), &context); }, &context));
    } else {
        w.barrier(); // late
        fid_mc* const mc = p.join(set);
        CHECK(w, p.joined(mc));
        CHECK(w, p.done([&] { return fi_barrier(p.ep(), fi_mc_addr(mc), &context); }, &context));
    }
    CHECK(w, early == 0);
    // The set is the caller's again; the group has its members.
    CHECK(w, fi_close(&set->fid) == 0);
    // "Applications must call fi_close on the collective group to disconnect the endpoint from the group."
    fid_mc* const again = p.join(p.all());
    if (w.ours())
        CHECK(w, fi_close(&p.ep()->fid) == -FI_EBUSY);
    CHECK(w, p.done([&] { return fi_barrier(p.ep(), fi_mc_addr(again), nullptr); }));
    const fi_addr_t address = fi_mc_addr(again);
    p.leave(again);
    if (w.ours())
        CHECK(w, fi_barrier(p.ep(), address, nullptr) == -FI_EINVAL);
    // "An endpoint must be bound to an event queue prior to calling fi_join_collective."
    Station plain(w);
    fid_av_set* other = nullptr;
    fi_av_set_attr attr{};
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    attr.flags = FI_UNIVERSE;
    CHECK(w, fi_av_set(plain.av(), &attr, &other, nullptr) == 0);
    fi_addr_t all = 0;
    CHECK(w, fi_av_set_addr(other, &all) == 0);
    fid_mc* refused = nullptr;
    CHECK(w, fi_join_collective(plain.ep(), all, other, 0, &refused, nullptr) < 0);
    CHECK(w, fi_close(&other->fid) == 0);
}

/// "The fi_join_collective call will create a new collective subgroup", of "an address associated with an AV set [...]
/// or an existing collective group"
void check_subgroups(World& w)
{
    Party p(w);
    fid_mc* const world = p.join(p.all());
    std::vector<fi_addr_t> half;
    for (unsigned r = w.rank() % 2; r < w.ranks(); r += 2)
        half.push_back(p.station().peer(r));
    fid_av_set* const set = p.set(half);
    fid_mc* const side = p.join(set, fi_mc_addr(world));
    CHECK(w, p.joined(side));
    CHECK(w, fi_mc_addr(side) != fi_mc_addr(world));
    std::uint64_t one = 1, in_side = 0, in_world = 0;
    CHECK(w, p.done([&] {
        return fi_allreduce(p.ep(), &one, 1, nullptr, &in_side, nullptr, fi_mc_addr(side), FI_UINT64, FI_SUM, 0,
                            nullptr);
    }));
    CHECK(w, p.done([&] {
        return fi_allreduce(p.ep(), &one, 1, nullptr, &in_world, nullptr, fi_mc_addr(world), FI_UINT64, FI_SUM, 0,
                            nullptr);
    }));
    CHECK(w, in_side == half.size() && in_world == w.ranks());
    w.barrier();
    if (w.ours()) { // members that are not in the parent, duplicates, and a set without us
        fid_av_set* const all = p.set(p.all());
        fid_mc* refused = nullptr;
        CHECK(w, fi_join_collective(p.ep(), fi_mc_addr(side), all, 0, &refused, nullptr) == -FI_EINVAL);
        CHECK(w, fi_av_set_remove(all, p.station().peer(w.rank())) == 0);
        CHECK(w, fi_join_collective(p.ep(), fi_mc_addr(world), all, 0, &refused, nullptr) == -FI_EINVAL);
        CHECK(w, fi_close(&all->fid) == 0);
    }
    CHECK(w, fi_close(&set->fid) == 0);
}

/// "If a collective operation is supported, the query call will return FI_SUCCESS, along with attributes on the limits"
void check_query(World& w)
{
    constexpr fi_collective_op all[] = {FI_BARRIER,        FI_BROADCAST, FI_ALLTOALL, FI_ALLREDUCE, FI_ALLGATHER,
                                        FI_REDUCE_SCATTER, FI_REDUCE,    FI_SCATTER,  FI_GATHER};
    for (const fi_collective_op coll : all) {
        fi_collective_attr attr{};
        attr.op = coll == FI_BARRIER ? FI_NOOP : FI_SUM;
        attr.datatype = coll == FI_BARRIER ? FI_VOID : FI_INT32;
        const int rc = fi_query_collective(w.domain(), coll, &attr, 0);
        CHECK(w, rc == 0 || !w.ours());
        if (rc != 0)
            continue;
        CHECK(w, attr.max_members >= w.ranks() && attr.mode == 0);
        if (coll != FI_BARRIER) // "The size of the datatype as supported by the provider"
            CHECK(w, attr.datatype_attr.size == 4 && attr.datatype_attr.count >= 1);
    }
    if (!w.ours())
        return;
    fi_collective_attr attr{};
    attr.datatype = FI_DOUBLE;
    for (const fi_op op : {FI_MIN, FI_MAX, FI_SUM, FI_PROD}) {
        attr.op = op;
        CHECK(w, fi_query_collective(w.domain(), FI_ALLREDUCE, &attr, 0) == 0);
        // "FI_SCATTER: requests attribute information on the reduce-scatter collective operation"
        CHECK(w, fi_query_collective(w.domain(), FI_REDUCE, &attr, FI_SCATTER) == 0);
    }
    attr.op = FI_BOR; // fi_atomic(3): of integers
    CHECK(w, fi_query_collective(w.domain(), FI_ALLREDUCE, &attr, 0) == -FI_EOPNOTSUPP);
    attr.op = FI_CSWAP; // fi_atomic(3) has no reduction by it
    CHECK(w, fi_query_collective(w.domain(), FI_REDUCE, &attr, 0) == -FI_EOPNOTSUPP);
    attr.datatype = FI_VOID; // "Any non-void datatype may be broadcast."
    CHECK(w, fi_query_collective(w.domain(), FI_BROADCAST, &attr, 0) == -FI_EOPNOTSUPP);
    CHECK(w, fi_query_collective(w.domain(), static_cast<fi_collective_op>(77), &attr, 0) == -FI_EOPNOTSUPP);
    CHECK(w, fi_query_collective(w.domain(), FI_BARRIER, nullptr, 0) == -FI_EINVAL);
    CHECK(w, fi_query_collective(w.domain(), FI_BARRIER, &attr, FI_MORE) == -FI_EBADFLAGS);
}

} // namespace fabtests
