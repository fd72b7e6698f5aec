// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See side.h.
#include "side.h"

#include <utility>

#include <sys/mman.h>

namespace tofu::check {

Memory::Memory(std::size_t bytes) : size_((bytes + page - 1) / page * page)
{
    void* const got = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED)
        throw Stop{not_tried("no memory: %zu bytes", size_)};
    start_ = static_cast<std::uint8_t*>(got);
}

Memory::~Memory()
{
    munmap(start_, size_);
}

Vcq::Vcq(const Side& side, utofu_tni_id_t tni, unsigned long flags) : u_(side.u)
{
    must(u_.create_vcq(tni, flags, &handle_), "utofu_create_vcq");
    must(u_.query_vcq_id(handle_, &id_), "utofu_query_vcq_id");
}

int Vcq::free() noexcept
{
    return handle_ != 0 ? u_.free_vcq(std::exchange(handle_, 0)) : UTOFU_SUCCESS;
}

utofu_stadd_t Vcq::reg(const void* address, std::size_t size, unsigned long flags)
{
    utofu_stadd_t made = 0;
    must(u_.reg_mem(handle_, const_cast<void*>(address), size, flags, &made), "utofu_reg_mem");
    return made;
}

bool Vcq::read_tcq()
{
    void* cbdata = nullptr;
    const int code = u_.poll_tcq(handle_, 0, &cbdata);
    if (code == UTOFU_ERR_NOT_FOUND)
        return false;
    if (code != UTOFU_SUCCESS && (code > UTOFU_ERR_TCQ_OTHER || code < UTOFU_ERR_TCQ_LENGTH))
        throw Stop{fails("utofu_poll_tcq itself failed: %s", code_name(code).c_str())};
    sent_.push_back({code, cbdata});
    return true;
}

bool Vcq::read_mrq(Told& told)
{
    told.code = u_.poll_mrq(handle_, 0, &told.notice);
    if (told.code == UTOFU_ERR_NOT_FOUND)
        return false;
    if (told.code != UTOFU_SUCCESS && (told.code > UTOFU_ERR_MRQ_OTHER || told.code < UTOFU_ERR_MRQ_RMT_LENGTH))
        throw Stop{fails("utofu_poll_mrq itself failed: %s", code_name(told.code).c_str())};
    return true;
}

Told Vcq::next_mrq(double limit)
{
    Told told;
    for (Patience patience("a notice in the MRQ", limit); !read_mrq(told); patience.next())
        (void)read_tcq(); // what is not read takes room (guide 3.7)
    return told;
}

Sent Vcq::next_tcq()
{
    for (Patience patience("an entry in the TCQ"); sent_.empty(); patience.next())
        (void)read_tcq();
    const Sent first = sent_.front();
    sent_.pop_front();
    return first;
}

utofu_mrq_notice Vcq::must_mrq()
{
    const Told told = next_mrq();
    must(told.code, "a communication");
    return told.notice;
}

int Vcq::next_answer(double limit)
{
    Told told;
    for (Patience patience("an answer", limit);; patience.next()) {
        while (!sent_.empty()) {
            const Sent first = sent_.front();
            sent_.pop_front();
            if (first.code != UTOFU_SUCCESS)
                return first.code;
        }
        if (read_mrq(told))
            return told.code;
        (void)read_tcq();
    }
}

int Vcq::end_of(int posted)
{
    try {
        return posted != UTOFU_SUCCESS ? posted : next_answer(answer_time());
    } catch (const Silence&) {
        return UTOFU_ERR_NOT_COMPLETED;
    }
}

Link::Link(Side& s, std::size_t bytes, unsigned long reg_flags)
    : side(s), u(s.u), memory(bytes), vcq(s, s.tni()), stadd(vcq.reg(memory.at(), memory.size(), reg_flags))
{
    const auto theirs = s.meeting.swap({vcq.id(), stadd});
    peer = theirs.at(0);
    peer_stadd = theirs.at(1);
}

int Link::try_post(Access kind, utofu_vcq_id_t to, utofu_stadd_t at, unsigned long flags, std::uint64_t edata)
{
    std::uint64_t value = 1;
    return vcq.try_post([&] {
        switch (kind) {
        case Access::put: return u.put_piggyback(vcq.handle(), to, &value, at, 8, edata, flags, nullptr);
        case Access::get: return u.get(vcq.handle(), to, stadd, at, 8, edata, flags, nullptr);
        case Access::armw: return u.armw8(vcq.handle(), to, UTOFU_ARMW_OP_OR, 0, at, edata, flags, nullptr);
        }
        return static_cast<int>(UTOFU_ERR_FATAL);
    });
}

int Link::access(Access kind, utofu_vcq_id_t to, utofu_stadd_t at, std::uint64_t edata)
{
    return vcq.end_of(try_post(kind, to, at, local_mrq, edata));
}

void Link::await(std::size_t offset, std::uint64_t value, const char* what) const
{
    for (Patience patience(what); memory.load(offset) != value; patience.next())
        ;
}

} // namespace tofu::check
