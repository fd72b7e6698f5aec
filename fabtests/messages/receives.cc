// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_msg(3) and fi_tagged(3) say of receiving: which message goes where, what happens when it is too long, when it
// is unexpected, when the receive is taken back.
#include <algorithm>
#include <cstring>

#include "mail.h"

namespace fabtests {

template <bool Tagged>
void Both<Tagged>::order(World& w)
{
    Mail m(w, Tagged);
    // FI_ORDER_SAS: sends to one peer are matched in the order they were posted, whatever way each of them travels.
    constexpr unsigned count = 300;
    constexpr std::size_t sizes[] = {8, 30000, 100, 0, 2000, 4097, 16, 100000};
    auto size_of = [&](unsigned i) { return sizes[(i * 5 + i / 8) % 8]; };
    for (bool posted : {true, false}) {
        constexpr unsigned window = 10;
        for (unsigned first = 0; first < count / 2; first += window) {
            auto post = [&] {
                for (unsigned i = first; i < first + window; ++i)
                    CHECK(w, m.recv(m.in((i - first) * 100008), 100000, 5) == 0);
            };
            if (posted)
                post();
            for (unsigned i = first; i < first + window; ++i) {
                unsigned char* const from = m.out((i - first) * 100008);
                fill(from, size_of(i), w.rank(), i);
                CHECK(w, m.send(from, size_of(i), m.next(), 5) == 0);
            }
            if (!posted)
                post();
            for (unsigned i = 0; i < window; ++i)
                CHECK(w, m.received().error.err == 0);
            for (unsigned i = 0; i < window; ++i)
                CHECK(w, m.sent().error.err == 0);
            // "message boundaries being maintained"
            for (unsigned i = first; i < first + window; ++i)
                CHECK(w, wrong(m.in((i - first) * 100008), size_of(i), m.before(), i) == 0);
        }
        w.barrier();
    }
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::posted_order(World& w)
{
    Mail m(w, Tagged);
    // "Posted receives are searched in the order in which they were posted in order to match sends."
    constexpr unsigned count = 50;
    int contexts[count];
    for (unsigned i = 0; i < count; ++i)
        CHECK(w, m.recv(Form::plain, {{m.in(i * 16), 16}}, FI_ADDR_UNSPEC, i % 2 ? 3 : 0, i % 2 ? 0 : ~0ull,
                        &contexts[i]) == 0);
    w.barrier();
    for (unsigned i = 0; i < count; ++i) {
        fill(m.out(i * 16), 16, w.rank(), i);
        CHECK(w, m.send(m.out(i * 16), 16, m.next(), 3) == 0);
    }
    for (unsigned i = 0; i < count; ++i) {
        const Entry r = m.received();
        CHECK(w, r.error.err == 0 && r.ok.op_context == &contexts[i]);
        CHECK(w, wrong(m.in(i * 16), 16, m.before(), i) == 0);
        CHECK(w, m.sent().error.err == 0);
    }
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::unexpected(World& w)
{
    Mail m(w, Tagged);
    // A message may come before its receive: it is kept, and the buffer of an injected one is free meanwhile.
    constexpr unsigned count = 60;
    constexpr std::size_t sizes[] = {0, 8, 150, 3000, 20000};
    const std::size_t inject = w.info().tx_attr->inject_size;
    unsigned entries = 0;
    for (unsigned i = 0; i < count; ++i) {
        const std::size_t size = sizes[i % 5];
        fill(m.out(i * 20000), size, w.rank(), i);
        if (size <= inject && i % 2) {
            CHECK(w, m.inject(m.out(i * 20000), size, m.next(), i) == 0);
            std::memset(m.out(i * 20000), 0, size);
        } else {
            CHECK(w, m.send(m.out(i * 20000), size, m.next(), i) == 0);
            ++entries;
        }
    }
    w.barrier();
    for (unsigned k = 0; k < count; ++k) {
        const unsigned i = Tagged ? count - 1 - k : k; // tags choose
        CHECK(w, m.recv(m.in(i * 20000), 20000, i) == 0);
        const Entry r = m.received();
        CHECK(w, r.error.err == 0 && r.ok.len == sizes[i % 5]);
        CHECK(w, wrong(m.in(i * 20000), sizes[i % 5], m.before(), i) == 0);
    }
    for (unsigned i = 0; i < entries; ++i)
        CHECK(w, m.sent().error.err == 0);
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::many(World& w)
{
    Mail m(w, Tagged, {.counters = FI_SEND | FI_RECV});
    // All to all, more than any queue holds: calls are refused meanwhile, nothing is lost.
    constexpr unsigned each = 1500;
    const unsigned total = each * w.ranks();
    unsigned posted = 0, received = 0, sent = 0;
    std::vector<unsigned> from(w.ranks());
    auto look = [&] {
        fi_cq_tagged_entry entry{};
        while (posted < total && posted < received + 500) {
            CHECK(w, m.recv(m.in(posted % 500 * 64), 64, 9) == 0);
            ++posted;
        }
        while (fi_cq_read(m.station.rx(), &entry, 1) == 1)
            ++received;
        while (fi_cq_read(m.station.tx(), &entry, 1) == 1)
            ++sent;
    };
    for (unsigned i = 0; i < each; ++i)
        for (unsigned r = 0; r < w.ranks(); ++r) {
            while (true) {
                const ssize_t rc = Tagged
                                       ? fi_tsend(m.station.ep(), m.out(), 48, w.desc(), m.station.peer(r), 9, nullptr)
                                       : fi_send(m.station.ep(), m.out(), 48, w.desc(), m.station.peer(r), nullptr);
                look();
                if (rc == 0)
                    break;
                if (!CHECK(w, rc == -FI_EAGAIN))
                    return;
            }
        }
    CHECK(w, w.until([&] {
        look();
        return sent == total && received == total;
    }));
    CHECK(w, m.station.reaches(m.station.counter(FI_SEND), total));
    CHECK(w, m.station.reaches(m.station.counter(FI_RECV), total));
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::truncation(World& w)
{
    Mail m(w, Tagged, {.counters = FI_RECV});
    fid_cntr* const counter = m.station.counter(FI_RECV);
    unsigned round = 0;
    for (std::size_t size : {10u, 100u, 3000u, 100000u})
        for (std::size_t room : {std::size_t{0}, std::size_t{7}, size - 1})
            for (bool posted : {true, false}) {
                ++round;
                fill(m.out(), size, w.rank(), round);
                std::memset(m.in(), 0x11, size + 8);
                int context = 0;
                const std::uint64_t errors = fi_cntr_readerr(counter);
                w.barrier();
                if (posted)
                    CHECK(w, m.recv(m.in(), room, round, &context) == 0);
                w.barrier();
                CHECK(w, m.send(m.out(), size, m.next(), round) == 0);
                if (!posted)
                    CHECK(w, m.recv(m.in(), room, round, &context) == 0);
                // "olen specifies the amount of data that did not fit into the available receive buffer"
                const Entry r = m.received();
                CHECK(w, r.error.err == FI_ETRUNC);
                CHECK(w, r.error.op_context == &context);
                CHECK(w, r.error.len == room);
                CHECK(w, r.error.olen == size - room);
                CHECK(w, (r.error.flags & FI_RECV) != 0);
                CHECK(w, !Tagged || r.error.tag == round);
                CHECK(w, wrong(m.in(), room, m.before(), round) == 0);
                CHECK(w, m.in()[room] == 0x11);
                // The sender's buffer went away in order: how its entry looks is not said.
                m.sent();
                CHECK(w, w.until([&] { return fi_cntr_readerr(counter) == errors + 1; }));
            }
    // Both go on.
    CHECK(w, m.recv(m.in(), 100, 1) == 0);
    CHECK(w, m.send(m.out(), 100, m.next(), 1) == 0);
    CHECK(w, m.received().error.err == 0);
    CHECK(w, m.sent().error.err == 0);
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::cancel(World& w)
{
    Mail m(w, Tagged, {.counters = FI_RECV});
    constexpr unsigned count = 6;
    fi_context contexts[count];
    for (unsigned i = 0; i < count; ++i)
        CHECK(w, m.recv(m.in(i * 64), 64, 4, &contexts[i]) == 0);
    // "the operation's context ... FI_ECANCELED": the first, one in the middle, the last
    for (unsigned i : {0u, 3u, 5u}) {
        CHECK(w, fi_cancel(&m.station.ep()->fid, &contexts[i]) == 0);
        const Entry r = m.received();
        CHECK(w, r.error.err == FI_ECANCELED);
        CHECK(w, r.error.op_context == &contexts[i]);
        CHECK(w, (r.error.flags & FI_RECV) != 0);
    }
    CHECK(w, m.station.reaches(m.station.counter(FI_RECV), 0));
    CHECK(w, m.quiet());
    // The others are still there, in their order, and the memory of the cancelled ones is left alone.
    std::memset(m.in(), 0x22, count * 64);
    w.barrier(); // behind which messages come
    for (unsigned i = 0; i < 3; ++i) {
        fill(m.out(i * 64), 64, w.rank(), i);
        CHECK(w, m.send(m.out(i * 64), 64, m.next(), 4) == 0);
    }
    const unsigned left[] = {1, 2, 4};
    for (unsigned i = 0; i < 3; ++i) {
        const Entry r = m.received();
        CHECK(w, r.error.err == 0 && r.ok.op_context == &contexts[left[i]]);
        CHECK(w, wrong(m.in(left[i] * 64), 64, m.before(), i) == 0);
        CHECK(w, m.sent().error.err == 0);
    }
    for (unsigned i : {0u, 3u, 5u})
        CHECK(w, m.in(i * 64)[0] == 0x22);
    // fi_cancel(3): an operation that is not found, or that has completed, has no second entry
    (void)fi_cancel(&m.station.ep()->fid, &contexts[1]);
    w.barrier();
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::directed(World& w)
{
    Mail m(w, Tagged);
    if (!w.has(FI_DIRECTED_RECV))
        return;
    // "a buffer should be posted to receive incoming data from a specific remote endpoint": in the reverse order of
    // rank, from all others twice, then once from any source.
    const unsigned others = w.ranks() - 1;
    for (unsigned round = 0; round < 2; ++round) {
        if (round == 1)
            w.barrier();
        auto send = [&](unsigned k) {
            for (unsigned r = 0; r < w.ranks(); ++r)
                if (r != w.rank()) {
                    unsigned char* const from = m.out((k * w.ranks() + r) * 64);
                    fill(from, 64, w.rank(), k);
                    CHECK(w, m.send(from, 64, r, 1) == 0);
                }
        };
        if (round == 1) // kept ones are chosen by their source, too
            for (unsigned k = 0; k < 3; ++k)
                send(k);
        for (unsigned k = 0; k < 2; ++k)
            for (unsigned r = w.ranks(); r-- > 0;)
                if (r != w.rank())
                    CHECK(w, m.recv(Form::plain, {{m.in((k * w.ranks() + r) * 64), 64}}, m.station.peer(r), 1, 0,
                                    nullptr) == 0);
        for (unsigned i = 0; i < others; ++i)
            CHECK(w, m.recv(m.in((2 * w.ranks() + i) * 64), 64, 1) == 0);
        if (round == 0) {
            w.barrier();
            for (unsigned k = 0; k < 3; ++k)
                send(k);
        }
        for (unsigned i = 0; i < 3 * others; ++i) {
            CHECK(w, m.received().error.err == 0);
            CHECK(w, m.sent().error.err == 0);
        }
        for (unsigned k = 0; k < 2; ++k)
            for (unsigned r = 0; r < w.ranks(); ++r)
                CHECK(w, r == w.rank() || wrong(m.in((k * w.ranks() + r) * 64), 64, r, k) == 0);
        w.barrier();
    }
    CHECK(w, m.quiet());
}

template <bool Tagged>
void Both<Tagged>::source(World& w)
{
    if (!w.has(FI_SOURCE))
        return;
    // "it allows the CQ to return source address information to the user for any received data"
    {
        Mail m(w, Tagged);
        for (std::size_t size : {8u, 50000u})
            for (unsigned r = 0; r < w.ranks(); ++r) {
                CHECK(w, m.recv(m.in(r * 50000), 50000, 2) == 0);
                CHECK(w, m.send(m.out(), size, r, 2) == 0);
            }
        std::vector<unsigned> seen(w.ranks());
        for (unsigned i = 0; i < 2 * w.ranks(); ++i) {
            const Entry r = m.received();
            CHECK(w, r.error.err == 0);
            for (unsigned k = 0; k < w.ranks(); ++k)
                seen[k] += r.source == m.station.peer(k);
            CHECK(w, m.sent().error.err == 0);
        }
        for (unsigned k = 0; k < w.ranks(); ++k)
            CHECK(w, seen[k] == 2);
    }
    // "source addresses which cannot be mapped to a usable fi_addr_t will be reported as FI_ADDR_NOTAVAIL": a rank that
    // knows only itself receives from the others, which know it.
    Mail m(w, Tagged, {.knows_others = w.rank() != 0});
    if (w.rank() == 0)
        for (unsigned i = 1; i < w.ranks(); ++i)
            CHECK(w, m.recv(m.in(i * 64), 64, 2) == 0);
    w.barrier();
    if (w.rank() != 0) {
        CHECK(w, m.send(m.out(), 64, 0, 2) == 0);
        CHECK(w, m.sent().error.err == 0);
    } else {
        for (unsigned i = 1; i < w.ranks(); ++i) {
            const Entry r = m.received();
            CHECK(w, r.error.err == 0);
            CHECK(w, r.source == FI_ADDR_NOTAVAIL);
        }
    }
    w.barrier();
}

template struct Both<false>;
template struct Both<true>;

} // namespace fabtests
