// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the library has and how much of it: functions, TNIs, capabilities, VCQs. See checks.h.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "checks.h"

namespace tofu::check {
namespace {

constexpr unsigned long thread_safe = UTOFU_VCQ_FLAG_THREAD_SAFE;
constexpr unsigned long exclusive = UTOFU_VCQ_FLAG_EXCLUSIVE;

Finding functions(Side& side)
{
    if (!side.u.missing.empty())
        return fails("not exported:%s", side.u.missing.c_str());
    return holds("all are exported");
}

Finding tnis(Side& side)
{
    const std::set<utofu_tni_id_t> different(side.tnis.begin(), side.tnis.end());
    if (side.tnis.empty() || different.size() != side.tnis.size())
        return fails("%zu TNIs, %zu different ones", side.tnis.size(), different.size());
    if (side.tnis.size() > 16)
        return weaker("%zu TNIs: those above 16 are not used", side.tnis.size());
    return holds("%zu TNIs", side.tnis.size());
}

Finding caps(Side& side)
{
    const utofu_onesided_caps& c = side.caps;
    const std::string seen =
        text("flags %#lx, ops %#lx, components %u, STags %u, line %zu, alignment %zu, descriptor %zu, transfer %zu, "
             "piggyback %zu, edata %zu, MTU %zu, gap %zu",
             c.flags, c.armw_ops, c.num_cmp_ids, c.num_reserved_stags, c.cache_line_size, c.stag_address_alignment,
             c.max_toq_desc_size, c.max_putget_size, c.max_piggyback_size, c.max_edata_size, c.max_mtu, c.max_gap);
    // Bits 0 to 5: CSWAP, SWAP, ADD, XOR, AND, OR. 240 endpoints of a domain have an STag each, the directory up to 16.
    const bool enough = (c.flags & UTOFU_ONESIDED_CAP_FLAG_ARMW) != 0 && (c.armw_ops & 0x3f) == 0x3f &&
                        c.max_piggyback_size >= 32 && c.max_edata_size >= 1 && c.stag_address_alignment <= line &&
                        c.stag_address_alignment != 0 && c.num_reserved_stags >= 2 && c.max_putget_size >= page;
    if (!enough)
        return fails("too little: %s", seen.c_str());
    const bool usual = c.num_reserved_stags >= 256 && c.cache_line_size == line && c.max_piggyback_size == 32 &&
                       c.max_putget_size >= (1u << 24) - 1;
    return usual ? holds("%s", seen.c_str()) : weaker("unusual: %s", seen.c_str());
}

Finding caps_alike(Side& side)
{
    for (const utofu_tni_id_t tni : side.tnis) {
        utofu_onesided_caps* other = nullptr;
        must(side.u.query_onesided_caps(tni, &other), "utofu_query_onesided_caps");
        if (std::memcmp(other, &side.caps, sizeof side.caps) != 0)
            return weaker("TNI %u differs from TNI %u", tni, side.tnis[0]);
    }
    return holds("the same at all %zu TNIs", side.tnis.size());
}

Finding coordinates(Side& side)
{
    const Vcq vcq(side, side.tni());
    std::uint8_t mine[6] = {};
    std::uint8_t of_vcq[6] = {};
    utofu_tni_id_t tni = 0xffff;
    utofu_cq_id_t cq = 0;
    std::uint16_t extra = 0;
    must(side.u.query_my_coords(mine), "utofu_query_my_coords");
    must(side.u.query_vcq_info(vcq.id(), of_vcq, &tni, &cq, &extra), "utofu_query_vcq_info");
    if (std::memcmp(mine, of_vcq, sizeof mine) != 0 || tni != side.tni() || vcq.id() == 0)
        return fails("VCQ ID %#lx names TNI %u at %u,%u,%u,%u,%u,%u; this is TNI %u at %u,%u,%u,%u,%u,%u", vcq.id(),
                     tni, of_vcq[0], of_vcq[1], of_vcq[2], of_vcq[3], of_vcq[4], of_vcq[5], side.tni(), mine[0],
                     mine[1], mine[2], mine[3], mine[4], mine[5]);
    return holds("VCQ ID %#lx, TNI %u, CQ %u, extra value %u", vcq.id(), tni, cq, extra);
}

Finding every_tni(Side& side)
{
    for (const utofu_tni_id_t tni : side.tnis)
        for (const unsigned long flags : {0ul, thread_safe}) {
            utofu_vcq_hdl_t vcq = 0;
            if (const int code = side.u.create_vcq(tni, flags, &vcq); code != UTOFU_SUCCESS)
                return fails("TNI %u, flags %#lx: %s", tni, flags, code_name(code).c_str());
            must(side.u.free_vcq(vcq), "utofu_free_vcq");
        }
    return holds("plain and thread-safe ones on each of %zu", side.tnis.size());
}

/// As many as there are; what refuses the next one.
std::vector<utofu_vcq_hdl_t> create_all(const Side& side, utofu_tni_id_t tni, unsigned long flags, int& refusal)
{
    std::vector<utofu_vcq_hdl_t> made;
    utofu_vcq_hdl_t vcq = 0;
    while (made.size() < 512 && (refusal = side.u.create_vcq(tni, flags, &vcq)) == UTOFU_SUCCESS)
        made.push_back(vcq);
    return made;
}

Finding vcqs_full(Side& side)
{
    int refusal = UTOFU_SUCCESS;
    const auto made = create_all(side, side.tni(), thread_safe, refusal);
    std::set<utofu_vcq_id_t> ids;
    for (const utofu_vcq_hdl_t vcq : made) {
        utofu_vcq_id_t id = 0;
        must(side.u.query_vcq_id(vcq, &id), "utofu_query_vcq_id");
        ids.insert(id);
    }
    for (const utofu_vcq_hdl_t vcq : made)
        must(side.u.free_vcq(vcq), "utofu_free_vcq");
    if (ids.size() != made.size())
        return fails("%zu VCQs have %zu IDs", made.size(), ids.size());
    if (refusal == UTOFU_SUCCESS)
        return weaker("%zu VCQs on one TNI without reaching the limit", made.size());
    if (refusal != UTOFU_ERR_FULL)
        return fails("%zu VCQs on one TNI; the next one fails with %s", made.size(), code_name(refusal).c_str());
    return holds("%zu VCQs on one TNI; the next one fails with ERR_FULL", made.size());
}

Finding exclusive_vcqs(Side& side)
{
    int refusal = UTOFU_SUCCESS;
    const auto made = create_all(side, side.tni(), exclusive, refusal);
    utofu_vcq_hdl_t shared = 0;
    const int code = side.u.create_vcq(side.tni(), thread_safe, &shared);
    if (code == UTOFU_SUCCESS)
        must(side.u.free_vcq(shared), "utofu_free_vcq");
    for (const utofu_vcq_hdl_t vcq : made)
        must(side.u.free_vcq(vcq), "utofu_free_vcq");
    if (made.empty())
        return weaker("none: %s; VCQs are then thread-safe ones", code_name(refusal).c_str());
    return holds("%zu on one TNI, then %s; a shared one beside them: %s", made.size(), code_name(refusal).c_str(),
                 code_name(code).c_str());
}

Finding opened_again(Side& side)
{
    std::set<utofu_vcq_id_t> ids;
    for (int i = 0; i < 200; i++)
        ids.insert(Vcq(side, side.tni()).id());
    return holds("200 times; %zu different IDs", ids.size());
}

struct Place {
    std::uint8_t coords[6] = {};
    utofu_tni_id_t tni = 0;
    utofu_cq_id_t cq = 0;
};
Place place_of(const Side& side, utofu_vcq_id_t id)
{
    Place place;
    std::uint16_t extra = 0;
    must(side.u.query_vcq_info(id, place.coords, &place.tni, &place.cq, &extra), "utofu_query_vcq_info");
    return place;
}

Finding own_cq(Side& side)
{
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;
    const int code = side.u.create_vcq(side.tnis[0], 0, &vcq);
    if (code == UTOFU_SUCCESS)
        must(side.u.query_vcq_id(vcq, &id), "utofu_query_vcq_id");
    const auto theirs = side.meeting.swap({static_cast<std::uint64_t>(code), id});
    side.meeting.together();
    if (code == UTOFU_SUCCESS)
        must(side.u.free_vcq(vcq), "utofu_free_vcq");
    if (side.rank() != 0)
        return {};
    const int refusal = code != UTOFU_SUCCESS ? code : static_cast<int>(theirs.at(0));
    if (refusal != UTOFU_SUCCESS)
        return weaker("a process cannot get a VCQ on a TNI where another one has a VCQ: %s",
                      code_name(refusal).c_str());
    const Place mine = place_of(side, id);
    const Place other = place_of(side, theirs.at(1));
    if (std::memcmp(mine.coords, other.coords, sizeof mine.coords) != 0)
        return not_tried("the processes are on different nodes: run both on one");
    if (mine.cq == other.cq)
        return fails("both have CQ %u of TNI %u: either may read the other's notices", mine.cq, mine.tni);
    return holds("CQ %u and CQ %u of TNI %u", mine.cq, other.cq, mine.tni);
}

Finding two_threads(Side& side)
{
    // Two on one CQ; a library may deal CQs out in turn.
    std::vector<std::unique_ptr<Vcq>> made;
    const Vcq* pair[2] = {};
    for (int i = 0; i < 32 && pair[1] == nullptr; i++) {
        made.push_back(std::make_unique<Vcq>(side, side.tni(), thread_safe));
        for (const auto& before : made)
            if (before != made.back() && place_of(side, before->id()).cq == place_of(side, made.back()->id()).cq) {
                pair[0] = before.get();
                pair[1] = made.back().get();
            }
    }
    if (pair[1] == nullptr)
        return not_tried("32 VCQs of one TNI have a CQ each");
    constexpr unsigned rounds = 2000;
    Memory memory(page);
    std::string wrong[2];
    const auto work = [&](int which) noexcept {
        try {
            Vcq& vcq = const_cast<Vcq&>(*pair[which]);
            const utofu_stadd_t stadd = vcq.reg(memory.at(4096u * static_cast<unsigned>(which)), 4096);
            for (unsigned i = 0; i < rounds; i++) {
                std::uint64_t value = i;
                const std::uint64_t edata = i % 200 + 1;
                vcq.post([&] {
                    return side.u.put_piggyback(vcq.handle(), vcq.id(), &value, stadd, sizeof value, edata, local_mrq,
                                                nullptr);
                });
                const utofu_mrq_notice notice = vcq.must_mrq();
                if (notice.edata != edata || notice.notice_type != UTOFU_MRQ_TYPE_LCL_PUT)
                    throw Stop{fails("a notice of the other VCQ, EDATA %lu instead of %lu", notice.edata, edata)};
            }
            vcq.dereg(stadd);
        } catch (const Stop& stop) {
            wrong[which] = stop.finding.seen;
        } catch (const Silence& silence) {
            wrong[which] = silence.what + " did not arrive";
        }
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    for (const std::string& what : wrong)
        if (!what.empty())
            return fails("%s", what.c_str());
    return holds("%u puts of each of two threads on one CQ", rounds);
}

constexpr Check list[] = {
    {"functions", "the functions of uTofu that the provider calls are exported", "utofu/library", 1, functions},
    {"tnis", "there is a TNI for one-sided communication", "utofu/library", 1, tnis},
    {"caps", "limits and operations are those of Tofu-D, or sufficient", "utofu/library, ring, mem/mr_directory", 1,
     caps},
    {"caps-alike", "all TNIs have the same properties", "none: utofu/library uses the minimum", 1, caps_alike},
    {"vcq-id", "a VCQ ID is not 0 and names node and TNI", "address, utofu/tni_allocator", 1, coordinates},
    {"vcq-each-tni", "each TNI has VCQs, plain and thread-safe", "utofu/tni_allocator", 1, every_tni},
    {"vcq-full", "IDs differ; a TNI without a free VCQ returns ERR_FULL, and the next TNI is tried", "utofu/vcq (open)",
     1, vcqs_full},
    {"vcq-exclusive", "VCQs with a CQ of their own are available", "none: they save the library's lock (utofu/vcq)", 1,
     exclusive_vcqs},
    {"vcq-again", "VCQs that are freed can be created again", "endpoint, mem/mr", 1, opened_again},
    {"vcq-two-processes", "two processes of a node have different CQs on one TNI", "utofu/tni_allocator (guide 4.1.2)",
     2, own_cq},
    {"vcq-threads", "thread-safe VCQs that share a CQ serve two threads", "utofu/vcq (guide 2.5)", 1, two_threads},
};

} // namespace

std::span<const Check> offer_checks()
{
    return list;
}

std::vector<Check> all_checks()
{
    std::vector<Check> all;
    for (const auto part :
         {offer_checks(), memory_checks(), post_checks(), order_checks(), error_checks(), gate_checks()})
        all.insert(all.end(), part.begin(), part.end());
    return all;
}

} // namespace tofu::check
