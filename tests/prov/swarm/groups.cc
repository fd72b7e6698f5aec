// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Joins, collectives, and the event queue. See world_impl.h.
#include <algorithm>
#include <string>

#include <rdma/fi_collective.h>

#include "group_model.h"
#include "world_impl.h"

namespace swarm {

/// The first endpoint joins those of all processes that have one now.
void World::join(const Command& c)
{
    const unsigned p = c.at / slots;
    if (!is_open(p * slots) || processes_[p].objects->eq == nullptr)
        return;
    Objects& o = *processes_[p].objects;
    platform_->enter(p);
    std::vector<Endpoint*> members;
    std::string list;
    for (const Process& process : processes_)
        if (process.objects != nullptr && process.now[0] != nullptr) {
            members.push_back(process.now[0]);
            list.append(reinterpret_cast<const char*>(addresses_[process.now[0]->number].bytes), sizeof(Address));
        }
    fi_av_set_attr attr{};
    attr.count = members.size();
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    fid_av_set* set = nullptr;
    must(fi_av_set(o.av, &attr, &set, nullptr), "fi_av_set");
    for (Endpoint* const member : members)
        must(fi_av_set_insert(set, address_of(p, *member)), "fi_av_set_insert");
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    must(fi_av_set_addr(set, &address), "fi_av_set_addr");
    const unsigned serial = o.joins[list]++;
    Join& join = model_.groups->new_join(*processes_[p].now[0], std::move(members), list, serial);
    fid_mc* mc = nullptr;
    must(fi_join_collective(processes_[p].handles[0].ep, address, set, 0, &mc, &join), "fi_join_collective");
    must(fi_close(&set->fid), "fi_close of a set");
    o.groups.push_back({&join, mc});
    say("  join %u, serial %u, of %zu", join.number, join.serial, join.members.size());
}

void World::part(const Command& c)
{
    const unsigned p = c.at / slots;
    if (!is_open(p * slots) || processes_[p].objects->groups.size() <= c.count)
        return;
    platform_->enter(p);
    auto& groups = processes_[p].objects->groups;
    const auto at = groups.end() - 1 - c.count;
    at->first->closed = true;
    must(fi_close(&at->second->fid), "fi_close of a group");
    say("  join %u", at->first->number);
    groups.erase(at);
}

void World::close_groups(unsigned p)
{
    for (const auto& [join, mc] : processes_[p].objects->groups) {
        join->closed = true;
        must(fi_close(&mc->fid), "fi_close of a group");
    }
    processes_[p].objects->groups.clear();
}

void World::collect(const Command& c)
{
    const unsigned p = c.at / slots;
    if (!is_open(p * slots) || processes_[p].objects->groups.size() <= c.count)
        return;
    platform_->enter(p);
    const auto& [join, mc] = *(processes_[p].objects->groups.end() - 1 - c.count);
    if (!join->joined())
        return;
    Collective& call = model_.groups->new_call(*join);
    fid_ep* const ep = processes_[p].handles[0].ep;
    const fi_addr_t group = fi_mc_addr(mc);
    const fi_addr_t root = call.index % join->members.size();
    const ssize_t result = try_to(p, [&]() -> ssize_t {
        switch (call.what) {
        case Collective::sum:
            return fi_allreduce(ep, call.in.data(), call.in.size(), nullptr, call.out.data(), nullptr, group, FI_UINT64,
                                FI_SUM, 0, &call);
        case Collective::broadcast:
            return fi_broadcast(ep, call.out.data(), call.out.size(), nullptr, group, root, FI_UINT64, 0, &call);
        case Collective::barrier:
        case Collective::count_: break;
        }
        return fi_barrier(ep, group, &call);
    });
    say("  collective %u of join %u: %s", call.number, join->number, fi_strerror(static_cast<int>(-result)));
    if (result == 0)
        return;
    if (result != -FI_EAGAIN)
        contradict("collective %u of join %u: %s", call.number, join->number, fi_strerror(static_cast<int>(-result)));
    model_.groups->withdraw_last_call();
}

void World::read_events(unsigned p)
{
    Objects& o = *processes_[p].objects;
    if (o.eq == nullptr)
        return;
    fi_eq_entry entry{};
    std::uint32_t event = 0;
    const ssize_t got = fi_eq_read(o.eq, &event, &entry, sizeof entry, 0);
    take_event(p, got, event, entry);
}

/// What a call has read.
void World::take_event(unsigned p, ssize_t got, std::uint32_t event, const fi_eq_entry& entry)
{
    Objects& o = *processes_[p].objects;
    if (got == -FI_EAGAIN)
        return;
    int error = 0;
    fid* of = entry.fid;
    void* context = entry.context;
    if (got == -FI_EAVAIL) {
        fi_eq_err_entry bad{};
        if (fi_eq_readerr(o.eq, &bad, 0) != static_cast<ssize_t>(sizeof bad))
            contradict("fi_eq_readerr has no event after FI_EAVAIL");
        error = bad.err;
        of = bad.fid;
        context = bad.context;
    } else if (got != static_cast<ssize_t>(sizeof entry) || event != FI_JOIN_COMPLETE) {
        contradict("fi_eq_read: %zd, event %u", got, event);
    }
    const auto found =
        std::find_if(o.groups.begin(), o.groups.end(), [&](const auto& group) { return group.first == context; });
    if (found == o.groups.end() || of != &found->second->fid)
        contradict("process %u got an event of no open group", p);
    say("  process %u: join %u ends, %s", p, found->first->number, fi_strerror(error));
    model_.groups->on_join(p, found->first, error);
}

} // namespace swarm
