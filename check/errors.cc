// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Access to memory that is not registered, not registered yet, or deregistered: whether it is reported, and by which
// code. See checks.h.
#include <csignal>
#include <string>
#include <utility>

#include <unistd.h>

#include "checks.h"

namespace tofu::check {
namespace {

constexpr unsigned unused_stag = 5;

utofu_stadd_t stadd_of(const Link& link, unsigned stag)
{
    utofu_stadd_t stadd = 0;
    must(link.u.query_stadd(link.peer, stag, &stadd), "utofu_query_stadd");
    return stadd;
}

/// Does the VCQ still work? Ends the check where it does not.
void go_on(Link& link)
{
    link.put_word(7, 64, local_mrq, 9);
    if (const auto notice = link.vcq.must_mrq(); notice.edata != 9)
        throw Stop{fails("another notice follows the error, EDATA %lu", notice.edata)};
}

Finding judge(int code)
{
    const std::string name = code_name(code);
    if (code == UTOFU_SUCCESS)
        return fails("success");
    if (code <= UTOFU_ERR_MRQ_OTHER && code >= UTOFU_ERR_MRQ_RMT_LENGTH)
        return code == UTOFU_ERR_MRQ_RMT_STADD || code == UTOFU_ERR_MRQ_PEER
                   ? holds("%s", name.c_str())
                   : weaker("%s, where ERR_MRQ_RMT_STADD or ERR_MRQ_PEER was expected", name.c_str());
    return weaker("%s, not by the MRQ", name.c_str());
}

Finding never_ends()
{
    return fails("no notice within %g seconds", answer_time());
}

template <Access kind>
Finding unregistered(Side& side)
{
    return by_first(side, [&](Link& link) -> Finding {
        const int code = link.access(kind, link.peer, stadd_of(link, unused_stag));
        Finding finding = code == UTOFU_ERR_NOT_COMPLETED ? never_ends() : judge(code);
        if (finding.verdict != Verdict::fails)
            go_on(link);
        return finding;
    });
}

Finding own_memory(Side& side)
{
    return by_first(side, [&](Link& link) -> Finding {
        const Memory gone(page);
        const utofu_stadd_t stadd = link.vcq.reg(gone.at(), 4096);
        link.vcq.dereg(stadd);
        const int code = link.vcq.end_of(link.vcq.try_post([&] {
            return side.u.put(link.vcq.handle(), link.peer, stadd, link.peer_stadd, 64, 3, local_mrq, nullptr);
        }));
        if (code == UTOFU_SUCCESS)
            return fails("a Put from deregistered memory succeeds");
        if (code == UTOFU_ERR_NOT_COMPLETED)
            return never_ends();
        go_on(link);
        return holds("%s", code_name(code).c_str());
    });
}

Finding not_yet(Side& side)
{
    Link link(side, page);
    const auto try_it = [&] { return link.access(Access::get, link.peer, stadd_of(link, unused_stag)); };
    int early = UTOFU_SUCCESS;
    if (side.rank() == 0)
        early = try_it();
    link.together();
    utofu_stadd_t stadd = 0;
    if (side.rank() == 1) {
        link.memory.store(4096, 77);
        must(side.u.reg_mem_with_stag(link.vcq.handle(), link.memory.at(4096), 256, unused_stag, 0, &stadd),
             "utofu_reg_mem_with_stag");
    }
    link.together();
    int late = UTOFU_SUCCESS;
    if (side.rank() == 0)
        late = try_it();
    link.together();
    if (side.rank() != 0)
        return {};
    const std::string seen =
        text("before registration: %s; afterwards: %s", code_name(early).c_str(), code_name(late).c_str());
    const bool good =
        early != UTOFU_SUCCESS && early != UTOFU_ERR_NOT_COMPLETED && late == UTOFU_SUCCESS && link.memory.load() == 77;
    return good ? holds("%s", seen.c_str()) : fails("%s", seen.c_str());
}

Finding unsignaled(Side& side)
{
    return by_first(side, [&](Link& link) -> Finding {
        if (link.try_post(Access::put, link.peer, stadd_of(link, unused_stag), 0, 200) != UTOFU_SUCCESS)
            return holds("fails at the call");
        try {
            const Told told = link.vcq.next_mrq(answer_time());
            return told.code != UTOFU_SUCCESS && told.notice.edata == 200 && told.notice.vcq_id == link.peer
                       ? holds("%s, with its EDATA and its VCQ ID", code_name(told.code).c_str())
                       : fails("%s with EDATA %lu and VCQ ID %#lx", code_name(told.code).c_str(), told.notice.edata,
                               told.notice.vcq_id);
        } catch (const Silence&) {
            return fails("no notice within %g seconds", answer_time());
        }
    });
}

Finding identified(Side& side)
{
    return by_first(side, [&](Link& link) -> Finding {
        const utofu_stadd_t wrong = stadd_of(link, unused_stag);
        constexpr unsigned n = 60;
        for (unsigned i = 1; i <= n; i++)
            (void)link.try_post(i % 2 == 0 ? Access::put : Access::armw, link.peer,
                                i % 3 == 0 ? wrong : link.peer_stadd + 64, local_mrq, i);
        bool seen[n + 1] = {};
        for (unsigned i = 1; i <= n; i++) {
            const Told told = link.vcq.next_mrq(answer_time());
            const std::uint64_t edata = told.notice.edata;
            if (edata == 0 || edata > n || seen[edata] || (told.code != UTOFU_SUCCESS) != (edata % 3 == 0))
                return fails("notice %u: EDATA %lu, %s", i, edata, code_name(told.code).c_str());
            seen[edata] = true;
        }
        return holds("%u posts; every third fails and is identified by its EDATA", n);
    });
}

Finding freed(Side& side)
{
    Link link(side, page);
    link.together();
    if (side.rank() == 1)
        must(link.vcq.free(), "utofu_free_vcq with a registration");
    link.together();
    Finding finding;
    if (side.rank() == 0) {
        std::string seen;
        constexpr std::pair<Access, const char*> kinds[] = {
            {Access::get, "Get"}, {Access::put, ", Put"}, {Access::armw, ", ARMW"}};
        for (const auto& [kind, name] : kinds) {
            const int code = link.access(kind, link.peer, link.peer_stadd);
            const bool silent = code == UTOFU_ERR_NOT_COMPLETED;
            seen += text("%s: %s", name, silent ? "nothing" : code_name(code).c_str());
            if (code == UTOFU_SUCCESS || silent)
                finding.verdict = Verdict::fails;
            if (silent)
                break;
        }
        finding = finding.verdict == Verdict::fails ? fails("%s", seen.c_str()) : holds("%s", seen.c_str());
    }
    link.together();
    return finding;
}

Finding killed(Side& side)
{
    Link link(side, page);
    if (side.rank() == 1) {
        link.together();
        side.meeting.leave_finding({});
        std::raise(SIGKILL);
    }
    link.together();
    // Until its system has noticed, its memory may still be there.
    int code = UTOFU_SUCCESS;
    unsigned before = 0;
    try {
        for (Patience patience("an error", 2 * answer_time()); code == UTOFU_SUCCESS; patience.next(), before++)
            code = link.access(Access::get, link.peer, link.peer_stadd);
    } catch (const Silence& silence) {
        return fails("%s of a Get from a killed process did not arrive", silence.what.c_str());
    }
    if (code == UTOFU_ERR_NOT_COMPLETED)
        return never_ends();
    Finding finding = judge(code);
    finding.seen += text(" after %u that still reached its memory", before - 1);
    return finding;
}

constexpr Check list[] = {
    {"error-own-memory", "a Put from unregistered memory fails", "utofu/vcq", 2, own_memory},
    {"error-put", "a Put to an unregistered STag ends with an error", "rma, ring (life), endpoint's end", 2,
     unregistered<Access::put>},
    {"error-get", "a Get from an unregistered STag ends with an error", "msg/tx_ring, msg/rendezvous", 2,
     unregistered<Access::get>},
    {"error-armw", "an ARMW to an unregistered STag ends with an error", "atomic, msg/tx_ring, vcq fences", 2,
     unregistered<Access::armw>},
    {"error-not-yet", "access to a reserved STag can be retried until the STag is registered", "msg/tx_ring", 2,
     not_yet},
    {"error-unsignaled", "a failed post without a completion flag is reported", "utofu/vcq (orphans)", 2, unsignaled},
    {"error-identified", "a failure carries its EDATA, and other posts continue", "utofu/vcq (window)", 2, identified},
    {"error-freed", "access to a freed VCQ ends with an error", "msg/tx_ring, msg/rendezvous", 2, freed},
    {"error-killed", "access to a killed process ends with an error", "msg/tx_ring, message", 2, killed},
};

} // namespace

std::span<const Check> error_checks()
{
    return list;
}

} // namespace tofu::check
