// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registrations: STADDs, reserved STags, bounds, rights, their number, fork. See checks.h.
#include <cstring>
#include <memory>
#include <set>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

namespace tofu::check {
namespace {

std::string outcome(int code)
{
    return code == UTOFU_ERR_NOT_COMPLETED ? "no answer" : code_name(code);
}
bool is_refused(const std::string& what)
{
    return what != "SUCCESS" && what != "no answer";
}

Finding any_address(Side& side)
{
    Link link(side, page);
    std::memset(link.memory.at(), 0x11, page);
    const utofu_stadd_t odd = link.vcq.reg(link.memory.at(1013), 1001);
    const auto theirs = side.meeting.swap({odd});
    if (side.rank() == 0) {
        std::memset(link.memory.at(), 0x22, 64);
        for (const std::size_t from : {0u, 500u, 994u})
            link.vcq.post([&] {
                return side.u.put(link.vcq.handle(), link.peer, link.stadd + 5, theirs.at(0) + from, 7, 1, local_mrq,
                                  nullptr);
            });
        for (int i = 0; i < 3; i++)
            link.vcq.must_mrq();
        link.together();
        return {};
    }
    link.together();
    for (std::size_t i = 1000; i < 2100; i++) {
        const std::size_t in = i - 1013;
        const bool written = in < 7 || (in >= 500 && in < 507) || (in >= 994 && in < 1001);
        if (*link.memory.at(i) != (i >= 1013 && written ? 0x22 : 0x11))
            return fails("byte %zd of a region at an odd address is %#x", static_cast<ssize_t>(in), *link.memory.at(i));
    }
    return holds("bytes 0, 500 and 994 of 1001 at an odd address, and no others");
}

Finding reserved_stags(Side& side)
{
    Link link(side, page);
    const unsigned last = side.caps.num_reserved_stags - 1;
    const unsigned stags[] = {0, 1, last};
    std::vector<std::uint64_t> mine;
    for (std::size_t i = 0; i < 3; i++) {
        utofu_stadd_t stadd = 0;
        must(side.u.reg_mem_with_stag(link.vcq.handle(), link.memory.at(4096 * (i + 1)), 256, stags[i], 0, &stadd),
             "utofu_reg_mem_with_stag");
        mine.push_back(stadd);
    }
    utofu_stadd_t again = 0;
    const int used = side.u.reg_mem_with_stag(link.vcq.handle(), link.memory.at(32768), 256, 1, 0, &again);
    const auto theirs = side.meeting.swap(mine);
    for (std::size_t i = 0; i < 3; i++) {
        utofu_stadd_t asked = 0;
        must(side.u.query_stadd(link.peer, stags[i], &asked), "utofu_query_stadd of a peer's");
        if (asked != theirs.at(i))
            return fails("STag %u of the peer is %#lx, not %#lx as utofu_query_stadd says", stags[i], theirs.at(i),
                         asked);
    }
    if (side.rank() == 0) {
        std::uint64_t value = 0x1234567890abcdef;
        link.vcq.post([&] {
            return side.u.put_piggyback(link.vcq.handle(), link.peer, &value, theirs.at(2) + 8, 8, 1, strong, nullptr);
        });
        link.together();
        return {};
    }
    link.await(3 * 4096 + 8, 0x1234567890abcdef, "a Put to a reserved STag");
    link.together();
    if (used != UTOFU_ERR_USED)
        return weaker("STags 0, 1 and %u are as computed; a second registration of one returns %s", last,
                      code_name(used).c_str());
    return holds("STags 0, 1 and %u are as computed; a second registration of one is ERR_USED", last);
}

Finding registered_twice(Side& side)
{
    Link link(side, page);
    const utofu_stadd_t first = link.vcq.reg(link.memory.at(8192), 4096);
    const utofu_stadd_t second = link.vcq.reg(link.memory.at(8192), 4096);
    link.vcq.dereg(first);
    const auto theirs = side.meeting.swap({second});
    std::string what;
    if (side.rank() == 0)
        what = outcome(link.access(Access::put, link.peer, theirs.at(0)));
    link.together();
    if (side.rank() != 0)
        return {};
    if (what != "SUCCESS")
        return fails("deregistering one of two registrations of the same memory ends both: %s", what.c_str());
    return first == second ? holds("the same STADD twice, valid until both are deregistered")
                           : weaker("two STADDs: %#lx and %#lx", first, second);
}

Finding registered_inside(Side& side)
{
    Link link(side, page);
    const utofu_stadd_t inner = link.vcq.reg(link.memory.at(8192), 4096);
    return inner == link.stadd + 8192 ? holds("the outer one's STADD and the offset")
                                      : weaker("a separate STADD: %#lx in %#lx", inner, link.stadd);
}

Finding many_regions(Side& side)
{
    const Vcq vcq(side, side.tni());
    const auto step = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    constexpr std::size_t most = 8192;
    const Memory memory(most * step);
    std::vector<utofu_stadd_t> made;
    std::set<utofu_stadd_t> different;
    int refusal = UTOFU_SUCCESS;
    while (made.size() < most) {
        utofu_stadd_t stadd = 0;
        if (refusal = side.u.reg_mem(vcq.handle(), memory.at(made.size() * step), 8, 0, &stadd);
            refusal != UTOFU_SUCCESS)
            break;
        made.push_back(stadd);
        different.insert(stadd);
    }
    for (const utofu_stadd_t stadd : made)
        must(side.u.dereg_mem(vcq.handle(), stadd, 0), "utofu_dereg_mem");
    if (different.size() != made.size())
        return fails("%zu regions on separate pages have %zu STADDs", made.size(), different.size());
    if (refusal == UTOFU_SUCCESS)
        return weaker("%zu regions without reaching the limit", made.size());
    if (refusal != UTOFU_ERR_FULL)
        return fails("%zu regions; the next one fails with %s", made.size(), code_name(refusal).c_str());
    return holds("%zu regions of one VCQ; the next one fails with ERR_FULL", made.size());
}

Finding stadd_again(Side& side)
{
    Vcq vcq(side, side.tni());
    const Memory memory(2 * page);
    unsigned same = 0;
    for (int i = 0; i < 100; i++) {
        const utofu_stadd_t first = vcq.reg(memory.at(), 4096);
        vcq.dereg(first);
        const utofu_stadd_t second = vcq.reg(memory.at(page), 4096);
        vcq.dereg(second);
        same += first == second ? 1 : 0;
    }
    return same == 0 ? holds("memory that is registered next has another STADD")
                     : weaker("in %u of 100 cases other memory gets the STADD that was just released", same);
}

Finding largest_key(Side& side)
{
    Vcq vcq(side, side.tni());
    const Memory memory(page);
    const utofu_stadd_t stadd = vcq.reg(memory.at(), 4096);
    // A key is STADD - address; keys with the top bit are the provider's own (docs/architecture.md, "Overflow VCQs").
    const std::uint64_t bias = stadd - reinterpret_cast<std::uintptr_t>(memory.at());
    return bias >> 63 == 0
               ? holds("STADD %#lx of address %p", stadd, static_cast<void*>(memory.at()))
               : weaker("STADD %#lx of address %p: keys have to be looked up", stadd, static_cast<void*>(memory.at()));
}

alignas(256) const char constant[4096] = "bytes without write access";

Finding read_only(Side& side)
{
    Link link(side, page);
    const utofu_stadd_t fixed = link.vcq.reg(constant, sizeof constant, UTOFU_REG_MEM_FLAG_READ_ONLY);
    const auto theirs = side.meeting.swap({fixed});
    std::string put, armw, get;
    if (side.rank() == 0) {
        put = outcome(link.access(Access::put, link.peer, theirs.at(0)));
        armw = outcome(link.access(Access::armw, link.peer, theirs.at(0)));
        get = outcome(link.access(Access::get, link.peer, theirs.at(0)));
    }
    link.together();
    if (side.rank() != 0)
        return {};
    const std::string seen = text("Put: %s, ARMW: %s, Get: %s", put.c_str(), armw.c_str(), get.c_str());
    return is_refused(put) && is_refused(armw) && get == "SUCCESS" ? holds("%s", seen.c_str())
                                                                   : fails("%s", seen.c_str());
}

Finding bounds(Side& side)
{
    // As a program's region may lie: neither end is that of a word.
    constexpr std::size_t first = page + 9, length = 4096 + 5;
    Link link(side, 3 * page);
    Vcq apart(side, side.tni()); // knows of this region alone
    const utofu_stadd_t alone = apart.reg(link.memory.at(first), length);
    const auto theirs = side.meeting.swap({alone, apart.id()});
    std::string within, before, behind, far;
    if (side.rank() == 0) {
        const auto try_at = [&](std::size_t offset) {
            return outcome(link.access(Access::get, theirs.at(1), theirs.at(0) + offset));
        };
        within = try_at(length - 8); // Gets are of 8 bytes
        before = try_at(std::size_t{0} - 1);
        behind = try_at(length - 7);
        far = try_at(page);
    }
    link.together();
    if (side.rank() != 0)
        return {};
    const std::string seen = text("the last bytes: %s, a byte before: %s, a byte behind: %s, 64 KiB further: %s",
                                  within.c_str(), before.c_str(), behind.c_str(), far.c_str());
    if (within != "SUCCESS" || !is_refused(far))
        return fails("%s", seen.c_str());
    return is_refused(before) && is_refused(behind) ? holds("%s", seen.c_str()) : weaker("%s", seen.c_str());
}

Finding given_back(Side& side)
{
    Link link(side, page);
    Memory memory(page);
    utofu_stadd_t stadd = link.vcq.reg(memory.at(), 4096);
    const auto theirs = side.meeting.swap({stadd});
    std::string before, after;
    const auto try_it = [&] { return outcome(link.access(Access::get, link.peer, theirs.at(0))); };
    if (side.rank() == 0)
        before = try_it();
    link.together();
    link.vcq.dereg(stadd);
    link.together();
    if (side.rank() == 0)
        after = try_it();
    link.together();
    if (side.rank() != 0)
        return {};
    const std::string seen = text("before: %s, after: %s", before.c_str(), after.c_str());
    return before == "SUCCESS" && is_refused(after) ? holds("%s", seen.c_str()) : fails("%s", seen.c_str());
}

Finding unmapped(Side& side)
{
    const Vcq vcq(side, side.tni());
    void* const hole = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole, page);
    utofu_stadd_t stadd = 0;
    const int code = side.u.reg_mem(vcq.handle(), hole, 4096, 0, &stadd);
    if (code == UTOFU_SUCCESS)
        return fails("memory that is not mapped is registered");
    return code == UTOFU_ERR_INVALID_ADDRESS ? holds("ERR_INVALID_ADDRESS")
                                             : weaker("refused by %s", code_name(code).c_str());
}

/// How a child of fork ends that writes there: its status as text.
std::string child_writes(volatile std::uint8_t* where)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        *where = *where;
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return "no child";
    return WIFEXITED(status) ? "may write" : text("ends by signal %d", WTERMSIG(status));
}

