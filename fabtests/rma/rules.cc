// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_rma(3), fi_cq(3) and fi_endpoint(3) say around the data: inject, completions, order, errors.
#include <atomic>
#include <cstring>
#include <initializer_list>

#include "../common/rma_message.h"
#include "rma_checks.h"

namespace fabtests {
void check_inject(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    const std::size_t limit = w.info().tx_attr->inject_size;
    const std::uint64_t counted = fi_cntr_read(w.writes());
    std::uint64_t posted = 0;
    // "the data buffer is available for reuse immediately on returning from the call"
    unsigned char buffer[64];
    const std::size_t size = limit < sizeof buffer ? limit : sizeof buffer;
    for (unsigned round = 0; size != 0 && round < 200; ++round, ++posted) {
        for (std::size_t i = 0; i < size; ++i)
            buffer[i] = byte_of(w.rank(), i, round);
        CHECK(w, w.post([&] {
            return fi_inject_write(w.ep(), buffer, size, w.peer(next), w.address(next, round * 64), w.key(next));
        }) == 0);
        std::memset(buffer, 0xee, sizeof buffer);
    }
    // FI_INJECT: the same for fi_writemsg, which completes as its flags say.
    for (unsigned round = 200; size != 0 && round < 300; ++round, ++posted) {
        for (std::size_t i = 0; i < size; ++i)
            buffer[i] = byte_of(w.rank(), i, round);
        RmaMessage m(w, buffer, size, next, round * 64);
        m.desc = nullptr;
        CHECK(w, w.post([&] { return fi_writemsg(w.ep(), &m.msg, FI_INJECT | FI_COMPLETION); }) == 0);
        std::memset(buffer, 0xee, sizeof buffer);
        CHECK(w, w.wait() == 0);
    }
    CHECK(w, w.wait_count(w.writes(), counted + posted) == 0);
    // "does not generate an entry in the completion queue"
    CHECK(w, w.quiet());
    RmaMessage back(w, w.local(), 300 * 64, next, 0);
    CHECK(w, w.post([&] { return fi_readmsg(w.ep(), &back.msg, FI_COMPLETION); }) == 0);
    CHECK(w, w.wait() == 0);
    std::size_t wrong = 0;
    for (unsigned round = 0; round < 300; ++round)
        for (std::size_t i = 0; i < size; ++i)
            wrong += w.local(round * 64)[i] != byte_of(w.rank(), i, round);
    CHECK(w, wrong == 0);
    w.barrier();
    std::memset(w.region(), 0, 300 * 64);
    w.barrier();
}

void check_completion_rules(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    RmaMessage m(w, w.local(), 100, next, 0);
    // FI_SELECTIVE_COMPLETION: an entry only where FI_COMPLETION is set; every operation counts once.
    const std::uint64_t writes = fi_cntr_read(w.writes()), reads = fi_cntr_read(w.reads());
    CHECK(w, w.post([&] {
        return fi_write(w.ep(), w.local(), 100, w.desc(), w.peer(next), w.address(next, 0), w.key(next), &m);
    }) == 0);
    CHECK(w, w.post([&] { return fi_writemsg(w.ep(), &m.msg, 0); }) == 0);
    CHECK(w, w.post([&] { return fi_writemsg(w.ep(), &m.msg, FI_MORE); }) == 0);
    CHECK(w, w.post([&] { return fi_writemsg(w.ep(), &m.msg, FI_DELIVERY_COMPLETE); }) == 0);
    CHECK(w, w.post([&] { return fi_readmsg(w.ep(), &m.msg, 0); }) == 0);
    CHECK(w, w.wait_count(w.writes(), writes + 4) == 0);
    CHECK(w, w.wait_count(w.reads(), reads + 1) == 0);
    CHECK(w, w.quiet());
    for (std::uint64_t level :
         std::initializer_list<std::uint64_t>{0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE}) {
        void* context = nullptr;
        std::uint64_t flags = 0;
        CHECK(w, w.post([&] { return fi_writemsg(w.ep(), &m.msg, FI_COMPLETION | level); }) == 0);
        CHECK(w, w.wait(&context, &flags) == 0);
        CHECK(w, context == m.msg.context);
        CHECK(w, (flags & (FI_RMA | FI_WRITE)) == (FI_RMA | FI_WRITE));
    }
    CHECK(w, w.quiet());
    CHECK(w, fi_cntr_read(w.writes()) == writes + 8);
    CHECK(w, fi_cntr_readerr(w.writes()) == 0);
    // Nothing to transfer still completes.
    RmaMessage empty(w, w.local(), 0, next, 0);
    CHECK(w, w.post([&] { return fi_writemsg(w.ep(), &empty.msg, FI_COMPLETION); }) == 0);
    CHECK(w, w.wait() == 0);
    CHECK(w, w.post([&] { return fi_readmsg(w.ep(), &empty.msg, FI_COMPLETION); }) == 0);
    CHECK(w, w.wait() == 0);
    w.barrier();
}

void check_order(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    if ((w.info().tx_attr->msg_order & (FI_ORDER_RMA_WAW | FI_ORDER_WAW)) != 0) {
        // FI_ORDER_RMA_WAW: of writes to one place the last one stays.
        auto* const values = reinterpret_cast<std::uint64_t*>(w.local());
        const std::uint64_t writes = fi_cntr_read(w.writes());
        constexpr unsigned count = 1500;
        for (unsigned i = 0; i < count; ++i) {
            values[i] = i + 1;
            CHECK(w, w.post([&] {
                return fi_write(w.ep(), &values[i], 8, w.desc(), w.peer(next), w.address(next, 8), w.key(next),
                                nullptr);
            }) == 0);
        }
        CHECK(w, w.wait_count(w.writes(), writes + count) == 0);
        RmaMessage back(w, w.local(1 << 20), 8, next, 8);
        CHECK(w, w.post([&] { return fi_readmsg(w.ep(), &back.msg, FI_COMPLETION); }) == 0);
        CHECK(w, w.wait() == 0);
        std::uint64_t last = 0;
        std::memcpy(&last, w.local(1 << 20), 8);
        CHECK(w, last == count);
    }
    if ((w.info().caps & FI_FENCE) != 0) {
        // FI_FENCE: "the requested operation ... be deferred until all previous operations ... have completed".
        for (unsigned round = 1; round <= 100; ++round) {
            auto* const value = reinterpret_cast<std::uint64_t*>(w.local(4096));
            *value = round;
            auto* const back = reinterpret_cast<std::uint64_t*>(w.local(8192));
            *back = 0;
            RmaMessage read(w, back, 8, next, 64);
            CHECK(w, w.post([&] {
                return fi_write(w.ep(), value, 8, w.desc(), w.peer(next), w.address(next, 64), w.key(next), nullptr);
            }) == 0);
            CHECK(w, w.post([&] { return fi_readmsg(w.ep(), &read.msg, FI_COMPLETION | FI_FENCE); }) == 0);
            CHECK(w, w.wait() == 0);
            CHECK(w, *back == round);
        }
    }
    w.barrier();
    std::memset(w.region(), 0, 4096);
    w.barrier();
}

void check_errors(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    // "FI_EMSGSIZE": above the limits nothing is posted.
    const std::size_t limit = w.info().tx_attr->inject_size;
    if (limit + 1 < (1 << 20))
        CHECK(w, fi_inject_write(w.ep(), w.local(), limit + 1, w.peer(next), w.address(next, 0), w.key(next)) < 0);
    iovec many[64];
    for (iovec& v : many)
        v = {w.local(), 1};
    if (w.info().tx_attr->iov_limit < 64) {
        void* descs[64] = {};
        CHECK(w, fi_writev(w.ep(), many, descs, w.info().tx_attr->iov_limit + 1, w.peer(next), w.address(next, 0),
                           w.key(next), nullptr) < 0);
    }
    CHECK(w, w.quiet());
    // An unknown key: an error entry with the context, at the initiator alone; nothing is written.
    w.barrier();
    std::memset(w.local(), 0x77, 64);
    RmaMessage m(w, w.local(), 64, next, 0);
    m.remote.key = 0x7ff7;
    void* context = nullptr;
    const ssize_t rc = w.post([&] { return fi_writemsg(w.ep(), &m.msg, FI_COMPLETION); });
    if (rc == 0) {
        CHECK(w, w.wait(&context) != 0);
        CHECK(w, context == m.msg.context);
    }
    w.barrier();
    for (unsigned i = 0; i < 64; ++i)
        CHECK(w, w.region()[i] == 0);
    w.barrier();
    // The endpoint goes on.
    m.remote.key = w.key(next);
    CHECK(w, w.post([&] { return fi_writemsg(w.ep(), &m.msg, FI_COMPLETION | FI_DELIVERY_COMPLETE); }) == 0);
    CHECK(w, w.wait() == 0);
    w.barrier();
    CHECK(w, w.region()[63] == 0x77);
    w.barrier();
}

} // namespace fabtests
