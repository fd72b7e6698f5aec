// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_trigger(3), statement by statement, between processes; any provider (-p). Run by make check and by hand.
#include "trigger_checks.h"

#include <cstring>

namespace fabtests {

Count::Count(World& w) : w_(w)
{
    fi_cntr_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    CHECK(w, fi_cntr_open(w.domain(), &attr, &counter_, nullptr) == 0);
}

Count::~Count()
{
    CHECK(w_, fi_close(&counter_->fid) == 0);
}

bool Count::reaches(std::uint64_t value) const
{
    return fi_cntr_wait(counter_, value, static_cast<int>(1000 * w_.patience())) == 0;
}

Foreign::Foreign(World& world) : w(world), info(w.further_info())
{
    fi_cntr_attr attr{};
    CHECK(w, fi_domain(w.fabric(), info, &domain, nullptr) == 0 && fi_cntr_open(domain, &attr, &counter, nullptr) == 0);
}

Foreign::~Foreign()
{
    CHECK(w, fi_close(&counter->fid) == 0 && fi_close(&domain->fid) == 0);
    fi_freeinfo(info);
}

namespace {
// Where things are in the region and in the local buffers.
constexpr std::size_t out = 0, in = 1024, words = 2048, results = 3072;

std::uint64_t& word_at(unsigned char* at)
{
    return *reinterpret_cast<std::uint64_t*>(at);
}
} // namespace

Operation::Operation(World& world, fi_op_type what, void* context)
    : w(world), type(what), next((w.rank() + 1) % w.ranks()),
      before((w.rank() + w.ranks() - 1) % w.ranks()), iov{w.local(out), op_size}, landing{w.local(in), op_size},
      desc(w.desc()), remote{w.address(next, out), op_size, w.key(next)}, from{w.local(words), 1},
      compare{w.local(words + 8), 1}, result{w.local(results), 1}, word{w.address(next, words), 1, w.key(next)}
{
    const bool brings = type == FI_OP_RECV || type == FI_OP_TRECV || type == FI_OP_READ;
    fill(w.local(out), op_size, w.rank(), type);
    fill(w.region() + in, op_size, w.rank(), type); // what is read
    std::memset(w.local(in), 0, op_size);
    std::memset(w.region(), 0, op_size);
    word_at(w.local(words)) = operand;
    word_at(w.local(words + 8)) = word_before;
    word_at(w.local(results)) = 0;
    word_at(w.region() + words) = word_before;
    if (type == FI_OP_READ)
        remote.addr = w.address(next, in);
    const iovec* const list = brings ? &landing : &iov;
    const fi_addr_t peer = type == FI_OP_RECV || type == FI_OP_TRECV ? FI_ADDR_UNSPEC : w.peer(next);
    msg = {list, &desc, 1, peer, context, 0};
    tagged = {list, &desc, 1, peer, op_tag, 0, context, 0};
    rma = {list, &desc, 1, peer, &remote, 1, context, 0};
    atomic = {&from, &desc, 1, peer, &word, 1, FI_UINT64, type == FI_OP_COMPARE_ATOMIC ? FI_CSWAP : FI_SUM, context, 0};
    fetch = {&result, &desc, 1};
    with = {&compare, &desc, 1};
}

ssize_t Operation::call(std::uint64_t flags)
{
    switch (type) {
    case FI_OP_RECV: return fi_recvmsg(w.ep(), &msg, flags);
    case FI_OP_SEND: return fi_sendmsg(w.ep(), &msg, flags);
    case FI_OP_TRECV: return fi_trecvmsg(w.ep(), &tagged, flags);
    case FI_OP_TSEND: return fi_tsendmsg(w.ep(), &tagged, flags);
    case FI_OP_READ: return fi_readmsg(w.ep(), &rma, flags);
    case FI_OP_WRITE: return fi_writemsg(w.ep(), &rma, flags);
    case FI_OP_ATOMIC: return fi_atomicmsg(w.ep(), &atomic, flags);
    case FI_OP_FETCH_ATOMIC: return fi_fetch_atomicmsg(w.ep(), &atomic, &result, &desc, 1, flags);
    case FI_OP_COMPARE_ATOMIC:
        return fi_compare_atomicmsg(w.ep(), &atomic, &compare, &desc, 1, &result, &desc, 1, flags);
    default: return -FI_EINVAL;
    }
}

fi_deferred_work Operation::work(const Count& trigger, std::uint64_t threshold, fid_cntr* done, std::uint64_t flags)
{
    fi_deferred_work request{};
    request.threshold = threshold;
    request.triggering_cntr = trigger.get();
    request.completion_cntr = done;
    request.op_type = type;
    op_msg = {w.ep(), msg, flags};
    op_tagged = {w.ep(), tagged, flags};
    op_rma = {w.ep(), rma, flags};
    op_atomic = {w.ep(), atomic, flags};
    op_fetch = {w.ep(), atomic, fetch, flags};
    op_compare = {w.ep(), atomic, fetch, with, flags};
    switch (type) {
    case FI_OP_RECV:
    case FI_OP_SEND: request.op.msg = &op_msg; break;
    case FI_OP_TRECV:
    case FI_OP_TSEND: request.op.tagged = &op_tagged; break;
    case FI_OP_READ:
    case FI_OP_WRITE: request.op.rma = &op_rma; break;
    case FI_OP_ATOMIC: request.op.atomic = &op_atomic; break;
    case FI_OP_FETCH_ATOMIC: request.op.fetch_atomic = &op_fetch; break;
    default: request.op.compare_atomic = &op_compare; break;
    }
    return request;
}

/// Selective completion: without FI_COMPLETION there is no entry.
void Operation::meet()
{
    fi_msg plain = msg;
    fi_msg_tagged with_tag = tagged;
    plain.msg_iov = with_tag.msg_iov = &landing;
    plain.addr = with_tag.addr = FI_ADDR_UNSPEC;
    if (type == FI_OP_SEND)
        CHECK(w, w.post([&] { return fi_recvmsg(w.ep(), &plain, 0); }) == 0);
    if (type == FI_OP_TSEND)
        CHECK(w, w.post([&] { return fi_trecvmsg(w.ep(), &with_tag, 0); }) == 0);
}

void Operation::answer()
{
    fi_msg plain = msg;
    fi_msg_tagged with_tag = tagged;
    plain.msg_iov = with_tag.msg_iov = &iov;
    plain.addr = with_tag.addr = w.peer(next);
    if (type == FI_OP_RECV)
        CHECK(w, w.post([&] { return fi_sendmsg(w.ep(), &plain, 0); }) == 0);
    if (type == FI_OP_TRECV)
        CHECK(w, w.post([&] { return fi_tsendmsg(w.ep(), &with_tag, 0); }) == 0);
}

bool Operation::untouched()
{
    w.progress();
    for (std::size_t i = 0; i < op_size; ++i)
        if (w.local(in)[i] != 0 || w.region()[i] != 0)
            return false;
    return word_at(w.region() + words) == word_before && word_at(w.local(results)) == 0;
}

bool Operation::happened()
{
    switch (type) {
    case FI_OP_RECV:
    case FI_OP_SEND:
    case FI_OP_TRECV:
    case FI_OP_TSEND: return w.until([&] { return wrong(w.local(in), op_size, before, type) == 0; });
    case FI_OP_READ: return wrong(w.local(in), op_size, next, type) == 0;
    case FI_OP_WRITE: return w.until([&] { return wrong(w.region(), op_size, before, type) == 0; });
    case FI_OP_ATOMIC: return w.until([&] { return word_at(w.region() + words) == word_before + operand; });
    case FI_OP_FETCH_ATOMIC:
        return word_at(w.local(results)) == word_before &&
               w.until([&] { return word_at(w.region() + words) == word_before + operand; });
    default:
        return word_at(w.local(results)) == word_before &&
               w.until([&] { return word_at(w.region() + words) == operand; });
    }
}

namespace {

constexpr Case cases[] = {
    {"capability", check_capability},
    {"every_transfer", check_every_transfer, 2},
    {"order", check_order},
    {"default_flag", check_default_flag},
    {"inject", check_inject},
    {"cancel", check_cancel},
    {"bad_conditions", check_bad_conditions},
    {"every_work", check_every_work, 2},
    {"counter_work", check_counter_work},
    {"chain", check_chain, 2},
    {"cancel_and_flush", check_cancel_and_flush},
    {"failures", check_failures},
    {"closing", check_closing},
    {"bad_work", check_bad_work},
    {"many", check_many},
};

} // namespace

const Program program{{.ranks = 3, .caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER}, cases};

} // namespace fabtests