Finding fork_and_go_on(Side& side)
{
    Link link(side, page);
    const Memory beside(page);
    link.together();
    std::string registered, other;
    if (side.rank() == 1) {
        other = child_writes(beside.at());
        registered = child_writes(link.memory.at());
        link.memory.store(8, 7); // a page that was shared with a child would become another one now
    }
    link.together();
    if (side.rank() == 0) {
        link.put_word(42, 0, strong);
        link.get(64, 8, 8, strong | local_mrq);
        link.vcq.must_mrq();
        link.together();
        if (link.memory.load(64) != 7)
            return fails("after fork a peer reads %lu where the process wrote 7", link.memory.load(64));
        return {};
    }
    link.await(0, 42, "a Put to memory registered before fork");
    link.together();
    if (other != "may write")
        return fails("a child's access to memory that is not registered: %s", other.c_str());
    return holds("the parent's registration goes on; a child %s registered memory", registered.c_str());
}

constexpr Check list[] = {
    {"reg-any-address", "any address and length can be registered, and a STADD plus an offset is valid", "mem/mr, rma",
     2, any_address},
    {"reserved-stags", "the STADD of a reserved STag can be computed before registration",
     "msg/rx_area, mem/mr_directory", 2, reserved_stags},
    {"reg-twice", "memory registered twice has one STADD, valid until both are deregistered",
     "mem/mr, which also handles two STADDs", 2, registered_twice},
    {"reg-inside", "memory inside a registration has the STADD of that registration",
     "none: mem/reg_cache only avoids the consequences", 2, registered_inside},
    {"reg-full", "a VCQ without a free STag returns ERR_FULL, after 6144 regions", "mem/mr", 1, many_regions},
    {"reg-again", "a released STADD is not reused at once",
     "none: tx/remote_memory cannot detect it (docs/wire-protocol.md, \"Regions\")", 1, stadd_again},
    {"reg-key", "STADD minus address leaves the top bit of a key free", "none: mem/mr looks it up then", 1,
     largest_key},
    {"reg-read-only", "read-only memory rejects Put and ARMW, and permits Get", "mem/mr, atomic/atomic", 2, read_only},
    {"reg-bounds", "access before or after a region is rejected, to the byte", "mem/mr (to the page: rights)", 2,
     bounds},
    {"reg-given-back", "access to deregistered memory is rejected", "tx/remote_memory, msg/rendezvous", 2, given_back},
    {"reg-unmapped", "unmapped memory cannot be registered", "mem/mr (FI_EFAULT)", 1, unmapped},
    {"fork", "after fork the parent's registrations stay valid; the child has all other memory", "mem/bounce_pool", 2,
     fork_and_go_on},
};

} // namespace

std::span<const Check> memory_checks()
{
    return list;
}

} // namespace tofu::check
