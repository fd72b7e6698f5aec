// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See group_model.h.
#include "group_model.h"

#include <algorithm>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

namespace swarm {
namespace {

/// What a member adds in a sum, or sends as the root of a broadcast.
std::uint64_t value_of(unsigned rank, unsigned index, std::size_t element)
{
    return (rank + 1) * 1000003u + index * 131u + element;
}

} // namespace

// --- what is done

Join& GroupModel::new_join(Endpoint& at, std::vector<Endpoint*> members, std::string list, unsigned serial)
{
    auto made = std::make_unique<Join>();
    Join& join = *made;
    join.kind = Operation::group;
    join.number = static_cast<unsigned>(joins.size());
    join.posted = ++time_;
    join.at = &at;
    join.rank = static_cast<unsigned>(std::find(members.begin(), members.end(), &at) - members.begin());
    join.members = std::move(members);
    join.list = std::move(list);
    join.serial = serial;
    joins.push_back(std::move(made));
    return join;
}

Collective& GroupModel::new_call(Join& join)
{
    auto made = std::make_unique<Collective>();
    Collective& call = *made;
    call.kind = Operation::group;
    call.number = static_cast<unsigned>(calls.size());
    call.posted = ++time_;
    call.join = &join;
    call.index = join.calls++;
    call.what = static_cast<Collective::What>(call.index % Collective::count_);
    const std::size_t size = call.what == Collective::barrier ? 0 : call.index % 4 == 2 ? 3000 : 1 + call.index % 9;
    for (std::size_t i = 0; i < size; i++)
        call.in.push_back(value_of(join.rank, call.index, i));
    call.out = call.what == Collective::broadcast ? call.in : std::vector<std::uint64_t>(size, 0);
    calls.push_back(std::move(made));
    return call;
}

/// Another member's part in the same group; null: it has not called.
const Join* GroupModel::of(const Join& join, unsigned rank) const
{
    for (const auto& other : joins)
        if (other->at->shares_address(*join.members[rank]) && other->list == join.list && other->serial == join.serial)
            return other.get();
    return nullptr;
}

/// All members live and are in it.
bool GroupModel::is_whole(const Join& join) const
{
    for (unsigned rank = 0; rank < join.members.size(); rank++)
        if (const Join* const other = of(join, rank); other == nullptr || other->at != join.members[rank] ||
                                                      other->closed || other->at->state != Endpoint::open ||
                                                      (other->done && other->error != 0))
            return false;
    return true;
}

// --- what comes

void GroupModel::on_join(unsigned process, Join* join, int error)
{
    ++time_;
    if (std::none_of(joins.begin(), joins.end(), [&](const auto& each) { return each.get() == join; }))
        contradict("process %u got the event of a join that was not made", process);
    if (join->at->process != process || join->closed || join->done)
        contradict("process %u got the event of join %u at %s, which %s", process, join->number,
                   join->at->name().c_str(),
                   join->closed ? "is closed"
                   : join->done ? "has ended"
                                : "is another's");
    join->done = true;
    join->done_at = time_;
    join->error = error;
    if (error != 0) {
        if (is_whole(*join))
            contradict("join %u at %s, all members joining, ended with %s", join->number, join->at->name().c_str(),
                       fi_strerror(error));
        return;
    }
    for (unsigned rank = 0; rank < join->members.size(); rank++)
        if (of(*join, rank) == nullptr)
            contradict("join %u at %s has ended, and %s has not joined", join->number, join->at->name().c_str(),
                       join->members[rank]->name().c_str());
}

bool GroupModel::owns(const Operation* operation) const
{
    return std::any_of(calls.begin(), calls.end(), [&](const auto& call) { return call.get() == operation; });
}

void GroupModel::on_entry(Collective& call, const Entry& entry)
{
    const Join& join = *call.join;
    const std::string name = "collective " + std::to_string(call.number) + " (" + std::to_string(call.index) +
                             " of join " + std::to_string(join.number) + ") at " + join.at->name();
    if (call.done)
        contradict("%s ended twice", name.c_str());
    call.done = true;
    call.done_at = time_;
    call.error = entry.error;
    if (entry.error != 0) {
        if (is_whole(join))
            contradict("%s ended with %s; all members live", name.c_str(), fi_strerror(entry.error));
        return;
    }
    if ((entry.flags & FI_COLLECTIVE) == 0)
        contradict("%s ended with the flags %llx", name.c_str(), static_cast<unsigned long long>(entry.flags));
    const auto size = static_cast<unsigned>(join.members.size());
    for (unsigned rank = 0; rank < size; rank++)
        if (const Join* const other = of(join, rank); other == nullptr || other->calls <= call.index)
            contradict("%s has ended, and %s has not called it", name.c_str(), join.members[rank]->name().c_str());
    for (std::size_t i = 0; i < call.out.size(); i++) {
        std::uint64_t wanted = 0;
        if (call.what == Collective::broadcast)
            wanted = value_of(call.index % size, call.index, i);
        for (unsigned rank = 0; call.what == Collective::sum && rank < size; rank++)
            wanted += value_of(rank, call.index, i);
        if (call.out[i] != wanted)
            contradict("%s: element %zu is %llu instead of %llu", name.c_str(), i,
                       static_cast<unsigned long long>(call.out[i]), static_cast<unsigned long long>(wanted));
    }
}

// --- what must be

/// The member will take no part any more: its endpoint has ended, it has closed the group, or its join has failed.
bool GroupModel::is_gone(const Join& join, unsigned rank) const
{
    const Join* const other = of(join, rank);
    return join.members[rank]->state != Endpoint::open ||
           (other != nullptr && (other->closed || (other->done && other->error != 0)));
}

/// A lane neighbour is gone, or one that has joined hears of such a member.
bool GroupModel::hears_of_a_loss(const Join& join) const
{
    const auto size = static_cast<unsigned>(join.members.size());
    std::vector<bool> seen(size);
    std::vector<unsigned> heard{join.rank};
    seen[join.rank] = true;
    for (std::size_t i = 0; i < heard.size(); i++)
        for (unsigned step = 1; step < size; step *= 2)
            for (const unsigned other : {(heard[i] + step) % size, (heard[i] + size - step) % size}) {
                if (is_gone(join, other))
                    return true;
                if (!seen[other] && of(join, other) != nullptr)
                    heard.push_back(other);
                seen[other] = true;
            }
    return false;
}

/// All members have called, or one is lost.
bool GroupModel::must_end(const Join& join) const
{
    bool all = true;
    for (unsigned rank = 0; rank < join.members.size(); rank++)
        all &= of(join, rank) != nullptr;
    return all || hears_of_a_loss(join);
}

bool GroupModel::has_ended(const Join& join, unsigned index) const
{
    return std::any_of(calls.begin(), calls.end(),
                       [&](const auto& call) { return call->join == &join && call->index == index && call->done; });
}

/// All members have called it, apart from those that are lost: some of the others wait for these, and find it out. Or
/// it has ended at a lane neighbour that is still a member: without an error all have called it, with one it has said
/// so.
bool GroupModel::must_end(const Collective& call) const
{
    const Join& join = *call.join;
    const auto size = static_cast<unsigned>(join.members.size());
    bool all = true;
    for (unsigned rank = 0; rank < size; rank++) {
        const Join* const other = of(join, rank);
        all &= is_gone(join, rank) || (other != nullptr && other->calls > call.index);
    }
    if (all)
        return true;
    for (unsigned step = 1; step < size; step *= 2)
        for (const unsigned rank : {(join.rank + step) % size, (join.rank + size - step) % size})
            if (const Join* const other = of(join, rank);
                other != nullptr && !is_gone(join, rank) && has_ended(*other, call.index))
                return true;
    return false;
}

std::string GroupModel::missing() const
{
    for (const auto& join : joins)
        if (!join->done && !join->closed && join->at->state == Endpoint::open && must_end(*join))
            return "join " + std::to_string(join->number) + " at " + join->at->name() + " has not ended";
    for (const auto& call : calls) {
        const Join& join = *call->join;
        if (!call->done && !join.closed && join.at->state == Endpoint::open && must_end(*call))
            return "collective " + std::to_string(call->number) + " of join " + std::to_string(join.number) + " at " +
                   join.at->name() + " has not ended";
    }
    return {};
}

} // namespace swarm
