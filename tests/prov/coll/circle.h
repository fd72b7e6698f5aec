// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A session with an event queue, the sets and groups of its endpoint, and the ends of their operations.
#pragma once

#include <map>
#include <vector>

#include <rdma/fi_collective.h>

#include "av/address.h"
#include "prov/coll/model.h"
#include "prov/lib/session.h"

namespace tofu::test {

using sim::test::wait_until;

inline Options circle_options()
{
    Options options;
    options.caps = FI_COLLECTIVE | FI_MSG;
    options.enable = false;
    options.leaves_together = false;
    return options;
}

class Circle {
  public:
    explicit Circle(const Rank& rank, const Options& options = circle_options()) : session(rank, options)
    {
        fi_eq_attr attr{};
        attr.flags = FI_WRITE;
        Session::check(fi_eq_open(session.fabric, &attr, &eq, nullptr), "fi_eq_open");
        Session::check(fi_ep_bind(session.ep, &eq->fid, 0), "bind eq");
        Session::check(fi_enable(session.ep), "fi_enable");
        session.exchange_addresses();
    }
    ~Circle()
    {
        for (fid_mc* mc : groups)
            EXPECT_EQ(fi_close(&mc->fid), 0);
        close_endpoint();
        EXPECT_EQ(fi_close(&eq->fid), 0);
        // Memory that a peer may still read is not freed.
        session.barrier();
    }

