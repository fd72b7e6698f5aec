// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Many endpoints of one process beside a session's own, and the addresses of those of other processes.
#pragma once

#include <csignal>
#include <cstdlib>
#include <vector>

#include <sys/time.h>

#include "av/address.h"
#include "session.h"

namespace tofu::test {

inline Options many_options()
{
    Options options;
    options.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE;
    options.threading = FI_THREAD_DOMAIN; // more endpoints than a node has CQs
    return options;
}

inline EndpointAddress address_of(fid_ep* ep)
{
    EndpointAddress address{};
    std::size_t length = sizeof address;
    EXPECT_EQ(fi_getname(&ep->fid, &address, &length), 0);
    return address;
}

inline std::uint64_t own_home(const Session& s)
{
    return address_of(s.ep).target_vcq;
}

/// What rank `r` said when the sessions were opened.
inline EndpointAddress address_of_rank(const Session& s, unsigned r)
{
    std::uint64_t words[4];
    for (unsigned i = 0; i < 4; i++)
        words[i] = s.rank.get(r * 4 + i);
    EndpointAddress address{};
    std::memcpy(&address, words, sizeof address);
    return address;
}

/// `count` endpoints in the session's domain, with its queue and its addresses.
class ManyEndpoints {
  public:
    ManyEndpoints(Session& session, unsigned count) : session(session)
    {
        for (unsigned i = 0; i < count; i++) {
            fid_ep* ep = nullptr;
            Session::check(fi_endpoint(session.domain, session.info, &ep, nullptr), "fi_endpoint");
            Session::check(fi_ep_bind(ep, &session.av->fid, 0), "bind av");
            Session::check(fi_ep_bind(ep, &session.cq->fid, FI_TRANSMIT | FI_RECV), "bind cq");
            Session::check(fi_enable(ep), "fi_enable");
            endpoints.push_back(ep);
        }
    }
    ~ManyEndpoints()
    {
        for (fid_ep* ep : endpoints)
            EXPECT_EQ(fi_close(&ep->fid), 0);
    }
    /// Tells insert_many() of another process. Collective; words 800 ... of the board.
    void publish()
    {
        const EndpointAddress first = address_of(endpoints.front());
        session.rank.set(800 + session.rank.number * 3, first.target_vcq);
        session.rank.set(801 + session.rank.number * 3, first.nonce);
        session.rank.set(802 + session.rank.number * 3, first.index);
        session.barrier();
    }

    Session& session;
    std::vector<fid_ep*> endpoints;
};

/// All endpoints of ranks 1 ..., which have `each`. Collective.
inline std::vector<fi_addr_t> insert_many(Session& s, unsigned each)
{
    s.barrier();
    std::vector<fi_addr_t> all;
    for (unsigned r = 1; r < s.rank.size; r++)
        for (unsigned i = 0; i < each; i++) {
            EndpointAddress address = address_of_rank(s, r);
            address.target_vcq = s.rank.get(800 + r * 3);
            address.nonce = s.rank.get(801 + r * 3) + (std::uint64_t{i} << domain_nonce_bits);
            address.index = static_cast<std::uint16_t>(s.rank.get(802 + r * 3) + i);
            fi_addr_t at = 0;
            EXPECT_EQ(fi_av_insert(s.av, &address, 1, &at, 0, nullptr), 1);
            all.push_back(at);
        }
    return all;
}

/// This process ends without a last word, after so many microseconds, wherever it is by then.
inline void die_after(unsigned microseconds)
{
    std::signal(SIGALRM, SIG_DFL);
    const itimerval timer{{0, 0}, {microseconds / 1000000, microseconds % 1000000 + 1}};
    setitimer(ITIMER_REAL, &timer, nullptr);
}

/// Ends this process when all but `dead` have come here; until then what they posted makes progress. In place of the
/// barrier at the end of a session. Words 1010 ... of the board.
[[noreturn]] inline void leave_without(Session& s, unsigned dead)
{
    const sim::test::Rank& rank = s.rank;
    rank.set(1010 + rank.number, 1);
    EXPECT_TRUE(sim::test::wait_until([&] {
        fi_cq_read(s.cq, nullptr, 0);
        for (unsigned r = 0; r < rank.size; r++)
            if (r != dead && rank.get(1010 + r) != 1)
                return false;
        return true;
    }));
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

} // namespace tofu::test
