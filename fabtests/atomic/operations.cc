// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One atomic operation by each form of call.
#include "atomic_checks.h"

namespace fabtests {
namespace {

ssize_t post_plain(World& w, const Operation& o, void* context)
{
    const fi_addr_t to = w.peer(o.target);
    const std::uint64_t addr = w.address(o.target, o.offset), key = w.key(o.target);
    if (o.op >= FI_CSWAP)
        return fi_compare_atomic(w.ep(), o.operand, o.count, w.desc(), o.compare, w.desc(), o.result, w.desc(), to,
                                 addr, key, o.type, o.op, context);
    if (o.result)
        return fi_fetch_atomic(w.ep(), o.operand, o.count, w.desc(), o.result, w.desc(), to, addr, key, o.type, o.op,
                               context);
    return fi_atomic(w.ep(), o.operand, o.count, w.desc(), to, addr, key, o.type, o.op, context);
}

ssize_t post_v(World& w, const Operation& o, void* context)
{
    const fi_addr_t to = w.peer(o.target);
    const std::uint64_t addr = w.address(o.target, o.offset), key = w.key(o.target);
    const fi_ioc operand{o.operand, o.count}, compare{o.compare, o.count};
    fi_ioc result{o.result, o.count};
    void* desc = w.desc();
    if (o.op >= FI_CSWAP)
        return fi_compare_atomicv(w.ep(), &operand, &desc, 1, &compare, &desc, 1, &result, &desc, 1, to, addr, key,
                                  o.type, o.op, context);
    if (o.result)
        return fi_fetch_atomicv(w.ep(), &operand, &desc, 1, &result, &desc, 1, to, addr, key, o.type, o.op, context);
    return fi_atomicv(w.ep(), &operand, &desc, 1, to, addr, key, o.type, o.op, context);
}

ssize_t post_msg(World& w, const Operation& o, void* context, std::uint64_t flags)
{
    const fi_ioc operand{o.operand, o.count}, compare{o.compare, o.count};
    const fi_rma_ioc remote{w.address(o.target, o.offset), o.count, w.key(o.target)};
    fi_ioc result{o.result, o.count};
    void* desc = w.desc();
    fi_msg_atomic msg{};
    msg.msg_iov = &operand;
    msg.desc = &desc;
    msg.iov_count = 1;
    msg.addr = w.peer(o.target);
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    msg.datatype = o.type;
    msg.op = o.op;
    msg.context = context;
    if (o.op >= FI_CSWAP)
        return fi_compare_atomicmsg(w.ep(), &msg, &compare, &desc, 1, &result, &desc, 1, flags);
    if (o.result)
        return fi_fetch_atomicmsg(w.ep(), &msg, &result, &desc, 1, flags);
    return fi_atomicmsg(w.ep(), &msg, flags);
}

} // namespace

ssize_t post(World& w, const Operation& o, Form form, void* context, std::uint64_t flags)
{
    return w.post([&] {
        switch (form) {
        case Form::plain: return post_plain(w, o, context);
        case Form::v: return post_v(w, o, context);
        case Form::msg: return post_msg(w, o, context, flags);
        case Form::inject: break;
        }
        return fi_inject_atomic(w.ep(), o.operand, o.count, w.peer(o.target), w.address(o.target, o.offset),
                                w.key(o.target), o.type, o.op);
    });
}

/// The endpoint reports selectively, and the plain calls have no flags: they are waited for by the counters.
int perform(World& w, const Operation& o, Form form)
{
    fid_cntr* const counter = o.result ? w.reads() : w.writes();
    const std::uint64_t before = fi_cntr_read(counter);
    const ssize_t rc = post(w, o, form);
    if (rc != 0)
        return static_cast<int>(rc);
    if (form == Form::msg)
        return w.wait();
    return w.wait_count(counter, before + 1);
}

bool supported(World& w, fi_op op, fi_datatype type, bool fetch)
{
    std::size_t count = 0;
    const int rc = op >= FI_CSWAP ? fi_compare_atomicvalid(w.ep(), type, op, &count)
                   : fetch        ? fi_fetch_atomicvalid(w.ep(), type, op, &count)
                                  : fi_atomicvalid(w.ep(), type, op, &count);
    return rc == 0 && count > 0;
}

} // namespace fabtests