    void close_endpoint()
    {
        if (session.ep != nullptr)
            EXPECT_EQ(fi_close(&session.ep->fid), 0);
        session.ep = nullptr;
    }
    [[nodiscard]] EndpointAddress address_of(fi_addr_t peer) const
    {
        EndpointAddress address{};
        std::size_t length = sizeof address;
        EXPECT_EQ(fi_av_lookup(session.av, peer, &address, &length), 0);
        return address;
    }
    void enable() const { Session::check(fi_enable(session.ep), "fi_enable"); }
    /// Replaces the endpoint of one rank by another, and its address at all of them. Collective.
    void replace(unsigned replaced, bool enabled = true)
    {
        if (session.rank.number == replaced) {
            close_endpoint();
            Session::check(fi_endpoint(session.domain, session.info, &session.ep, nullptr), "fi_endpoint");
            Session::check(fi_ep_bind(session.ep, &session.av->fid, 0), "bind av");
            Session::check(fi_ep_bind(session.ep, &session.cq->fid, FI_TRANSMIT | FI_RECV), "bind cq");
            Session::check(fi_ep_bind(session.ep, &eq->fid, 0), "bind eq");
            if (enabled)
                enable();
        }
        fi_addr_t place = replaced;
        EXPECT_EQ(fi_av_remove(session.av, &place, 1, 0), 0);
        session.exchange_addresses({replaced});
    }
    fid_av_set* set(const std::vector<fi_addr_t>& members) const
    {
        fi_av_set_attr attr{};
        attr.count = members.size();
        attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
        fid_av_set* made = nullptr;
        Session::check(fi_av_set(session.av, &attr, &made, nullptr), "fi_av_set");
        for (const fi_addr_t member : members)
            EXPECT_EQ(fi_av_set_insert(made, member), 0);
        return made;
    }
    /// Begins to join; the group is closed with this.
    fid_mc* begin_join(const std::vector<fi_addr_t>& members, fi_addr_t parent = FI_ADDR_NOTAVAIL,
                       std::uint64_t flags = 0)
    {
        fid_av_set* const chosen = set(members);
        fi_addr_t address = parent;
        if (parent == FI_ADDR_NOTAVAIL)
            EXPECT_EQ(fi_av_set_addr(chosen, &address), 0);
        fid_mc* mc = nullptr;
        Session::check(fi_join_collective(session.ep, address, chosen, flags, &mc, &groups), "fi_join_collective");
        EXPECT_EQ(fi_close(&chosen->fid), 0);
        groups.push_back(mc);
        return mc;
    }
    /// The end of a join: 0, or the error. Reading the event queue makes the progress.
    int end_join(fid_mc* mc)
    {
        std::uint32_t event = 0;
        fi_eq_entry entry{};
        ssize_t ret = 0;
        const bool came = wait_until([&] {
            ret = fi_eq_read(eq, &event, &entry, sizeof(entry), 0);
            return ret != -FI_EAGAIN;
        });
        EXPECT_TRUE(came) << "the join does not end";
        if (ret == -FI_EAVAIL) {
            fi_eq_err_entry error{};
            EXPECT_EQ(fi_eq_readerr(eq, &error, 0), static_cast<ssize_t>(sizeof(error)));
            EXPECT_EQ(error.fid, &mc->fid);
            return error.err;
        }
        EXPECT_EQ(ret, static_cast<ssize_t>(sizeof(entry)));
        EXPECT_EQ(event, static_cast<std::uint32_t>(FI_JOIN_COMPLETE));
        EXPECT_EQ(entry.fid, &mc->fid);
        EXPECT_EQ(entry.context, &groups);
        return 0;
    }
    fid_mc* join(const std::vector<fi_addr_t>& members, fi_addr_t parent = FI_ADDR_NOTAVAIL)
    {
        fid_mc* const mc = begin_join(members, parent);
        EXPECT_EQ(end_join(mc), 0);
        return mc;
    }
    void leave(fid_mc* mc)
    {
        EXPECT_EQ(fi_close(&mc->fid), 0);
        std::erase(groups, mc);
    }
    std::vector<fi_addr_t> all() const
    {
        std::vector<fi_addr_t> members;
        for (unsigned r = 0; r < session.rank.size; r++)
            members.push_back(r);
        return members;
    }
    ssize_t call(const Case& c, fid_mc* mc, const void* in, void* out, void* context)
    {
        const fi_addr_t group = fi_mc_addr(mc);
        fid_ep* const ep = session.ep;
        switch (c.coll) {
        case FI_BARRIER: return fi_barrier(ep, group, context);
        case FI_BROADCAST: return fi_broadcast(ep, out, c.count, nullptr, group, c.root, c.type, 0, context);
        case FI_ALLTOALL: return fi_alltoall(ep, in, c.count, nullptr, out, nullptr, group, c.type, 0, context);
        case FI_ALLREDUCE: return fi_allreduce(ep, in, c.count, nullptr, out, nullptr, group, c.type, c.op, 0, context);
        case FI_ALLGATHER: return fi_allgather(ep, in, c.count, nullptr, out, nullptr, group, c.type, 0, context);
        case FI_REDUCE_SCATTER:
            return fi_reduce_scatter(ep, in, c.count, nullptr, out, nullptr, group, c.type, c.op, 0, context);
        case FI_REDUCE:
            return fi_reduce(ep, in, c.count, nullptr, out, nullptr, group, c.root, c.type, c.op, 0, context);
        case FI_SCATTER: return fi_scatter(ep, in, c.count, nullptr, out, nullptr, group, c.root, c.type, 0, context);
        case FI_GATHER: return fi_gather(ep, in, c.count, nullptr, out, nullptr, group, c.root, c.type, 0, context);
        }
        return -FI_EINVAL;
    }
    /// One operation, to its end.
    void barrier(fid_mc* mc)
    {
        ASSERT_EQ(call({}, mc, nullptr, nullptr, mc), 0);
        session.expect(mc, FI_COLLECTIVE);
    }
    /// One error entry of this operation; returns its error.
    int error_of(void* context)
    {
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        if (!session.next(entry, &error))
            return 0;
        EXPECT_EQ(error.op_context, context);
        return error.err;
    }

    Session session;
    fid_eq* eq = nullptr;
    std::vector<fid_mc*> groups;
};

} // namespace tofu::test
