// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_endpoint(3), statement by statement, between processes; any provider (-p). What operations do is with their own
// pages. Run by make check and by hand.
#include <cstring>

#include "endpoint_checks.h"

// fi_rx_size_left, fi_tx_size_left: deprecated, and still there.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace fabtests {
namespace {

fid_cq* open_queue(World& w, fid_domain* domain)
{
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    fid_cq* cq = nullptr;
    CHECK(w, fi_cq_open(domain, &attr, &cq, &w) == 0);
    return cq;
}

fid_av* open_vector(World& w, fid_domain* domain)
{
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    fid_av* av = nullptr;
    CHECK(w, fi_av_open(domain, &attr, &av, nullptr) == 0);
    return av;
}

/// "Active endpoints are created in the disabled state"; what they must be bound to before fi_enable; ERRORS
void life(World& w)
{
    fid_av* const av = open_vector(w, w.domain());
    fid_cq* const cq = open_queue(w, w.domain());
    {
        Bare b(w);
        if (b) {
            CHECK(w, b.ep->fid.fclass == FI_CLASS_EP && b.ep->fid.context == &b);
            if (w.ours()) {
                CHECK(w, fi_tsend(b.ep, w.local(), 8, w.desc(), 0, 0, nullptr) == -FI_EOPBADSTATE);
                CHECK(w, fi_trecv(b.ep, w.local(), 8, w.desc(), FI_ADDR_UNSPEC, 0, 0, nullptr) == -FI_EOPBADSTATE);
                CHECK(w, fi_inject(b.ep, w.local(), 8, 0) < 0);
                CHECK(w, fi_enable(b.ep) == -FI_ENOAV); // "must be bound to a single address vector"
            }
            CHECK(w, fi_ep_bind(b.ep, &av->fid, 0) == 0);
            CHECK(w, fi_enable(b.ep) == -FI_ENOCQ); // "has not been configured with necessary event queue"
            CHECK(w, fi_ep_bind(b.ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
            CHECK(w, fi_enable(b.ep) == 0);
            CHECK(w, fi_trecv(b.ep, w.local(), 8, w.desc(), FI_ADDR_UNSPEC, 0, 0, nullptr) == 0);
            if (w.ours()) {
                CHECK(w, fi_enable(b.ep) == -FI_EOPBADSTATE);
                CHECK(w, fi_ep_bind(b.ep, &cq->fid, FI_RECV) == -FI_EOPBADSTATE); // "before they are enabled"
                CHECK(w, fi_close(&av->fid) == -FI_EBUSY && fi_close(&cq->fid) == -FI_EBUSY);
            }
        }
    }
    // fi_close: "Discarded operations will silently be dropped, with no completions reported."
    fi_cq_tagged_entry entry{};
    CHECK(w, fi_cq_read(cq, &entry, 1) == -FI_EAGAIN);
    CHECK(w, fi_close(&cq->fid) == 0 && fi_close(&av->fid) == 0);
}

/// fi_ep_bind: flags, "a single CQ or counter for a given type of operation", one address vector
void bindings(World& w)
{
    if (!w.ours())
        return; // when others notice is theirs: here or at fi_enable
    fid_av* const av = open_vector(w, w.domain());
    fid_cq* const a = open_queue(w, w.domain());
    fid_cq* const b = open_queue(w, w.domain());
    fi_cntr_attr attr{};
    fid_cntr* counters[2] = {};
    for (fid_cntr*& counter : counters)
        CHECK(w, fi_cntr_open(w.domain(), &attr, &counter, nullptr) == 0);
    {
        Bare e(w);
        CHECK(w, fi_ep_bind(e.ep, &av->fid, 0) == 0);
        CHECK(w, fi_ep_bind(e.ep, &av->fid, 0) == -FI_EINVAL);
        CHECK(w, fi_ep_bind(e.ep, &a->fid, FI_SELECTIVE_COMPLETION) == -FI_EINVAL); // "must be OR'ed with"
        CHECK(w, fi_ep_bind(e.ep, &a->fid, 0) == -FI_EINVAL);
        CHECK(w, fi_ep_bind(e.ep, &a->fid, FI_TRANSMIT | FI_MORE) == -FI_EBADFLAGS);
        CHECK(w, fi_ep_bind(e.ep, &a->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION) == 0);
        CHECK(w, fi_ep_bind(e.ep, &b->fid, FI_TRANSMIT) == -FI_EINVAL);
        CHECK(w, fi_ep_bind(e.ep, &b->fid, FI_RECV) == 0);
        CHECK(w, fi_ep_bind(e.ep, &counters[0]->fid, FI_SEND | FI_RECV) == 0);
        CHECK(w, fi_ep_bind(e.ep, &counters[1]->fid, FI_WRITE | FI_RECV) == -FI_EINVAL);
        CHECK(w, fi_ep_bind(e.ep, &counters[1]->fid, FI_WRITE) == 0);
        CHECK(w, fi_ep_bind(e.ep, &counters[1]->fid, 0) == -FI_EINVAL);
        CHECK(w, fi_ep_bind(e.ep, &counters[1]->fid, FI_WRITE | FI_MORE) == -FI_EBADFLAGS);
        CHECK(w, fi_ep_bind(e.ep, &w.domain()->fid, 0) == -FI_EINVAL);
        CHECK(w, fi_ep_bind(e.ep, &w.ep()->fid, 0) == -FI_EINVAL);
        CHECK(w, fi_enable(e.ep) == 0);
    }
    for (fid* object : {&counters[0]->fid, &counters[1]->fid, &a->fid, &b->fid, &av->fid})
        CHECK(w, fi_close(object) == 0);
}

/// -FI_EDOMAIN: "an attempt was made to bind multiple domains"
void domains(World& w)
{
    Realm other(w, 0, 0, 0, 0);
    if (!other.opened())
        return;
    fid_cq* const cq = other.open_queue();
    fi_cntr_attr attr{};
    fid_cntr* counter = nullptr;
    CHECK(w, fi_cntr_open(other.domain(), &attr, &counter, nullptr) == 0);
    {
        Bare b(w);
        if (w.ours()) {
            CHECK(w, fi_ep_bind(b.ep, &other.av()->fid, 0) == -FI_EDOMAIN);
            CHECK(w, fi_ep_bind(b.ep, &cq->fid, FI_TRANSMIT) == -FI_EDOMAIN);
            CHECK(w, fi_ep_bind(b.ep, &counter->fid, FI_SEND) == -FI_EDOMAIN);
        }
    }
    other.close(&counter->fid);
    other.close(&cq->fid);
}

/// fi_cancel: one entry for what is taken back, none for the call itself
void cancel(World& w)
{
    Station s(w);
    if (!s.opened())
        return;
    fi_context contexts[4] = {};
    for (unsigned i = 0; i < 3; ++i)
        CHECK(w, recv_any(w, s, 64, &contexts[i]) == 0);
    CHECK(w, fi_cancel(&s.ep()->fid, &contexts[1]) == 0);
    const Entry taken = s.wait(s.rx());
    CHECK(w, taken.error.err == FI_ECANCELED && taken.error.op_context == &contexts[1]);
    CHECK(w, (taken.error.flags & FI_RECV) != 0 || !w.ours());
    (void)fi_cancel(&s.ep()->fid, &contexts[3]); // nothing has that context
    (void)fi_cancel(&s.ep()->fid, nullptr);      // "either no context parameter is specified"
    CHECK(w, s.quiet(s.rx()));
    // "if the operation completed before": its own status
    w.barrier();
    CHECK(w, send_to(w, s, next(w)) == 0);
    const Entry first = s.wait(s.rx());
    CHECK(w, first.error.err == 0 && first.ok.op_context == &contexts[0]);
    (void)fi_cancel(&s.ep()->fid, &contexts[0]);
    CHECK(w, s.quiet(s.rx()));
    // "If multiple outstanding operations match the context parameter, only one will be canceled."
    CHECK(w, recv_any(w, s, 64, &contexts[2]) == 0);
    CHECK(w, fi_cancel(&s.ep()->fid, &contexts[2]) == 0);
    CHECK(w, s.wait(s.rx()).error.err == FI_ECANCELED);
    CHECK(w, s.quiet(s.rx()));
    CHECK(w, s.wait(s.tx()).error.err == 0);
    w.barrier();
    CHECK(w, send_to(w, s, next(w)) == 0);
    const Entry last = s.wait(s.rx());
    CHECK(w, last.error.err == 0 && last.ok.op_context == &contexts[2]);
    CHECK(w, s.wait(s.tx()).error.err == 0);
    CHECK(w, s.quiet(s.rx()));
}

/// fi_getopt, fi_setopt
void options(World& w)
{
    Station s(w);
    if (!s.opened())
        return;
    fid* const ep = &s.ep()->fid;
    std::size_t value = 0, size = sizeof value;
    CHECK(w, fi_getopt(ep, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &size) == 0 || !w.ours());
    CHECK(w, size == sizeof value);
    value = 777;
    const int set = fi_setopt(ep, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, sizeof value);
    CHECK(w, set == 0 || !w.ours());
    value = 0;
    if (set == 0)
        CHECK(w, fi_getopt(ep, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &size) == 0 && value == 777);
    if (!w.ours())
        return;
    CHECK(w, fi_getopt(ep, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, &size) == 0 && value == 0);
    CHECK(w, fi_setopt(ep, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, sizeof value) < 0); // "is read only"
    size = 4;
    CHECK(w, fi_getopt(ep, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &size) == -FI_ETOOSMALL);
    CHECK(w, size == sizeof value);
    CHECK(w, fi_setopt(ep, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 4) == -FI_EINVAL);
    CHECK(w, fi_getopt(ep, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, &size) == -FI_ENOPROTOOPT);
    CHECK(w, fi_getopt(ep, FI_OPT_ENDPOINT, 9999, &value, &size) == -FI_ENOPROTOOPT);
    CHECK(w, fi_getopt(ep, 9999, FI_OPT_MIN_MULTI_RECV, &value, &size) == -FI_ENOPROTOOPT);
    const int mode = FI_HMEM_P2P_REQUIRED; // "-FI_EOPNOTSUPP if the mode requested cannot be supported"
    CHECK(w, fi_setopt(ep, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &mode, sizeof mode) == -FI_EOPNOTSUPP);
    CHECK(w, fi_getopt(ep, FI_OPT_ENDPOINT, FI_OPT_XPU_TRIGGER, &value, &size) == -FI_EOPNOTSUPP);
    const bool permitted = true; // FI_OPT_SHARED_MEMORY_PERMITTED
    CHECK(w, fi_setopt(ep, FI_OPT_ENDPOINT, 11, &permitted, sizeof permitted) == 0);
    CHECK(w, fi_setopt(ep, FI_OPT_ENDPOINT, 11, &value, sizeof value) == -FI_EINVAL);
}

/// One message to the next rank by `ep`, whose sends have an entry or not.
void send_by(World& w, Station& s, fid_ep* ep, bool entry)
{
    CHECK(w, recv_any(w, s) == 0);
    w.barrier();
    CHECK(w, s.post([&] { return fi_tsend(ep, w.local(), 8, w.desc(), s.peer(next(w)), 1, &w); }) == 0);
    CHECK(w, s.wait(s.rx()).error.err == 0);
    if (entry)
        CHECK(w, s.wait(s.tx()).ok.op_context == &w);
    w.barrier();
    CHECK(w, s.quiet(s.tx()));
}

/// FI_GETOPSFLAG, FI_SETOPSFLAG: the flags of calls that have none of their own
void operation_flags(World& w)
{
    Station s(w, {.selective = true, .counters = FI_SEND});
    if (!s.opened())
        return;
    fid* const ep = &s.ep()->fid;
    std::uint64_t flags = FI_RECV;
    const int got = fi_control(ep, FI_GETOPSFLAG, &flags);
    CHECK(w, got == 0 || !w.ours());
    if (got != 0)
        return;
    flags = FI_TRANSMIT | FI_COMPLETION;
    CHECK(w, fi_control(ep, FI_SETOPSFLAG, &flags) == 0);
    flags = FI_RECV | FI_COMPLETION;
    CHECK(w, fi_control(ep, FI_SETOPSFLAG, &flags) == 0);
    flags = FI_TRANSMIT;
    CHECK(w, fi_control(ep, FI_GETOPSFLAG, &flags) == 0 && (flags & FI_COMPLETION) != 0);
    send_by(w, s, s.ep(), true);
    flags = FI_TRANSMIT; // "will override the previous"
    CHECK(w, fi_control(ep, FI_SETOPSFLAG, &flags) == 0);
    CHECK(w, fi_control(ep, FI_GETOPSFLAG, &flags) == 0 || flags == 0);
    send_by(w, s, s.ep(), false);
    if (!w.ours())
        return;
    flags = FI_TRANSMIT | FI_RECV; // "(not both)"
    CHECK(w, fi_control(ep, FI_GETOPSFLAG, &flags) == -FI_EINVAL);
    CHECK(w, fi_control(ep, FI_SETOPSFLAG, &flags) == -FI_EINVAL);
    flags = 0;
    CHECK(w, fi_control(ep, FI_GETOPSFLAG, &flags) == -FI_EINVAL);
    for (std::uint64_t flag : {FI_COMMIT_COMPLETE, FI_MULTICAST}) { // operation flags that are not offered
        flags = FI_TRANSMIT | flag;
        CHECK(w, fi_control(ep, FI_SETOPSFLAG, &flags) == -FI_EBADFLAGS);
    }
    CHECK(w, fi_control(ep, FI_BACKLOG, &flags) == -FI_ENOSYS); // "only applies to passive endpoints"
}

/// fi_ep_alias: "differs from its parent endpoint only by its default data transfer flags"
void alias(World& w)
{
    Station s(w, {.selective = true, .counters = FI_SEND});
    if (!s.opened())
        return;
    std::uint64_t receives = FI_RECV | FI_COMPLETION; // of the parent, before: both have it
    const int set = fi_control(&s.ep()->fid, FI_SETOPSFLAG, &receives);
    fid_ep* loud = nullptr;
    const int made = fi_ep_alias(s.ep(), &loud, FI_TRANSMIT | FI_COMPLETION);
    CHECK(w, (set == 0 && made == 0) || !w.ours());
    if (set != 0 || made != 0)
        return;
    send_by(w, s, loud, true);
    send_by(w, s, s.ep(), false);
    std::uint64_t flags = FI_RECV;
    CHECK(w, fi_control(&loud->fid, FI_GETOPSFLAG, &flags) == 0 && (flags & FI_COMPLETION) != 0); // inherited
    flags = FI_TRANSMIT;
    CHECK(w, fi_control(&loud->fid, FI_SETOPSFLAG, &flags) == 0); // "to modify the alias EP operational flags"
    send_by(w, s, loud, false);
    flags = FI_TRANSMIT | FI_COMPLETION;
    CHECK(w, fi_control(&s.ep()->fid, FI_SETOPSFLAG, &flags) == 0);
    send_by(w, s, loud, false);
    send_by(w, s, s.ep(), true);
    if (w.ours()) {
        fid_ep* none = nullptr;
        CHECK(w, fi_ep_alias(s.ep(), &none, FI_TRANSMIT | FI_RECV) == -FI_EINVAL); // "(not both)"
        CHECK(w, fi_ep_alias(s.ep(), &none, FI_COMPLETION) == -FI_EINVAL);
        CHECK(w, fi_ep_alias(s.ep(), &none, FI_TRANSMIT | FI_MULTICAST) == -FI_EBADFLAGS);
        CHECK(w, fi_close(&s.ep()->fid) == -FI_EBUSY); // "All allocated aliases must be closed"
        // A receive by the one is cancelled by the other: they are one endpoint.
        fi_context context;
        CHECK(w, fi_trecv(loud, w.local(), 8, w.desc(), FI_ADDR_UNSPEC, 1, 0, &context) == 0);
        CHECK(w, fi_cancel(&s.ep()->fid, &context) == 0);
        CHECK(w, s.wait(s.rx()).error.err == FI_ECANCELED);
    }
    CHECK(w, fi_close(&loud->fid) == 0);
}

/// fi_rx_size_left, fi_tx_size_left: a lower bound of what is taken without -FI_EAGAIN, where they are supported
void size_left(World& w)
{
    Station s(w, {.queue_size = 4096});
    if (!s.opened() || w.ranks() < 2)
        return;
    const ssize_t receives = fi_rx_size_left(s.ep()), sends = fi_tx_size_left(s.ep());
    for (ssize_t i = 0; i < receives && i < 2000; ++i)
        if (!CHECK(w, fi_trecv(s.ep(), w.local(4096), 8, w.desc(), FI_ADDR_UNSPEC, 1, 0, nullptr) == 0))
            break;
    for (ssize_t i = 0; i < sends && i < 2000; ++i)
        if (!CHECK(w, fi_tsend(s.ep(), w.local(), 8, w.desc(), s.peer(next(w)), 1, nullptr) == 0))
            break;
    w.barrier();
}

/// What is not offered is refused as such: passive endpoints, fi_endpoint2 with flags, fi_open_ops
void refusals(World& w)
{
    // fi_tc_dscp_set, fi_tc_dscp_get
    for (unsigned dscp : {0u, 10u, 46u, 63u})
        CHECK(w, fi_tc_dscp_get(fi_tc_dscp_set(static_cast<std::uint8_t>(dscp))) == dscp);
    if (!w.ours())
        return;
    fi_info* info = w.further_info();
    fid_pep* passive = nullptr;
    CHECK(w, fi_passive_ep(w.fabric(), info, &passive, nullptr) == -FI_ENOSYS);
    fid_ep* ep = nullptr;
    CHECK(w, fi_endpoint2(w.domain(), info, &ep, FI_PEER_TRANSFER, nullptr) == -FI_ENOSYS);
    info->ep_attr->type = FI_EP_MSG;
    CHECK(w, fi_endpoint(w.domain(), info, &ep, nullptr) == -FI_EINVAL);
    fi_freeinfo(info);
    Bare b(w);
    CHECK(w, fi_ep_bind(b.ep, nullptr, 0) == -FI_EINVAL);
    // fi_cm(3), fi_getname: the length that is needed
    char name[64];
    std::size_t length = 3;
    CHECK(w, fi_getname(&b.ep->fid, name, &length) == -FI_ETOOSMALL && length > 3 && length <= sizeof name);
    CHECK(w, fi_getname(&b.ep->fid, name, &length) == 0);
    CHECK(w, fi_connect(b.ep, name, nullptr, 0) == -FI_ENOSYS && fi_shutdown(b.ep, 0) == -FI_ENOSYS);
}

constexpr Case cases[] = {
    {"life", life},
    {"bindings", bindings},
    {"domains", domains},
    {"cancel", cancel},
    {"options", options},
    {"operation_flags", operation_flags},
    {"alias", alias},
    {"size_left", size_left},
    {"refusals", refusals},
    {"scalable", ep_scalable},
    {"scalable_refusals", ep_scalable_refusals},
    {"shared_transmit", ep_shared_transmit},
    {"shared_receive", ep_shared_receive},
};

} // namespace

const Program program{{.ranks = 2, .caps = FI_TAGGED}, cases};

} // namespace fabtests
