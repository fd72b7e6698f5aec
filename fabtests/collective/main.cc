// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_collective(3) and fi_av_set(3), statement by statement, between processes; any provider (-p). Run by make check
// and by hand.
#include "collective_checks.h"

namespace fabtests {

Party::Party(World& w, bool selective)
    : w_(w), station_(w, {.selective = selective, .counters = FI_WRITE, .events = true})
{
    CHECK(w_, station_.opened());
}

Party::~Party()
{
    for (fid_mc* mc : groups_)
        CHECK(w_, fi_close(&mc->fid) == 0);
}

std::vector<fi_addr_t> Party::all() const
{
    std::vector<fi_addr_t> members;
    for (unsigned r = 0; r < w_.ranks(); r++)
        members.push_back(station_.peer(r));
    return members;
}

fid_av_set* Party::set(const std::vector<fi_addr_t>& members)
{
    fi_av_set_attr attr{};
    attr.count = members.size();
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    fid_av_set* made = nullptr;
    CHECK(w_, fi_av_set(station_.av(), &attr, &made, nullptr) == 0);
    for (const fi_addr_t member : members)
        CHECK(w_, fi_av_set_insert(made, member) == 0);
    return made;
}

fid_mc* Party::join(fid_av_set* set, fi_addr_t parent, void* context)
{
    fi_addr_t address = parent;
    if (parent == FI_ADDR_NOTAVAIL)
        CHECK(w_, fi_av_set_addr(set, &address) == 0);
    fid_mc* mc = nullptr;
    CHECK(w_, fi_join_collective(ep(), address, set, 0, &mc, context) == 0);
    groups_.push_back(mc);
    return mc;
}

bool Party::joined(const fid_mc* mc)
{
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    ssize_t n = -FI_EAGAIN;
    return w_.until([&] { return (n = fi_eq_read(station_.eq(), &event, &entry, sizeof entry, 0)) != -FI_EAGAIN; }) &&
           n == sizeof entry && event == FI_JOIN_COMPLETE && entry.fid == &mc->fid && entry.context == mc->fid.context;
}

fid_mc* Party::join(const std::vector<fi_addr_t>& members)
{
    fid_av_set* const of = set(members);
    fid_mc* const mc = join(of);
    CHECK(w_, joined(mc));
    CHECK(w_, fi_close(&of->fid) == 0);
    return mc;
}

void Party::leave(fid_mc* mc)
{
    CHECK(w_, fi_close(&mc->fid) == 0);
    std::erase(groups_, mc);
}

bool Party::ends(const void* context)
{
    const Entry entry = station_.wait(station_.tx());
    return entry.error.err == 0 && entry.ok.op_context == context && (entry.ok.flags & FI_COLLECTIVE) != 0;
}

namespace {

constexpr Case cases[] = {
    {"sets", check_sets},
    {"query", check_query},
    {"join", check_join, 3},
    {"subgroups", check_subgroups, 3},
    {"pictures", check_pictures, 3},
    {"barrier", check_barrier, 2},
    {"reductions", check_reductions},
    {"sizes", check_sizes},
    {"completions", check_completions},
    {"refusals", check_refusals},
};

} // namespace

const Program program{{.ranks = 5, .caps = FI_MSG | FI_RMA | FI_COLLECTIVE}, cases};

} // namespace fabtests
