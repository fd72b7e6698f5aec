// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_msg(3) and fi_tagged(3) say of the data: every call moves exactly the bytes, the tag and the CQ data it is
// given.
#include <algorithm>
#include <cstring>

#include "mail.h"

namespace fabtests {

template <bool Tagged>
void Both<Tagged>::calls(World& w)
{
    Mail m(w, Tagged);
    const std::size_t parts = std::min<std::size_t>(3, w.info().tx_attr->iov_limit);
    unsigned round = 0;
    for (Form sending : forms)
        for (Form receiving : forms)
            for (std::size_t size : {1u, 8u, 24u, 100u, 250u, 1000u, 4096u, 9001u, 70000u, 1u << 20}) {
                ++round;
                const auto from = cut(m.out(), size, sending == Form::plain ? 1 : parts);
                const auto to = cut(m.in(), size, receiving == Form::plain ? 1 : parts);
                fill(from, w.rank(), round);
                std::memset(m.in(), 0, size + 64);
                int sent = 0, received = 0;
                const std::uint64_t tag = 0x100 + round;
                CHECK(w, m.recv(receiving, to, FI_ADDR_UNSPEC, tag, 0, &received) == 0);
                CHECK(w, m.send(sending, from, m.station.peer(m.next()), tag, &sent) == 0);
                // "Users provide context which are associated with each operation, and is returned"
                const Entry s = m.sent();
                CHECK(w, s.error.err == 0);
                CHECK(w, s.ok.op_context == &sent);
                CHECK(w, (s.ok.flags & (FI_SEND | m.kind())) == (FI_SEND | m.kind()));
                const Entry r = m.received();
                CHECK(w, r.error.err == 0);
                CHECK(w, r.ok.op_context == &received);
                CHECK(w, (r.ok.flags & (FI_RECV | m.kind())) == (FI_RECV | m.kind()));
                CHECK(w, (r.ok.flags & FI_REMOTE_CQ_DATA) == 0);
                CHECK(w, r.ok.len == size);
                CHECK(w, !Tagged || r.ok.tag == tag);
                // "transfers the data contained in the user-specified data buffer"; the set of buffers is one message
                CHECK(w, wrong(to, size, m.before(), round) == 0);
                const auto& last = to.back();
                CHECK(w, static_cast<unsigned char*>(last.iov_base)[last.iov_len] == 0);
            }
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::inject(World& w)
{
    Mail m(w, Tagged, {.counters = FI_SEND});
    const std::size_t limit = std::min<std::size_t>(w.info().tx_attr->inject_size, 2048);
    fid_cntr* const counter = m.station.counter(FI_SEND);
    constexpr unsigned rounds = 100;
    std::vector<unsigned char> buffer(2048);
    auto size_of = [&](unsigned i) { return i % 2 ? limit : i * 7 % (limit + 1); };
    for (unsigned i = 0; i < rounds; ++i)
        CHECK(w, m.recv(m.in(i * 2048), 2048, i) == 0);
    w.barrier();
    // "The data buffer is available for reuse immediately on return from the call, and no CQ entry"; FI_INJECT: the
    // same for fi_sendmsg, which has its entry when it asks for one.
    unsigned entries = 0;
    for (unsigned i = 0; i < rounds; ++i) {
        fill(buffer.data(), size_of(i), w.rank(), i);
        if (i % 4 != 3) {
            CHECK(w, m.inject(buffer.data(), size_of(i), m.next(), i) == 0);
        } else {
            CHECK(w, m.send(Form::msg, {{buffer.data(), size_of(i)}}, m.station.peer(m.next()), i, nullptr,
                            FI_INJECT | FI_COMPLETION) == 0);
            entries++;
        }
        std::memset(buffer.data(), 0xee, buffer.size());
    }
    for (unsigned i = 0; i < rounds; ++i) {
        const Entry r = m.received();
        CHECK(w, r.error.err == 0 && r.ok.len == size_of(i));
        CHECK(w, wrong(m.in(i * 2048), size_of(i), m.before(), i) == 0);
    }
    for (unsigned i = 0; i < entries; ++i)
        CHECK(w, m.sent().error.err == 0);
    // "Counters increment on all successful completions, separately from whether the operation generates an entry"
    CHECK(w, m.station.reaches(counter, rounds));
    CHECK(w, fi_cntr_read(counter) == rounds);
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::data(World& w)
{
    Mail m(w, Tagged);
    const std::size_t width = w.info().domain_attr->cq_data_size;
    const std::uint64_t mask = width >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * width)) - 1;
    CHECK(w, !w.ours() || width == 8);
    unsigned round = 0;
    for (std::size_t size : {0u, 8u, 150u, 5000u, 100000u})
        for (unsigned call = 0; call < 3; ++call) {
            if (call == 2 && size > w.info().tx_attr->inject_size)
                continue;
            ++round;
            const std::uint64_t data = (0xfedcba9876543210 + round) & mask;
            fill(m.out(), size, w.rank(), round);
            int context = 0;
            CHECK(w, m.recv(m.in(), 100000, round, &context) == 0);
            if (call == 0)
                CHECK(w, m.send_data(m.out(), size, data, m.next(), round, nullptr) == 0);
            else if (call == 1)
                CHECK(w, m.send(Form::msg, {{m.out(), size}}, m.station.peer(m.next()), round, nullptr,
                                FI_COMPLETION | FI_REMOTE_CQ_DATA, data) == 0);
            else
                CHECK(w, m.inject_data(m.out(), size, data, m.next(), round) == 0);
            if (call != 2)
                CHECK(w, m.sent().error.err == 0);
            // "If FI_REMOTE_CQ_DATA is set, this field will contain the completion data provided by the peer"
            const Entry r = m.received();
            CHECK(w, r.error.err == 0);
            CHECK(w, r.ok.op_context == &context);
            CHECK(w, (r.ok.flags & (FI_RECV | FI_REMOTE_CQ_DATA)) == (FI_RECV | FI_REMOTE_CQ_DATA));
            CHECK(w, r.ok.data == data);
            CHECK(w, r.ok.len == size);
            CHECK(w, wrong(m.in(), size, m.before(), round) == 0);
        }
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::zero(World& w)
{
    Mail m(w, Tagged);
    // Nothing is a message too, by every call, into no buffer or into one.
    for (Form sending : forms)
        for (Form receiving : forms)
            for (bool room : {false, true}) {
                std::memset(m.in(), 0x55, 16);
                const std::vector<iovec> none;
                const std::vector<iovec> some{{m.in(), room ? std::size_t{16} : 0}};
                CHECK(w, m.recv(receiving, room || receiving == Form::plain ? some : none, FI_ADDR_UNSPEC, 7, 0,
                                nullptr) == 0);
                CHECK(w, m.send(sending, none, m.station.peer(m.next()), 7, nullptr) == 0);
                CHECK(w, m.sent().error.err == 0);
                const Entry r = m.received();
                CHECK(w, r.error.err == 0 && r.ok.len == 0);
                CHECK(w, m.in()[0] == 0x55);
            }
    CHECK(w, m.recv(nullptr, 0, 7) == 0);
    CHECK(w, m.inject(nullptr, 0, m.next(), 7) == 0);
    CHECK(w, m.received().ok.len == 0);
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::self(World& w)
{
    Mail m(w, Tagged);
    // FI_LOCAL_COMM and an address like any other: one's own. With the receive before the send, and after it.
    for (bool posted : {true, false})
        for (std::size_t size : {0u, 8u, 1000u, 60000u}) {
            auto round = static_cast<unsigned>(size) + posted;
            fill(m.out(), size, w.rank(), round);
            std::memset(m.in(), 0, size);
            int context = 0;
            if (posted)
                CHECK(w, m.recv(m.in(), size, round, &context) == 0);
            CHECK(w, m.send(m.out(), size, w.rank(), round, &round) == 0);
            if (!posted)
                CHECK(w, m.recv(m.in(), size, round, &context) == 0);
            const Entry r = m.received();
            CHECK(w, r.error.err == 0 && r.ok.len == size && r.ok.op_context == &context);
            CHECK(w, wrong(m.in(), size, w.rank(), round) == 0);
            CHECK(w, m.sent().ok.op_context == &round);
        }
    CHECK(w, m.quiet());
}

template struct Both<false>;
template struct Both<true>;

} // namespace fabtests
