// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_msg(3) and fi_tagged(3) say under FLAGS, RETURN VALUE and ERRORS.
#include <cstring>

#include "mail.h"

namespace fabtests {

template <bool Tagged>
void Both<Tagged>::selective(World& w)
{
    Mail m(w, Tagged, {.selective = true, .counters = FI_SEND | FI_RECV});
    // FI_SELECTIVE_COMPLETION: entries for those that ask by FI_COMPLETION; everything counts.
    constexpr unsigned count = 8;
    int contexts[count];
    for (unsigned i = 0; i < count; ++i)
        CHECK(w, m.recv(i < 2 ? Form::plain : Form::msg, {{m.in(i * 64), 64}}, FI_ADDR_UNSPEC, i, 0, &contexts[i],
                        i % 2 ? FI_COMPLETION : 0) == 0);
    w.barrier();
    for (unsigned i = 0; i < count; ++i)
        CHECK(w, m.send(i < 2 ? Form::plain : Form::msg, {{m.out(), 64}}, m.station.peer(m.next()), i, &contexts[i],
                        i % 2 ? FI_COMPLETION : 0) == 0);
    CHECK(w, m.station.reaches(m.station.counter(FI_SEND), count));
    CHECK(w, m.station.reaches(m.station.counter(FI_RECV), count));
    for (unsigned i = 3; i < count; i += 2) {
        CHECK(w, m.received().ok.op_context == &contexts[i]);
        CHECK(w, m.sent().ok.op_context == &contexts[i]);
    }
    CHECK(w, m.quiet());
    // "error completions are generated for all operations, including those for which a completion was not requested"
    CHECK(w, m.recv(Form::plain, {{m.in(), 3}}, FI_ADDR_UNSPEC, 1, 0, nullptr) == 0);
    w.barrier();
    CHECK(w, m.send(m.out(), 64, m.next(), 1) == 0);
    CHECK(w, m.received().error.err == FI_ETRUNC);
    w.barrier();
    CHECK(w, fi_cntr_read(m.station.counter(FI_RECV)) == count);
}

template <bool Tagged>
void Both<Tagged>::levels(World& w)
{
    Mail m(w, Tagged, {.counters = FI_SEND});
    constexpr std::uint64_t levels[] = {FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE,
                                        FI_MATCH_COMPLETE};
    for (std::uint64_t level : levels) {
        if (level == FI_MATCH_COMPLETE && !(Tagged && w.ours()))
            continue;
        for (std::size_t size : {0u, 8u, 150u, 3000u, 70000u}) {
            fill(m.out(), size, w.rank(), 3);
            CHECK(w, m.recv(m.in(), 70000, 6) == 0);
            w.barrier();
            const ssize_t rc =
                m.send(Form::msg, {{m.out(), size}}, m.station.peer(m.next()), 6, &w, level | FI_COMPLETION);
            CHECK(w, rc == 0);
            const Entry s = m.sent();
            CHECK(w, s.error.err == 0 && s.ok.op_context == &w);
            // FI_INJECT_COMPLETE: "the buffers will not be read from again"
            std::memset(m.out(), 0, size);
            const Entry r = m.received();
            CHECK(w, r.error.err == 0 && r.ok.len == size);
            CHECK(w, wrong(m.in(), size, m.before(), 3) == 0);
        }
    }
    CHECK(w, m.quiet());
    if (!(Tagged && w.ours()))
        return;
    // FI_MATCH_COMPLETE: "only after the message has either been matched with a tagged buffer or was discarded"
    for (std::size_t size : {0u, 100u, 70000u}) {
        CHECK(w, m.send(Form::msg, {{m.out(), size}}, m.station.peer(m.next()), 8, nullptr,
                        FI_MATCH_COMPLETE | FI_COMPLETION) == 0);
        w.barrier();
        CHECK(w, m.station.quiet(m.station.tx()));
        w.barrier();
        CHECK(w, m.recv(m.in(), 70000, 8) == 0);
        CHECK(w, m.sent().error.err == 0);
        CHECK(w, m.received().error.err == 0);
        w.barrier();
    }
}

template <bool Tagged>
void Both<Tagged>::fence(World& w)
{
    Mail m(w, Tagged);
    if (!w.has(FI_FENCE) || !w.has(FI_RMA))
        return;
    // "deferred until all previous operations targeting the same peer endpoint have completed": the message reports
    // the writes before it.
    const unsigned to = m.next();
    for (unsigned round = 1; round <= 50; ++round) {
        CHECK(w, m.recv(m.in(), 8, round) == 0);
        w.barrier();
        auto* const value = reinterpret_cast<std::uint64_t*>(m.out(64));
        *value = round;
        for (unsigned i = 0; i < 16; ++i)
            CHECK(w, m.station.post([&] {
                return fi_write(m.station.ep(), value, 8, w.desc(), m.station.peer(to), w.address(to, 4096 * i),
                                w.key(to), nullptr);
            }) == 0);
        CHECK(w, m.send(Form::msg, {{m.out(), 8}}, m.station.peer(to), round, &w,
                        FI_FENCE | FI_COMPLETION | FI_DELIVERY_COMPLETE) == 0);
        CHECK(w, m.received().error.err == 0);
        std::size_t late = 0;
        for (unsigned i = 0; i < 16; ++i)
            late += *reinterpret_cast<volatile std::uint64_t*>(w.region() + 4096 * i) != round;
        CHECK(w, late == 0);
        for (unsigned i = 0; i < 17; ++i)
            CHECK(w, m.sent().error.err == 0);
    }
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::limits(World& w)
{
    Mail m(w, Tagged);
    const fi_tx_attr& tx = *w.info().tx_attr;
    std::vector<unsigned char> large(tx.inject_size + 1);
    // "limited by inject_size", "max_msg_size", "iov_limit": beyond them an error at the call, and nothing is sent. A
    // provider that accepts more than promised breaks nothing: checked for this provider alone.
    if (w.ours()) {
        CHECK(w, m.inject(large.data(), large.size(), m.next(), 1) == -FI_EMSGSIZE);
        CHECK(w, m.inject_data(large.data(), large.size(), 1, m.next(), 1) == -FI_EMSGSIZE);
        CHECK(w, m.send(Form::msg, {{large.data(), large.size()}}, m.station.peer(m.next()), 1, nullptr, FI_INJECT) ==
                     -FI_EMSGSIZE);
        const std::size_t most = w.info().ep_attr->max_msg_size;
        for (Form form : forms)
            CHECK(w, m.send(form, {{m.out(), most + 1}}, m.station.peer(m.next()), 1, nullptr) == -FI_EMSGSIZE);
        const auto many = cut(m.out(), 100, tx.iov_limit + 1);
        for (Form form : {Form::v, Form::msg}) {
            CHECK(w, m.send(form, many, m.station.peer(m.next()), 1, nullptr) == -FI_EINVAL);
            CHECK(w, m.recv(form, many, FI_ADDR_UNSPEC, 1, 0, nullptr) == -FI_EINVAL);
        }
    }
    // At the limits all is well.
    CHECK(w, m.recv(m.in(), large.size(), 1) == 0);
    CHECK(w, m.inject(large.data(), tx.inject_size, m.next(), 1) == 0);
    CHECK(w, m.received().ok.len == tx.inject_size);
    const auto pieces = cut(m.out(), 5000, tx.iov_limit);
    fill(pieces, w.rank(), 1);
    CHECK(w, m.recv(Form::v, cut(m.in(), 5000, w.info().rx_attr->iov_limit), FI_ADDR_UNSPEC, 1, 0, nullptr) == 0);
    CHECK(w, m.send(Form::v, pieces, m.station.peer(m.next()), 1, nullptr) == 0);
    CHECK(w, m.sent().error.err == 0);
    CHECK(w, m.received().ok.len == 5000);
    CHECK(w, wrong(cut(m.in(), 5000, w.info().rx_attr->iov_limit), 5000, m.before(), 1) == 0);
    w.barrier();
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::refusals(World& w)
{
    Mail m(w, Tagged);
    // An address that is not in the address vector; FI_ADDR_UNSPEC is none to send to. Others may crash.
    if (w.ours()) {
        for (fi_addr_t nobody : {fi_addr_t{12345}, fi_addr_t{FI_ADDR_UNSPEC}, fi_addr_t{FI_ADDR_NOTAVAIL}})
            for (Form form : forms)
                CHECK(w, m.send(form, {{m.out(), 8}}, nobody, 1, nullptr) == -FI_EINVAL);
        CHECK(w, m.recv(Form::plain, {{m.in(), 8}}, 12345, 1, 0, nullptr) == -FI_EINVAL);
    }
    CHECK(w, m.quiet());
    // "An endpoint must be enabled before an application can post send or receive operations to it."
    if (w.ours()) {
        fid_ep* idle = nullptr;
        CHECK(w, fi_endpoint(w.domain(), const_cast<fi_info*>(&w.info()), &idle, nullptr) == 0);
        CHECK(w, (Tagged ? fi_tsend(idle, m.out(), 8, w.desc(), 0, 1, nullptr)
                         : fi_send(idle, m.out(), 8, w.desc(), 0, nullptr)) == -FI_EOPBADSTATE);
        CHECK(w, (Tagged ? fi_trecv(idle, m.in(), 8, w.desc(), 0, 1, 0, nullptr)
                         : fi_recv(idle, m.in(), 8, w.desc(), 0, nullptr)) == -FI_EOPBADSTATE);
        CHECK(w, fi_close(&idle->fid) == 0);
    }
    // What was refused left no trace.
    CHECK(w, m.recv(m.in(), 8, 1) == 0);
    CHECK(w, m.send(m.out(), 8, m.next(), 1) == 0);
    CHECK(w, m.received().error.err == 0);
    CHECK(w, m.sent().error.err == 0);
    w.barrier();
    CHECK(w, m.quiet());
}

template struct Both<false>;
template struct Both<true>;

} // namespace fabtests
