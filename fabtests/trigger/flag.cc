// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The first half of fi_trigger(3): the capability and the flag FI_TRIGGER, struct fi_triggered_context, thresholds.
#include <algorithm>
#include <cstring>
#include <iterator>

#include <rdma/fi_cm.h>

#include "trigger_checks.h"

namespace fabtests {
namespace {

fi_triggered_context when(const Count& counter, std::size_t threshold)
{
    fi_triggered_context context{};
    context.event_type = FI_TRIGGER_THRESHOLD;
    context.trigger.threshold = {counter.get(), threshold};
    return context;
}

} // namespace

/// "An endpoint must be created with the FI_TRIGGER capability in order for triggered operations to be specified."
void check_capability(World& w)
{
    CHECK(w, w.has(FI_TRIGGER));
    if (!w.ours())
        return;
    // Not a default capability: without a request it costs nothing.
    fi_info* all = nullptr;
    CHECK(w, fi_getinfo(FI_VERSION(1, 11), nullptr, nullptr, 0, nullptr, &all) == 0);
    for (const fi_info* i = all; i != nullptr; i = i->next)
        if (std::strcmp(i->fabric_attr->prov_name, "tofu") == 0)
            CHECK(w, (i->caps & FI_TRIGGER) == 0);
    fi_freeinfo(all);
    fi_info* info = w.further_info();
    info->caps &= ~FI_TRIGGER;
    fid_ep* plain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    fi_av_attr av_attr{};
    fi_cq_attr cq_attr{};
    CHECK(w, fi_endpoint(w.domain(), info, &plain, nullptr) == 0);
    CHECK(w, fi_av_open(w.domain(), &av_attr, &av, nullptr) == 0);
    CHECK(w, fi_cq_open(w.domain(), &cq_attr, &cq, nullptr) == 0);
    CHECK(w, fi_ep_bind(plain, &av->fid, 0) == 0 && fi_ep_bind(plain, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
    CHECK(w, fi_enable(plain) == 0);
    Count counter(w);
    fi_triggered_context context = when(counter, 0);
    Operation op(w, FI_OP_SEND, &context);
    CHECK(w, fi_sendmsg(plain, &op.msg, FI_TRIGGER) == -FI_EBADFLAGS);
    CHECK(w, fi_recvmsg(plain, &op.msg, FI_TRIGGER) == -FI_EBADFLAGS);
    CHECK(w, fi_tsendmsg(plain, &op.tagged, FI_TRIGGER) == -FI_EBADFLAGS);
    CHECK(w, fi_writemsg(plain, &op.rma, FI_TRIGGER) == -FI_EBADFLAGS);
    CHECK(w, fi_atomicmsg(plain, &op.atomic, FI_TRIGGER) == -FI_EBADFLAGS);
    fid_ep* alias = nullptr;
    CHECK(w, fi_ep_alias(plain, &alias, FI_TRANSMIT | FI_TRIGGER) == -FI_EBADFLAGS);
    fi_deferred_work work = op.work(counter, 0, counter.get());
    op.op_msg.ep = plain;
    CHECK(w, fi_control(&w.domain()->fid, FI_QUEUE_WORK, &work) == -FI_EOPNOTSUPP);
    CHECK(w, fi_close(&plain->fid) == 0 && fi_close(&av->fid) == 0 && fi_close(&cq->fid) == 0);
    fi_freeinfo(info);
}

/// "the data transfer operation will be deferred until an event counter crosses an application specified threshold"
void check_every_transfer(World& w)
{
    for (const fi_op_type type : transfers) {
        Count counter(w);
        fi_triggered_context context = when(counter, 2);
        Operation op(w, type, &context);
        op.meet();
        w.barrier();
        CHECK(w, op.call(FI_TRIGGER | FI_COMPLETION) == 0);
        counter.add(1);
        op.answer();
        w.barrier();
        CHECK(w, op.untouched() && w.quiet());
        w.barrier();
        counter.add(1);
        void* ended = nullptr;
        CHECK(w, w.wait(&ended) == 0 && ended == &context);
        CHECK(w, op.happened());
        w.barrier();
    }
    // "If the condition is met when the request is made, then the data transfer may be initiated immediately."
    for (const fi_op_type type : transfers) {
        Count counter(w);
        counter.add(7);
        fi_triggered_context context = when(counter, 2);
        Operation op(w, type, &context);
        op.meet();
        w.barrier();
        CHECK(w, op.call(FI_TRIGGER | FI_COMPLETION) == 0);
        op.answer();
        CHECK(w, w.wait() == 0);
        CHECK(w, op.happened());
        w.barrier();
    }
    CHECK(w, w.quiet());
}

/// "Threshold operations are triggered in the order of the threshold values. This is true even if the counter
/// increments by a value greater than 1. If two triggered operations have the same threshold, they will be triggered in
/// the order in which they were submitted to the endpoint."
void check_order(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    constexpr std::size_t thresholds[] = {5, 1, 3, 1, 9, 3, 3, 2};
    constexpr unsigned expected[] = {1, 3, 7, 2, 5, 6, 0, 4};
    constexpr std::size_t count = std::size(thresholds);
    Count counter(w);
    fi_triggered_context contexts[count];
    std::uint32_t out[count], in[count];
    for (unsigned i = 0; i < count; ++i) {
        in[i] = ~0u;
        CHECK(w, w.post([&] { return fi_recv(w.ep(), &in[i], 4, w.desc(), FI_ADDR_UNSPEC, nullptr); }) == 0);
    }
    w.barrier();
    for (unsigned i = 0; i < count; ++i) {
        contexts[i] = when(counter, thresholds[i]);
        out[i] = i;
        iovec iov{&out[i], 4};
        void* desc = w.desc();
        const fi_msg msg{&iov, &desc, 1, w.peer(next), &contexts[i], 0};
        CHECK(w, fi_sendmsg(w.ep(), &msg, FI_TRIGGER | FI_COMPLETION) == 0);
        iov = {nullptr, 0}; // lists are ours again
    }
    counter.add(5);
    for (unsigned i = 0; i < 7; ++i) {
        void* ended = nullptr;
        CHECK(w, w.wait(&ended) == 0 && ended == &contexts[expected[i]]);
    }
    CHECK(w, w.until([&] { return in[6] != ~0u; }) && in[7] == ~0u);
    w.barrier();
    counter.add(100);
    CHECK(w, w.wait() == 0);
    CHECK(w, w.until([&] { return in[7] != ~0u; }));
    CHECK(w, std::equal(in, in + count, expected));
    w.barrier();
}

/// What is injected has no context, and is sent at once.
void check_injected(World& w, fid_ep* sends, fi_addr_t to, void* desc)
{
    std::uint64_t word = 0;
    CHECK(w, w.post([&] { return fi_trecv(w.ep(), &word, 8, desc, FI_ADDR_UNSPEC, 1, 0, nullptr); }) == 0);
    w.barrier();
    const std::uint64_t sent = 99;
    CHECK(w, w.post([&] { return fi_tinject(sends, &sent, 8, to, 1); }) == 0);
    CHECK(w, w.until([&] { return *static_cast<volatile std::uint64_t*>(&word) == 99; }));
}

/// fi_endpoint(3), fi_alias(3): FI_TRIGGER as a default flag of an alias makes every call of it a triggered one.
void check_default_flag(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    fid_ep* sends = nullptr;
    fid_ep* receives = nullptr;
    CHECK(w, fi_ep_alias(w.ep(), &sends, FI_TRANSMIT | FI_TRIGGER | FI_COMPLETION) == 0);
    CHECK(w, fi_ep_alias(w.ep(), &receives, FI_RECV | FI_TRIGGER | FI_COMPLETION) == 0);
    Count counter(w);
    fi_triggered_context context = when(counter, 1);
    Operation op(w, FI_OP_FETCH_ATOMIC, &context);
    w.barrier();
    void* const d = op.desc;
    const fi_addr_t to = w.peer(next);
    const std::uint64_t at = op.remote.addr, key = op.remote.key;
    const auto [buf, len] = op.iov;
    const auto [in, room] = op.landing;
    ssize_t rc[] = {
        fi_read(sends, in, room, d, to, at, key, &context),
        fi_read(sends, in, 8, d, to, at, key, &context),
        fi_readv(sends, &op.landing, &op.desc, 1, to, at, key, &context),
        fi_write(sends, buf, len, d, to, at, key, &context),
        fi_write(sends, buf, 8, d, to, at, key, &context),
        fi_writev(sends, &op.iov, &op.desc, 1, to, at, key, &context),
        fi_atomic(sends, op.from.addr, 1, d, to, op.word.addr, key, FI_UINT64, FI_SUM, &context),
        fi_atomicv(sends, &op.from, &op.desc, 1, to, op.word.addr, key, FI_UINT64, FI_SUM, &context),
        fi_fetch_atomic(sends, op.from.addr, 1, d, op.result.addr, d, to, op.word.addr, key, FI_UINT64, FI_SUM,
                        &context),
        fi_fetch_atomicv(sends, &op.from, &op.desc, 1, &op.result, &op.desc, 1, to, op.word.addr, key, FI_UINT64,
                         FI_SUM, &context),
        fi_compare_atomic(sends, op.from.addr, 1, d, op.compare.addr, d, op.result.addr, d, to, op.word.addr, key,
                          FI_UINT64, FI_CSWAP_NE, &context),
        fi_compare_atomicv(sends, &op.from, &op.desc, 1, &op.compare, &op.desc, 1, &op.result, &op.desc, 1, to,
                           op.word.addr, key, FI_UINT64, FI_CSWAP_NE, &context),
        // Messages, to the next rank and from the one before.
        fi_recv(receives, in, room, d, FI_ADDR_UNSPEC, &context),
        fi_recvv(receives, &op.landing, &op.desc, 1, FI_ADDR_UNSPEC, &context),
        fi_trecv(receives, in, room, d, FI_ADDR_UNSPEC, op_tag, 0, &context),
        fi_trecvv(receives, &op.landing, &op.desc, 1, FI_ADDR_UNSPEC, op_tag, 0, &context),
        fi_send(sends, buf, 8, d, to, &context),
        fi_sendv(sends, &op.iov, &op.desc, 1, to, &context),
        fi_tsend(sends, buf, len, d, to, op_tag, &context),
        fi_tsendv(sends, &op.iov, &op.desc, 1, to, op_tag, &context),
    };
    for (const ssize_t one : rc)
        CHECK(w, one == 0);
    w.barrier();
    CHECK(w, op.untouched() && w.quiet());
    w.barrier();
    counter.add(1);
    for (unsigned i = 0; i < std::size(rc); ++i) {
        void* ended = nullptr;
        CHECK(w, w.wait(&ended) == 0 && ended == &context);
    }
    CHECK(w, w.quiet());
    check_injected(w, sends, to, d);
    CHECK(w, fi_close(&sends->fid) == 0 && fi_close(&receives->fid) == 0);
    w.barrier();
}

/// FI_INJECT: the buffer is the application's again when the call returns, however late the operation is.
void check_inject(World& w)
{
    for (const fi_op_type type : {FI_OP_SEND, FI_OP_TSEND, FI_OP_WRITE, FI_OP_ATOMIC, FI_OP_COMPARE_ATOMIC}) {
        Count counter(w);
        fi_triggered_context context = when(counter, 1);
        Operation op(w, type, &context);
        op.meet();
        w.barrier();
        CHECK(w, op.call(FI_TRIGGER | FI_INJECT | FI_COMPLETION) == 0);
        std::memset(op.iov.iov_base, 0xee, op_size);
        std::memset(op.from.addr, 0xee, 16);
        counter.add(1);
        CHECK(w, w.wait() == 0);
        CHECK(w, op.happened());
        w.barrier();
    }
}

/// "It must be allocated by the application and remain valid until the corresponding operation completes or is
/// successfully canceled."
void check_cancel(World& w)
{
    Count counter(w);
    for (const fi_op_type type : transfers) {
        fi_triggered_context context = when(counter, 1);
        Operation op(w, type, &context);
        CHECK(w, fi_cancel(&w.ep()->fid, &context) == -FI_ENOENT);
        CHECK(w, op.call(FI_TRIGGER) == 0);
        CHECK(w, fi_cancel(&w.ep()->fid, &context) == 0);
        void* ended = nullptr;
        CHECK(w, w.wait(&ended) == FI_ECANCELED && ended == &context);
        CHECK(w, fi_cancel(&w.ep()->fid, &context) == -FI_ENOENT);
    }
    counter.add(1);
    CHECK(w, w.quiet());
    w.barrier();
}

void check_bad_conditions(World& w)
{
    if (!w.ours())
        return;
    Count counter(w);
    const Foreign foreign(w);
    for (const fi_op_type type : transfers) {
        fi_triggered_context context = when(counter, 1);
        Operation op(w, type, &context);
        context.event_type = FI_TRIGGER_XPU; // no memory of devices
        CHECK(w, op.call(FI_TRIGGER) == -FI_ENOSYS);
        context = when(counter, 1);
        context.trigger.threshold.cntr = nullptr;
        CHECK(w, op.call(FI_TRIGGER) == -FI_EINVAL);
        context.trigger.threshold.cntr = foreign.counter;
        CHECK(w, op.call(FI_TRIGGER) == -FI_EDOMAIN);
        context = when(counter, 1);
        CHECK(w, op.call(FI_TRIGGER | FI_MULTICAST) == -FI_EBADFLAGS);
        op.msg.context = op.tagged.context = op.rma.context = op.atomic.context = nullptr;
        CHECK(w, op.call(FI_TRIGGER) == -FI_EINVAL);
        op.msg.context = op.tagged.context = op.rma.context = op.atomic.context = &context;
        op.msg.iov_count = op.tagged.iov_count = op.rma.iov_count = op.atomic.iov_count = 99;
        CHECK(w, op.call(FI_TRIGGER) == -FI_EINVAL);
    }
    counter.add(1);
    CHECK(w, w.quiet());
}

} // namespace fabtests
